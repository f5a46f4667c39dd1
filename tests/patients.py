"""A project that is examined by `ddpgen doctor`, and ways to make it or its machine ill."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generated import DATA
from support import Tool, commit, edit, git

CALM = {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Report:
    """What `ddpgen doctor --json` says.

    Attributes:
        code: the exit code.
        whole: all of it.
    """

    code: int
    whole: dict[str, Any]

    def row(self, check: str) -> dict[str, str]:
        """Return the finding of a check; it has "status", "found" and "remedy"."""
        (found,) = [row for row in self.whole["findings"] if row["check"] == check]
        return dict(found)

    def rows(self, status: str) -> list[str]:
        """Return the checks of a status."""
        return [row["check"] for row in self.whole["findings"] if row["status"] == status]


def make_project(tool: Tool) -> None:
    """Make `proj`, committed, with small data that needs no import of scikit-learn."""
    made = tool("new", "proj", "--yes", "--no-git")
    assert made.code == 0, made.err
    project = tool.cwd / "proj"
    (project / "data.py").write_text(DATA.replace("SAMPLES", "64"))
    git(project, "init", "--quiet")
    commit(project)


class Patient:
    """A project that may be examined.

    Attributes:
        folder: where it is.
        tool: the tool, started in the folder above it.
    """

    def __init__(self, tool: Tool, folder: Path) -> None:
        """Take a project that is there."""
        self.tool = tool
        self.folder = folder

    def commit(self) -> None:
        """Commit all that there is."""
        commit(self.folder)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that a file has once."""
        edit(self.folder / name, old, new)

    def append(self, name: str, text: str) -> None:
        """Add lines to a file."""
        with (self.folder / name).open("a") as file:
            file.write(f"\n{text}\n")

    def command(self, *options: str) -> list[str]:
        """Return the command line of an examination with such options."""
        return [str(self.tool.executable), "doctor", str(self.folder), *options]

    def examine(
        self, *options: str, prefix: Sequence[str] = (), env: dict[str, str] | None = None
    ) -> Report:
        """Examine it.

        Args:
            options: of the doctor.
            prefix: a command that runs the doctor, such as unshare.
            env: variables on top of a calm environment.
        """
        done = subprocess.run(
            [*prefix, *self.command("--json", *options)],
            cwd=self.tool.cwd,
            env={**self.tool.env, **CALM, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.stderr == "", done.stderr
        return Report(done.returncode, json.loads(done.stdout))

    def quick(self, **arguments: Any) -> Report:
        """Look at the machine and the software only."""
        return self.examine("--quick", **arguments)


def in_namespace(script: str, *kinds: str) -> list[str]:
    """Return a command that runs another one where a script has changed the machine, only there.

    Args:
        script: of the shell, such as a mount.
        kinds: what is its own there: "mount", "uts", "net".
    """
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    options = [f"--{kind}" for kind in kinds]
    return ["unshare", *root, *options, "sh", "-c", f'{script}\nexec "$@"', "sh"]


def processes_with(mark: str) -> list[int]:
    """Return the processes that have a text in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
