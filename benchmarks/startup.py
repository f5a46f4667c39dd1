"""From the command to the end of the first optimizer step: launch.sh beside torchrun and BARE.

    python benchmarks/startup.py [--rounds 25] [--more]

Both train the linear workload with 2 gloo processes and take turns. Where the time goes: CPU time
of Python's imports by package, of one process that trains alone, and of the launcher.
Writes results/startup.json and results/startup.md.
"""

from __future__ import annotations

import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from paired import difference
from results_folder import earlier_rounds, rounds_parser, write
from running import ENVIRONMENT, HERE, Task, generate, run, setting

TASK = Task("linear", batch_size=32, block=1, steps=2)
BOUND = 0.1  # seconds after BARE
SHOWN = 0.01  # of all imports of a process; what takes less is summed up as "others"
PROCESSES = {  # what each imports up to its last step
    "BARE": ["bare.py"],
    "train.py": ["train.py", "--epochs=1", "--batch-size=32", "--resume=never"],
    "torchrun": ["-c", "import torch.distributed.run"],
    "launch.py": ["-c", "import launch, config, torch.distributed.run"],
}


def first_steps(project: Path) -> dict[str, float]:
    """Return the seconds to the first step, of both."""
    order = ["bare", "ours"]
    random.shuffle(order)
    return {loop: run(loop, TASK, project).first_step for loop in order}


def imports(project: Path) -> dict[str, dict[str, float]]:
    """Return the seconds that each process spends in the code of each package while importing."""
    return {name: _imports(command, project) for name, command in PROCESSES.items()}


def _imports(command: list[str], project: Path) -> dict[str, float]:
    in_loops = command[0] == "bare.py"
    with tempfile.TemporaryDirectory(prefix="ddpgen-bench-") as scratch:
        alone = {
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "STORE_FILE": f"{scratch}/store",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": str(HERE / "workloads"),
            "BENCH_FOLDER": scratch,
        }
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *command],
            cwd=HERE / "loops" if in_loops else project,
            env={**ENVIRONMENT, **alone},
            capture_output=True,
            text=True,
            check=True,
        )
    spent: Counter[str] = Counter()
    for microseconds, module in re.findall(r"import time: +(\d+) \| +\d+ \| +(\S+)", done.stderr):
        spent[module.split(".")[0]] += int(microseconds)
    return {package: total / 1e6 for package, total in spent.items()}


def table(report: dict[str, Any]) -> str:
    """Write the results as Markdown."""
    where, rounds = report["setting"], report["rounds"]["first step"]
    ours, bare = ([each[loop] for each in rounds] for loop in ("ours", "bare"))
    late = difference(ours, bare)
    lines = [
        f"Written by `benchmarks/startup.py`: torch {where['torch']}, Python {where['python']}, "
        f"{where['cpus']} cores, 2 gloo processes, {len(rounds)} rounds.",
        "",
        "| from the command to the end of the first step | seconds |",
        "|---|---:|",
        f"| torchrun and BARE | {statistics.median(bare):.2f} |",
        f"| launch.sh, all defaults on | {statistics.median(ours):.2f} |",
        f"| difference, in the same round | {late} |",
        f"| bound | {BOUND} |",
        f"| within it | {late.verdict(BOUND)} |",
        "",
        "Milliseconds spent in importing each package, the median of several starts, all code of "
        "the package that is run on import. train.py opens TensorBoard and saves a checkpoint.",
        "",
        "| package | " + " | ".join(PROCESSES) + " |",
        "|---|" + "---:|" * len(PROCESSES),
    ]
    spent = {
        name: _medians([each[name] for each in report["rounds"]["imports"]]) for name in PROCESSES
    }
    totals = [sum(each.values()) for each in spent.values()]
    large = {
        package
        for each, total in zip(spent.values(), totals, strict=True)
        for package, time in each.items()
        if time > SHOWN * total
    }
    for package in sorted(large, key=lambda package: -spent["train.py"].get(package, 0)):
        times = [1e3 * each.get(package, 0) for each in spent.values()]
        lines.append(f"| {package} | " + " | ".join(f"{time:.0f}" for time in times) + " |")
    small = [sum(t for p, t in each.items() if p not in large) for each in spent.values()]
    lines.append("| others | " + " | ".join(f"{1e3 * time:.0f}" for time in small) + " |")
    lines.append("| all | " + " | ".join(f"{1e3 * time:.0f}" for time in totals) + " |")
    return "\n".join(lines) + "\n"


def _medians(times: list[dict[str, float]]) -> dict[str, float]:
    packages = {package for each in times for package in each}
    return {p: statistics.median(each.get(p, 0.0) for each in times) for p in packages}


def main() -> None:
    """Measure, write the results after each round and print the table."""
    options = rounds_parser(__doc__, default=25).parse_args()
    rounds: dict[str, Any] = {"first step": [], "imports": []}
    if options.more:
        rounds |= earlier_rounds("startup")
    report = {"setting": setting(), "rounds": rounds}
    with tempfile.TemporaryDirectory(prefix="ddpgen-bench-") as folder:
        project = generate(Path(folder))
        for number in range(options.rounds):
            rounds["first step"].append(first_steps(project))
            if number % 3 == 0:
                rounds["imports"].append(imports(project))
            write("startup", report, table(report))
    print(table(report), end="")


if __name__ == "__main__":
    main()
