"""Checkouts of this repository with releases that only the tests know, and the tool of each.

What the template is now, is 100.0.0. The next ones change it as years of work would.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support import ROOT, Tool, edit

from ddpgen import store

OLD, NEW, NEWEST = "100.0.0", "100.1.0", "100.2.0"


def _old(template: Path) -> None:
    """Add what later releases change or remove."""
    project = template / "project"
    (project / "notes.py").write_text('"""Notes."""\n\nNOTE = "old"\n')
    (project / "leftover.py").write_text('"""Goes away in the next release."""\n\nLEFT = 1\n')
    lines = "".join(f"LINE_{number} = {number}\n" for number in range(40))
    (project / "long.py").write_text(f'"""A long file."""\n\n{lines}')


def _new(template: Path) -> None:
    """Change a line, add and remove a file, and move on with the owner's model.py."""
    project = template / "project"
    edit(project / "notes.py", "old", "new")
    edit(project / "long.py", "LINE_5 = 5\n", "LINE_5 = 500\n")
    (project / "leftover.py").unlink()
    (project / "added.py").write_text('"""New in this release."""\n\nADDED = 1\n')
    model = template / "presets/regression/model.py"
    model.write_text(model.read_text() + "\n# A later thought of the template.\n")


def _newest(template: Path) -> None:
    edit(template / "project/long.py", "LINE_30 = 30\n", "LINE_30 = 3000\n")


_STEPS: dict[str, Callable[[Path], None]] = {OLD: _old, NEW: _new, NEWEST: _newest}


def copy_checkout(checkout: Path, folder: Path) -> Path:
    """Copy a checkout, but not what a Python that runs there just now is compiling."""
    shutil.copytree(checkout, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def make_checkout(folder: Path) -> Path:
    """Copy what the tool is made of, as a fresh clone has it."""
    junk = shutil.ignore_patterns("__pycache__", "*.pyc", ".*_cache", "runs")
    for name in ("ddpgen", "template", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=junk)
    for name in ("CHANGELOG.md", "copier.yml", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, folder)
    return folder


def release(checkout: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Record the template of a checkout as `make release` does."""
    command = [sys.executable, str(checkout / "scripts/release.py"), version]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def make_releases(folder: Path) -> None:
    """Make one checkout for each release, each with the history of those before it."""
    earlier: Path | None = None
    for version, step in _STEPS.items():
        checkout = folder / version
        if earlier is None:
            make_checkout(checkout)
        else:
            copy_checkout(earlier, checkout)
        step(checkout / "template")
        done = release(checkout, version)
        assert done.returncode == 0, done.stderr
        write_launcher(checkout)
        earlier = checkout


def checkout_of(version: str, folder: Path) -> Path:
    """Make a checkout of this tool with the template and the history of a release of the past."""
    checkout = make_checkout(folder / version)
    shutil.rmtree(checkout / "template")
    for name, content in store.read_record(version).items():
        file = checkout / "template" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(int(store.mode(content), 8) & 0o777)
    recorded = store.releases()
    then = {it: recorded[it] for it in list(recorded)[: list(recorded).index(version) + 1]}
    (checkout / "ddpgen/_history/index.json").write_text(json.dumps(then))
    write_launcher(checkout)
    return checkout


def write_launcher(checkout: Path) -> Path:
    """Write a `ddpgen` that runs the tool of a checkout, and return it."""
    launcher = checkout / "bin/ddpgen"
    launcher.parent.mkdir(exist_ok=True)
    launcher.write_text(
        f'#!/bin/sh\nPYTHONPATH="{checkout}" exec "{sys.executable}" -m ddpgen "$@"\n'
    )
    launcher.chmod(0o755)
    return launcher


def at(tool: Tool, shelf: Path, version: str) -> Tool:
    """Return the tool of a release, in the same folder and with the same home."""
    return dataclasses.replace(tool, executable=shelf / version / "bin/ddpgen")


def with_home(tool: Tool, home: Path) -> Tool:
    """Return the tool on another machine: with a home of its own."""
    home.mkdir(exist_ok=True)
    return dataclasses.replace(tool, env={**tool.env, "HOME": os.fspath(home)})
