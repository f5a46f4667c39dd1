"""A project that waits for an update, and what is looked at when it has been updated."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from releases import OLD
from support import Result, commit, edit, git, snapshot

ANSWERS = ".copier-answers.yml"


def make_original(shelf: Path, folder: Path, env: Mapping[str, str]) -> Path:
    """Make `proj` with the oldest release, and change it as `assert_right` expects; return it.

    One of each: a conflict in a file, and in a file that the template removes, an added file and a
    removed one.
    """
    command = [str(shelf / OLD / "bin/ddpgen"), "new", "proj", "--yes"]
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    project = folder / "proj"
    edit(project / "long.py", "LINE_5 = 5\n", "LINE_5 = 'mine'\n")
    edit(project / "leftover.py", "LEFT = 1\n", "LEFT = 'mine'\n")
    (project / "naïve café.py").write_text("MINE = 1\n")
    git(project, "rm", "--quiet", "meter.py")
    commit(project)
    return project


def files_of(project: Path) -> dict[str, object]:
    """Return the files of a project with their permissions, without git's own."""
    return {
        name: (content, (project / name).lstat().st_mode)
        for name, content in snapshot(project).items()
        if name != ".git" and not name.startswith(".git/")
    }


def table(done: Result) -> dict[str, str]:
    """Return the verdict of each file of the table."""
    verdicts = ("updated", "added", "removed", "kept yours", "conflict")
    found = {}
    for line in done.out.splitlines():
        for verdict in verdicts:
            if line.startswith(f"  {verdict} "):
                found[line.removeprefix(f"  {verdict}").split()[0]] = verdict
    return found


def commands_of(done: Result, after: str) -> str:
    """Return the command that is printed after a line."""
    lines = done.out.splitlines()
    found = [number for number, line in enumerate(lines) if line.startswith(after)]
    return lines[found[0] + 1].strip()


def assert_right(done: Result, project: Path) -> None:
    """Check that the update has come out as it does where git is set to nothing."""
    assert done.code == 2, done
    assert done.err == ""
    text = (project / "long.py").read_text()
    assert text.count("<<<<<<< before updating") == 1
    assert "LINE_5 = 'mine'" in text
    assert "|||||||" not in text
    assert "LINE_30 = 3000" in text
    assert "LEFT = 'mine'" in (project / "leftover.py").read_text()
    assert 'NOTE = "new"' in (project / "notes.py").read_text()
    assert (project / "added.py").is_file()
    assert (project / "naïve café.py").read_text() == "MINE = 1\n"
    assert not (project / "meter.py").exists()
    assert not list(project.rglob("*.rej"))
    unmerged = git(project, "ls-files", "--unmerged").splitlines()
    assert [line.split()[-2:] for line in unmerged] == [
        ["1", "leftover.py"],
        ["2", "leftover.py"],
        ["1", "long.py"],
        ["2", "long.py"],
        ["3", "long.py"],
    ]
    assert not (project / ".git/ddpgen-update").exists()
    assert git(project, "worktree", "list").count("\n") == 0
