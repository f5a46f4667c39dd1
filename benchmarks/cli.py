"""CPU time of the command line beside an empty Click program and plain Copier.

    python benchmarks/cli.py [--rounds 15]

Writes results/cli.json (every sample) and results/cli.md (the table).
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import cpu_time
from cpu_time import Samples

TEMPLATE = Path(__file__).resolve().parent.parent / "template"
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


def measure(folder: Path, rounds: int) -> Samples:
    """Run the commands in turn, so that a busy moment of the machine falls on all of them alike."""
    empty = folder / "empty.py"
    empty.write_text(EMPTY)
    home = folder / "home"  # without the settings of whoever runs this
    home.mkdir()
    environment = {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
    ddpgen, copier = str(PROGRAMS / "ddpgen"), str(PROGRAMS / "copier")

    samples: Samples = {}
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
            seconds = cpu_time.seconds(command, environment)
            if turn > 0:  # the first round only fills the caches
                samples.setdefault(name, []).append(seconds)
    return samples


def ratios(samples: Samples) -> list[str]:
    """Return the lines of a Markdown table: the ratios of COMPARISONS."""
    lines = ["| ratio of medians | measured | bound |", "|---|---:|---:|"]
    for name, base, bound in COMPARISONS:
        ratio = statistics.median(samples[name]) / statistics.median(samples[base])
        lines.append(f"| {name} / {base} | {ratio:.2f} | {bound:.1f} |")
    return lines


if __name__ == "__main__":
    cpu_time.run("cli", __doc__, measure, ratios)
