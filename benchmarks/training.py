"""The generated project's training loop beside what a user would take instead.

    python benchmarks/training.py [--rounds 9] [--more]

In each round every loop trains every workload once, with 2 processes and one thread each, as its
own user would start it; the order of the loops changes from round to round. A ratio is taken within
a round. BARE runs twice in each: how far the two are apart is the noise.

Writes results/training.json (every sample) and results/training.md; --more adds its rounds to those
that are there.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paired import Estimate, ratio
from results_folder import earlier_rounds, rounds_parser, write
from running import LOOPS, Task, generate, run, setting

TASKS = {
    "linear": Task("linear", batch_size=32, block=200),
    "cnn": Task("cnn", batch_size=32, block=10),
    "transformer": Task("transformer", batch_size=16, block=10),
}
SAME_CODE = "bare, again"
NAMES = {
    "bare": "BARE: the smallest DDP loop, no logging",
    SAME_CODE: "BARE once more: the noise",
    "bare fused": "BARE with fused AdamW",
    "ours": "OURS: launch.sh with all defaults",
    "note": "NOTE: the hand-written loop, 8 workers",
    "accelerate": "Accelerate",
    "fabric": "Lightning Fabric",
    "lightning": "Lightning Trainer",
    "ignite": "Ignite",
}
# OURS against this loop shall take at most so many times as long: the project's own bounds.
BOUNDS = {
    "bare": {"linear": 0.95, "cnn": 1.00, "transformer": 0.97},
    "bare fused": {"linear": 1.05, "cnn": 1.02, "transformer": 1.02},
    "accelerate": {"linear": 0.90, "cnn": 1.00, "transformer": 1.00},
    "fabric": {"linear": 1.00, "cnn": 1.00, "transformer": 1.00},
    "lightning": {"linear": 0.60, "cnn": 1.00, "transformer": 1.00},
    "ignite": {"linear": 1.00, "cnn": 1.00, "transformer": 1.00},
    "note": {"linear": 0.35},
}
Round = dict[str, dict[str, Any]]  # by loop, what was measured


def measure(task: Task, project: Path) -> Round:
    """Run every loop on a workload once."""
    found: Round = {}
    order = [*LOOPS, SAME_CODE]
    random.shuffle(order)  # no loop always comes after the same other one
    for loop in order:
        done = run("bare" if loop == SAME_CODE else loop, task, project)
        found[loop] = {**asdict(done), "load_average": os.getloadavg()[0]}
        print(f"{task.workload:<12} {loop:<12} {1e3 * done.step:8.3f} ms", flush=True)
    return found


def step_times(rounds: list[Round], loop: str, kind: str = "blocks") -> list[float]:
    """Return the time of a step in each round, in seconds.

    Args:
        rounds: of a workload.
        loop: its name.
        kind: "blocks", of which the median counts; or "cpu_blocks", CPU time, of which the least:
            what else the machine does only adds to it.
    """
    typical = statistics.median if kind == "blocks" else min
    return [typical(round_[loop][kind]) for round_ in rounds]


def against(rounds: list[Round], loop: str, base: str, kind: str = "blocks") -> Estimate:
    """Compare two loops."""
    return ratio(step_times(rounds, loop, kind), step_times(rounds, base, kind))


def table(report: dict[str, Any]) -> str:
    """Write the results as Markdown."""
    rounds: dict[str, list[Round]] = report["rounds"]
    counts = " and ".join(f"{len(rounds[name])} of {name}" for name in rounds)
    where = report["setting"]
    lines = [
        f"Written by `benchmarks/training.py`: torch {where['torch']}, Python {where['python']}, "
        f"{where['cpus']} cores, 2 gloo processes, one thread each; rounds: {counts}.",
        "",
        "Milliseconds of a step, and the ratio to BARE in the same round: its median, and in "
        "brackets the interval that has the true median with 95 %. CPU: the same of the CPU time "
        "of rank 0, which other programs on the machine disturb less; without loader workers.",
        "",
        "| |" + "".join(f" {name} ms | against BARE | CPU |" for name in rounds),
        "|---|" + "---:|---:|---:|" * len(rounds),
    ]
    for loop, text in NAMES.items():
        cells = [text]
        for name in rounds:
            cells.append(f"{1e3 * statistics.median(step_times(rounds[name], loop)):.2f}")
            for kind in ("blocks", "cpu_blocks"):
                compared = against(rounds[name], loop, "bare", kind)
                cells.append(str(compared) if loop != "bare" else "1")
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "OURS against each, and whether that is at most the project's own bound:",
        "",
        "| against | workload | measured | bound | within it | CPU |",
        "|---|---|---:|---:|---|---:|",
    ]
    for base, bounds in BOUNDS.items():
        for name, bound in bounds.items():
            if name not in rounds:
                continue
            found = against(rounds[name], "ours", base)
            cpu = against(rounds[name], "ours", base, "cpu_blocks")
            lines.append(
                f"| {base} | {name} | {found} | {bound:.2f} | {found.verdict(bound)} | {cpu} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write the results after each round and print the table."""
    parser = rounds_parser(__doc__, default=9)
    parser.add_argument("--only", choices=TASKS, help="one workload; the others stay as they are")
    options = parser.parse_args()
    chosen = [options.only] if options.only else list(TASKS)
    report: dict[str, Any] = {"setting": setting(), "rounds": {}}
    for name, rounds in earlier_rounds("training").items():
        if options.more or name not in chosen:
            report["rounds"][name] = rounds
    with tempfile.TemporaryDirectory(prefix="ddpgen-bench-") as folder:
        project = generate(Path(folder))
        for _ in range(options.rounds):
            for name in chosen:
                report["rounds"].setdefault(name, []).append(measure(TASKS[name], project))
                write("training", report, table(report))
    print(table(report), end="")


if __name__ == "__main__":
    main()
