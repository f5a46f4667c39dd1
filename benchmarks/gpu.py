"""OURS beside BARE and NOTE on one GPU in bf16: a CNN and a transformer that keep it busy.

    python benchmarks/gpu.py [--minutes 8]
    python benchmarks/gpu.py --rehearse      on a CPU, with small models: does the script work?

Rounds are taken until the time is over. Writes results/gpu.json and results/gpu.md; without a GPU
the table says that nothing was measured, and a rehearsal only prints.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paired import ratio
from results_folder import write
from running import Task, generate, run, setting

LARGE = {"BENCH_LARGE": "1", "BENCH_BF16": "1"}
TASKS = {
    "cnn": Task("cnn", batch_size=128, block=20, variables=LARGE),
    "transformer": Task("transformer", batch_size=16, block=10, variables=LARGE),
}
LOOPS = ("bare", "bare fused", "note", "ours")


def rehearsal(task: Task) -> Task:
    """Return a task that a CPU can do in a moment."""
    return replace(task, batch_size=2, block=1, variables={"BENCH_BF16": "1"})


def measure(tasks: dict[str, Task], project: Path) -> dict[str, dict[str, float]]:
    """Return seconds of a step by workload and loop."""
    found: dict[str, dict[str, float]] = {}
    for name, task in tasks.items():
        for loop in random.sample(LOOPS, len(LOOPS)):
            found.setdefault(name, {})[loop] = run(loop, task, project, processes=1).step
            print(f"{name:<12} {loop:<12} {1e3 * found[name][loop]:8.3f} ms", flush=True)
    return found


def table(report: dict[str, Any]) -> str:
    """Write the results as Markdown."""
    rounds = report["rounds"]
    if not rounds:
        return "Not measured: there was no GPU.\n"
    lines = [
        f"Written by `benchmarks/gpu.py`: {report['device']}, torch {report['setting']['torch']}, "
        f"one process, bf16, {len(rounds)} rounds. Milliseconds of a step, and OURS against each.",
        "",
        "| workload | loop | ms | OURS against it |",
        "|---|---|---:|---:|",
    ]
    for name in TASKS:
        times = {loop: [each[name][loop] for each in rounds] for loop in LOOPS}
        for loop in LOOPS:
            compared = ratio(times["ours"], times[loop]) if loop != "ours" else ""
            lines.append(
                f"| {name} | {loop} | {1e3 * statistics.median(times[loop]):.2f} | {compared} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write the results after each round and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=8, help="no round begins after them")
    parser.add_argument("--rehearse", action="store_true", help="one small round on a CPU")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    report: dict[str, Any] = {"setting": setting(), "device": None, "rounds": []}
    tasks = {name: rehearsal(task) for name, task in TASKS.items()} if options.rehearse else TASKS
    if torch.cuda.is_available():
        report["device"] = torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory(prefix="ddpgen-bench-") as folder:
        project = generate(Path(folder))
        last = 0.0
        while (report["device"] or options.rehearse) and time.monotonic() + last < end:
            begun = time.monotonic()
            report["rounds"].append(measure(tasks, project))
            last = time.monotonic() - begun
            if options.rehearse:
                break
            write("gpu", report, table(report))
    if not options.rehearse:
        write("gpu", report, table(report))
    print(table(report), end="")


if __name__ == "__main__":
    main()
