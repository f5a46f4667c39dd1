"""One makes a project with an old wheel; another, offline and with a new one, updates a clone."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from generated import ENVIRONMENT, launch, metrics
from releases import NEWEST, OLD, with_home
from support import Tool, commit, edit, git
from test_packaging import build
from updates import files_of, table


def install(checkout: Path, folder: Path, tool: Tool) -> Tool:
    """Build the wheel of a checkout, unpack it, and return its tool."""
    with zipfile.ZipFile(build("wheel", checkout, folder / "dist")) as wheel:
        for entry in wheel.infolist():
            path = Path(wheel.extract(entry, folder / "site"))
            path.chmod(0o755 if entry.external_attr >> 16 & 0o100 else 0o644)
    launcher = folder / "ddpgen"
    site = folder / "site"
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" -m ddpgen "$@"\n')
    launcher.chmod(0o755)
    return Tool(launcher, tool.cwd, tool.env)


def offline() -> list[str]:
    """Return a command that runs another one without a network interface, where that is allowed."""
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "-r", "--net"]
    done = subprocess.run([*unshare, "true"], capture_output=True, check=False)
    return unshare if done.returncode == 0 else []


def test_what_was_predicted_is_what_happens(tool: Tool, shelf: Path, tmp_path: Path) -> None:
    one = install(shelf / OLD, tmp_path / "one", tool)
    two = install(shelf / NEWEST, tmp_path / "two", with_home(tool, tmp_path / "other home"))
    assert one("new", "proj", "--yes").code == 0
    project = one.cwd / "proj"
    edit(project / "long.py", "LINE_5 = 5\n", "LINE_5 = 'mine'\n")  # the template's line too
    edit(project / "notes.py", '"""Notes."""', '"""My notes."""')  # another line
    git(project, "rm", "--quiet", "meter.py")
    (project / "mine.py").write_text("MINE = 1\n")
    edit(project / ".gitignore", "runs/\n", "runs/\nadded.py\n")  # the new template has it as well
    commit(project)
    clone = two.cwd / "clone"
    git(two.cwd, "clone", "--quiet", "proj", "clone")
    (clone / "added.py").write_text("a result\n")
    before = files_of(clone)

    predicted = two("update", "clone", "--dry-run", "--json", prefix=offline())
    assert predicted.code == 2, predicted.err
    assert files_of(clone) == before
    done = two("update", "clone", "--json", prefix=offline())
    assert done.code == 2, done.err
    report, forecast = json.loads(done.out), json.loads(predicted.out)
    assert report["files"] == forecast["files"]

    verdicts = {file["path"]: file["verdict"] for file in report["files"]}
    after = files_of(clone)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    kept = {name for name, verdict in verdicts.items() if verdict == "kept yours"}
    assert changed == set(verdicts) - kept
    assert kept == {"added.py", "model.py"}
    assert verdicts["long.py"] == "conflict"
    (conflict,) = [file for file in report["files"] if file["path"] == "long.py"]
    text = (clone / "long.py").read_text()
    marked = [n for n, line in enumerate(text.splitlines(), 1) if line.startswith("<<<<<<<")]
    assert conflict["lines"] == marked
    assert (clone / "added.py").read_text() == "a result\n"
    assert (clone / "mine.py").read_text() == "MINE = 1\n"
    assert not (clone / "meter.py").exists()
    assert (clone / "notes.py").read_text() == '"""My notes."""\n\nNOTE = "new"\n'
    assert git(clone, "diff", "--name-only", "--diff-filter=U") == "long.py"


def test_a_project_that_was_updated_trains_and_passes_its_tests(
    tool: Tool, shelf: Path, tmp_path: Path
) -> None:
    one = install(shelf / OLD, tmp_path / "one", tool)
    two = install(shelf / NEWEST, tmp_path / "two", tool)
    assert one("new", "proj", "--yes").code == 0
    project = one.cwd / "proj"
    done = two("update", "proj")
    assert done.code == 0, done.err
    assert table(done)["long.py"] == "updated"
    result = launch(project, "--epochs", "1", "--device", "cpu", env={"NPROC": "2"})
    assert result.code == 0, result.err
    assert metrics(project)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "tests/test_order.py"]
    tests = subprocess.run(
        command, cwd=project, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert tests.returncode == 0, tests.stdout
    assert re.search(r"\d+ passed", tests.stdout)


@pytest.mark.parametrize("version", [OLD, NEWEST])
def test_the_wheel_of_a_release_carries_its_history(
    shelf: Path, tmp_path: Path, version: str
) -> None:
    with zipfile.ZipFile(build("wheel", shelf / version, tmp_path)) as wheel:
        names = {name for name in wheel.namelist() if name.startswith("ddpgen/_history/")}
    records = {path.name for path in (shelf / version / "ddpgen/_history").iterdir()}
    assert names == {f"ddpgen/_history/{name}" for name in records}
