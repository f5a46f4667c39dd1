"""CPU time of the command line beside an empty Click program and plain Copier.

    python benchmarks/cli.py [--rounds 15]

Writes results/cli.json (every sample) and results/cli.md (the table).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEMPLATE = HERE.parent / "template"
PROGRAMS = Path(sys.executable).parent
EMPTY = """import click

@click.command()
def main() -> None:
    "Do nothing."

main()
"""
# What is measured against what, and the bound that the project has set itself.
COMPARISONS = [
    ("ddpgen --help", "empty Click program", 2.0),
    ("ddpgen new --yes --no-git", "copier copy", 1.0),
    ("ddpgen new --yes", "copier copy", 1.0),
]


def main() -> None:
    """Measure, write the results and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="samples of each command")
    rounds = parser.parse_args().rounds

    with tempfile.TemporaryDirectory(prefix="ddpgen-bench-") as folder:
        samples = measure(Path(folder), rounds)
    report = {"machine": machine(), "unit": "seconds of CPU, user + system", "samples": samples}
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "cli.json").write_text(json.dumps(report, indent=1) + "\n")
    text = table(samples, rounds)
    (results / "cli.md").write_text(text)
    print(text, end="")


def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Run the commands in turn, so that a busy moment of the machine falls on all of them alike."""
    empty = folder / "empty.py"
    empty.write_text(EMPTY)
    home = folder / "home"  # without the settings of whoever runs this
    home.mkdir()
    environment = {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
    ddpgen, copier = str(PROGRAMS / "ddpgen"), str(PROGRAMS / "copier")

    samples: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        target = folder / f"round{turn}"
        target.mkdir()
        commands = {
            "empty Click program": [sys.executable, str(empty), "--help"],
            "ddpgen --help": [ddpgen, "--help"],
            "copier copy": [copier, "copy", "--defaults", str(TEMPLATE), str(target / "copied")],
            "ddpgen new --yes --no-git": [ddpgen, "new", str(target / "new"), "--yes", "--no-git"],
            "ddpgen new --yes": [ddpgen, "new", str(target / "with_git"), "--yes"],
        }
        for name, command in commands.items():
            seconds = cpu_seconds(command, environment)
            if turn > 0:  # the first round only fills the caches
                samples.setdefault(name, []).append(seconds)
    return samples


def cpu_seconds(command: list[str], environment: Mapping[str, str]) -> float:
    """Return the user and system time of a command and of all processes that it waited for."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{output.read().decode()}")
    return usage.ru_utime + usage.ru_stime


def machine() -> dict[str, str | int | None]:
    """Say what the numbers were measured on."""
    packages = {name: version(name) for name in ("ddpgen", "click", "copier")}
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        **packages,
    }


def table(samples: Mapping[str, list[float]], rounds: int) -> str:
    """Write medians, ranges and the ratios of COMPARISONS as Markdown."""
    lines = [
        f"CPU time in milliseconds, user + system with all child processes, {rounds} rounds.",
        "",
        "| command | median | lowest | highest |",
        "|---|---:|---:|---:|",
    ]
    for name, values in samples.items():
        numbers = (statistics.median(values), min(values), max(values))
        lines.append(f"| {name} | " + " | ".join(f"{1000 * n:.0f}" for n in numbers) + " |")
    lines += ["", "| ratio of medians | measured | bound |", "|---|---:|---:|"]
    for name, base, bound in COMPARISONS:
        ratio = statistics.median(samples[name]) / statistics.median(samples[base])
        lines.append(f"| {name} / {base} | {ratio:.2f} | {bound:.1f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
