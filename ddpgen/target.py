"""The place that PATH names: what is there now, and whether a project may be put there."""

import os
from dataclasses import dataclass
from pathlib import Path

from ddpgen.console import Failure, UsageFailure


@dataclass(frozen=True)
class Target:
    """Where a project goes.

    Attributes:
        name: the last component as it was typed.
        path: absolute, with a link at its end resolved.
        anchor: the folder that is there already: the nearest ancestor of `path`.
        exists: whether `path` is a folder already.
        entries: what that folder holds, sorted.
    """

    name: str
    path: Path
    anchor: Path
    exists: bool
    entries: tuple[str, ...]


def name_of(typed: str) -> str:
    """Return the last part of the path: what the folder, and so the project, is called.

    Raises:
        Failure: the path ends in no name of its own.
    """
    name = os.path.basename(typed.rstrip("/"))
    if name in {"", ".", ".."}:
        raise UsageFailure(f"{typed!r} does not end in the name of a project", "ddpgen new myproj")
    return name


def inspect(typed: str) -> Target:
    """Look at the place that was typed, without touching it.

    Raises:
        Failure: no folder can be there: it is a file, a dangling link, below a file, or unreadable.
    """
    name = name_of(typed)
    path = Path(os.path.abspath(typed))
    if path.is_symlink():
        if not path.exists():
            raise Failure(f"{typed} is a link that leads nowhere", _another(typed))
        path = path.resolve()
    if not os.path.lexists(path):
        return Target(name, path, _anchor(path), exists=False, entries=())
    if not path.is_dir():
        raise Failure(f"{typed} exists and is a file", _another(typed))
    return Target(name, path, path.parent, exists=True, entries=tuple(sorted(os.listdir(path))))


def refuse_unless_empty(target: Target, typed: str) -> None:
    """Refuse a folder that holds something; nothing of it may be lost.

    Raises:
        Failure: the folder is not empty; names three things in it.
    """
    if target.entries:
        shown = ", ".join(target.entries[:3]) + (", ..." if len(target.entries) > 3 else "")
        raise Failure(
            f"{typed} exists and is not empty (it has {shown})",
            f"{_another(typed)}, or --force to add the files that are missing",
        )


def refuse_unless_writable(folder: Path) -> None:
    """Refuse a folder where nothing can be made, before anybody is asked anything.

    Raises:
        Failure: no permission, or a file system that is mounted read-only.
    """
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Failure(f"cannot write to {folder}", "choose a folder of your own")


def _anchor(path: Path) -> Path:
    for ancestor in path.parents:
        if os.path.lexists(ancestor):
            if not ancestor.is_dir():
                raise Failure(f"{ancestor} is not a folder, so nothing can be made in it")
            return ancestor
    return Path("/")


def _another(typed: str) -> str:
    return f"choose another path, such as {typed.rstrip('/')}2"
