"""CPU time of the command line beside an empty Click program, plain Copier and cookiecutter.

    python benchmarks/cli.py [--rounds 15]

Writes results/cli.json (every sample) and results/cli.md (the table).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
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
COMPARISONS: list[tuple[str, str, float | None]] = [
    ("ddpgen --help", "empty Click program", 2.0),
    ("ddpgen new --yes --no-git", "copier copy", 1.0),
    ("ddpgen new --yes", "copier copy", 1.0),
    ("ddpgen new --yes --no-git", "cookiecutter", None),
    ("ddpgen new --yes", "cookiecutter", None),
]


def measure(folder: Path, rounds: int) -> Samples:
    """Run the commands in turn, so that a busy moment of the machine falls on all of them alike."""
    empty = folder / "empty.py"
    empty.write_text(EMPTY)
    home = folder / "home"  # without the settings of whoever runs this
    home.mkdir()
    environment = {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
    names = ("ddpgen", "copier", "cookiecutter")
    ddpgen, copier, cookiecutter = (str(PROGRAMS / name) for name in names)
    baked = as_cookiecutter(ddpgen, folder)

    samples: Samples = {}
    for turn in range(rounds + 1):
        target = folder / f"round{turn}"
        target.mkdir()
        commands = {
            "empty Click program": [sys.executable, str(empty), "--help"],
            "ddpgen --help": [ddpgen, "--help"],
            "copier copy": [copier, "copy", "--defaults", str(TEMPLATE), str(target / "copied")],
            "cookiecutter": [cookiecutter, "--no-input", "-o", str(target), str(baked)],
            "ddpgen new --yes --no-git": [ddpgen, "new", str(target / "new"), "--yes", "--no-git"],
            "ddpgen new --yes": [ddpgen, "new", str(target / "with_git"), "--yes"],
        }
        for name, command in commands.items():
            seconds = cpu_time.seconds(command, environment)
            if turn > 0:  # the first round only fills the caches
                samples.setdefault(name, []).append(seconds)
    return samples


def as_cookiecutter(ddpgen: str, folder: Path) -> Path:
    """Return a template of cookiecutter with the same files, of which it renders the same ones.

    It knows no parts, presets or later updates: each rendered file is that of the default answers,
    with the project's name filled in.
    """
    template = folder / "cookiecutter"
    name = "{{cookiecutter.name}}"
    made = template / name
    template.mkdir()
    subprocess.run(
        [ddpgen, "new", folder / "baked", "--yes", "--no-git"], check=True, capture_output=True
    )
    (folder / "baked").rename(made)
    files = [file.relative_to(made) for file in made.rglob("*") if file.is_file()]
    rendered = {
        f"{file.relative_to(TEMPLATE / 'project')}"[: -len(".jinja")]
        for file in (TEMPLATE / "project").rglob("*.jinja")
    }
    copied = [str(file) for file in files if str(file) not in rendered]
    for file in rendered.intersection(map(str, files)):
        text = (made / file).read_text()
        (made / file).write_text(text.replace("baked", name))
    settings = {"name": "project", "_copy_without_render": copied}
    (template / "cookiecutter.json").write_text(json.dumps(settings))
    return template


def ratios(samples: Samples) -> list[str]:
    """Return the lines of a Markdown table: the ratios of COMPARISONS."""
    lines = ["| ratio of medians | measured | bound |", "|---|---:|---:|"]
    for name, base, bound in COMPARISONS:
        ratio = statistics.median(samples[name]) / statistics.median(samples[base])
        limit = "" if bound is None else f"{bound:.1f}"
        lines.append(f"| {name} / {base} | {ratio:.2f} | {limit} |")
    return lines


if __name__ == "__main__":
    cpu_time.run("cli", __doc__, measure, ratios)
