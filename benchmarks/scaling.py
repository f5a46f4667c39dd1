"""Efficiency on more processes: what the doctor's model predicts, and whether it holds for two.

    python benchmarks/scaling.py [--rounds 5] [--more]

`ddpgen doctor` measures each workload's step and the all-reduce of its gradients, and predicts from
these two (ddpgen/doctor/scaling.py) what it cannot start here. What it can is compared: the step of
two processes, from their work without exchange and the all-reduce alone.
Writes results/scaling.json and results/scaling.md.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ddpgen.doctor.scaling import Link, efficiency
from ddpgen.doctor.trial import FORESEEN
from results_folder import earlier_rounds, rounds_parser, write
from running import HERE, generate, setting, take_over
from training import TASKS

PROCESSES = (1, 2)


def examine(workload: str, project: Path, processes: int) -> dict[str, float]:
    """Return the figures of the doctor; times are in seconds."""
    take_over(workload, project)
    options = ["--json", "--device=cpu", f"--processes={processes}"]
    with tempfile.TemporaryDirectory(prefix="ddpgen-bench-") as scratch:
        variables = {
            "PYTHONPATH": str(HERE / "workloads"),
            "PYTHON": sys.executable,
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            "BENCH_STEPS": "100",
            "BENCH_FOLDER": scratch,
        }
        done = subprocess.run(
            [sys.executable, "-m", "ddpgen", "doctor", str(project), *options],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
    figures: dict[str, float] | None = json.loads(done.stdout)["figures"]
    if figures is None:
        sys.exit(f"the doctor finds {workload} ill:\n{done.stdout}{done.stderr}")
    return figures


def table(report: dict[str, Any]) -> str:
    """Write the results as Markdown."""
    where, rounds = report["setting"], report["rounds"]
    lines = [
        f"Written by `benchmarks/scaling.py`: torch {where['torch']}, Python {where['python']}, "
        f"{where['cpus']} cores, gloo, one thread for each process, medians of "
        f"{len(rounds['linear'])} rounds. Milliseconds of a step; 2 processes:",
        "",
        "| workload | gradients | all-reduce alone | work of 1 process | work of 2 | "
        "predicted for 2 | measured |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    shares = []
    for name, found in rounds.items():
        one, two = ({key: _median(found, count, key) for key in KEYS} for count in PROCESSES)
        size, exchange, work = two["gradient_bytes"], two["all_reduce_seconds"], two["work_seconds"]
        worst, best = (work / share for share in efficiency(work, exchange))
        times = [exchange, one["step_seconds"], work]
        cells = [name, f"{size / 1e3:,.1f} kB", *(f"{1e3 * time:.2f}" for time in times)]
        cells += [f"{1e3 * best:.2f} to {1e3 * worst:.2f}", f"{1e3 * two['step_seconds']:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
        link = Link.measured(2, two["latency_seconds"], int(size), exchange)
        cells = [name]
        for count in FORESEEN:
            low, high = efficiency(work, link.exchange(count, int(size)))
            cells.append(f"{100 * low:.0f} to {100 * high:.0f} %")
        shares.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "The best prediction hides the exchange behind the backward pass, the worst does not. Work "
        "of 2: both without exchange, on the cores of one machine.",
        "",
        "Efficiency predicted for more processes, each with a core of its own, in a ring of links "
        "like this one:",
        "",
        "| workload | " + " | ".join(map(str, FORESEEN)) + " |",
        "|---|" + "---:|" * len(FORESEEN),
        *shares,
    ]
    return "\n".join(lines) + "\n"


KEYS = (
    "gradient_bytes",
    "all_reduce_seconds",
    "latency_seconds",
    "step_seconds",
    "work_seconds",
)


def _median(found: list[dict[str, dict[str, float]]], processes: int, key: str) -> float:
    return statistics.median(round_[str(processes)][key] for round_ in found)


def main() -> None:
    """Measure, write the results after each round and print the table."""
    options = rounds_parser(__doc__, default=5).parse_args()
    rounds: dict[str, Any] = {name: [] for name in TASKS}
    if options.more:
        rounds |= earlier_rounds("scaling")
    report = {"setting": setting(), "rounds": rounds}
    with tempfile.TemporaryDirectory(prefix="ddpgen-bench-") as folder:
        project = generate(Path(folder))
        for _ in range(options.rounds):
            for name, found in rounds.items():
                found.append({str(count): examine(name, project, count) for count in PROCESSES})
            write("scaling", report, table(report))
    print(table(report), end="")


if __name__ == "__main__":
    main()
