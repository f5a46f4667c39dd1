"""CPU time of `ddpgen update` beside plain `copier update` on the same work, and of `--check`.

A project is made with an older template and updated to a later one, by each in turn. The older
template is made here from the present one, by changes to three of its files. CPU time is user +
system of the command and all its children, so that a busy machine does not distort it.

    python benchmarks/update.py [--rounds 15]
"""

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import cpu_time
from cpu_time import Samples

ROOT = Path(__file__).resolve().parent.parent
COMPARISONS = (("ddpgen update", "copier update", 1.0),)
_CHECK_BOUND = 0.1


def measure(folder: Path, rounds: int) -> Samples:
    """Update copies of one project by each command in turn."""
    home = folder / "home"  # without the settings of whoever runs this
    home.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(home)}
    old, new = make_checkouts(folder)
    project = folder / "original"
    run_ddpgen(old, environment, "new", str(project), "--yes")
    run_ddpgen(new, environment, "new", str(folder / "other"), "--yes")  # fills the store
    samples: Samples = {}
    for turn in range(rounds + 1):
        commands = {
            "ddpgen update": [sys.executable, "-m", "ddpgen", "update"],
            "copier update": [sys.executable, "-m", "copier", "update", "--defaults", "--quiet"],
            "ddpgen update --check": [sys.executable, "-m", "ddpgen", "update", "--check"],
        }
        for name, command in commands.items():
            copy = folder / "copy"
            shutil.copytree(project, copy, symlinks=True)
            subprocess.run(["git", "status"], cwd=copy, check=True, capture_output=True)
            accepted = {"PYTHONPATH": str(new)}
            behind = ["sh", "-c", '"$@"; test $? -eq 3', "sh", *command]
            started = behind if name.endswith("--check") else command
            inside = ["env", "--chdir", str(copy), *started]
            seconds = cpu_time.seconds(inside, {**environment, **accepted})
            shutil.rmtree(copy)
            if turn > 0:  # the first round only fills the caches
                samples.setdefault(name, []).append(seconds)
    return samples


def make_checkouts(folder: Path) -> tuple[Path, Path]:
    """Copy the tool twice, with two releases of which the second is later."""
    old, new = folder / "old", folder / "new"
    for name in ("ddpgen", "template", "scripts"):
        junk = shutil.ignore_patterns("__pycache__", ".*_cache", "runs")
        shutil.copytree(ROOT / name, old / name, ignore=junk)
    shutil.copy2(ROOT / "CHANGELOG.md", old)
    for checkout, version in ((old, "100.0.0"), (new, "100.1.0")):
        if checkout == new:
            shutil.copytree(old, new)
        for name in ("train.py", "config.py", "launch.py"):
            file = checkout / "template/project" / name
            file.write_text(f"{file.read_text()}\n# As of {version}.\n")
        command = [sys.executable, str(checkout / "scripts/release.py"), version]
        subprocess.run(command, check=True, capture_output=True)
    return old, new


def run_ddpgen(checkout: Path, environment: Mapping[str, str], *arguments: str) -> None:
    """Run the tool of a checkout."""
    command = [sys.executable, "-m", "ddpgen", *arguments]
    env = {**environment, "PYTHONPATH": str(checkout)}
    subprocess.run(command, cwd=checkout.parent, env=env, check=True, capture_output=True)


def bounds(samples: Samples) -> list[str]:
    """Return the lines of a Markdown table: what the project has set itself a bound for."""
    medians = {name: statistics.median(values) for name, values in samples.items()}
    lines = ["| | measured | bound |", "|---|---:|---:|"]
    for name, base, bound in COMPARISONS:
        lines.append(f"| {name} / {base} | {medians[name] / medians[base]:.2f} | {bound:.2f} |")
    check = "ddpgen update --check"
    lines.append(f"| {check}, ms | {1000 * medians[check]:.0f} | {1000 * _CHECK_BOUND:.0f} |")
    return lines


if __name__ == "__main__":
    cpu_time.run("update", __doc__, measure, bounds)
