"""Add a project's files to a folder that holds files already; an error puts everything back."""

import contextlib
import filecmp
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ddpgen.console import Failure


@dataclass(frozen=True)
class Plan:
    """What would happen to each file, relative to the folder."""

    new: tuple[Path, ...]
    changed: tuple[Path, ...]


def plan(files: Iterable[Path], content: Path, folder: Path) -> Plan:
    """Compare rendered files with what the folder holds; touches nothing.

    Raises:
        Failure: a link, a file or a folder is in the way of a file.
    """
    new, changed = [], []
    for file in files:
        _refuse_obstacles(file, folder)
        if not (folder / file).exists():
            new.append(file)
        elif not filecmp.cmp(content / file, folder / file, shallow=False):
            changed.append(file)
    return Plan(tuple(new), tuple(changed))


def apply(chosen: Plan, content: Path, folder: Path, backup: Path) -> None:
    """Move the files into the folder; an error in the middle puts everything back.

    Args:
        chosen: which files; the others stay as they are.
        content: where the files are, on the file system of the folder.
        folder: where they go.
        backup: an empty folder for what is overwritten.
    """
    with contextlib.ExitStack() as undo:
        for file in (*chosen.new, *chosen.changed):
            for parent in reversed(file.parents):
                if not (folder / parent).exists():
                    (folder / parent).mkdir()
                    undo.callback(os.rmdir, folder / parent)
            if file in chosen.changed:
                saved = backup / file
                saved.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / file, saved)
                undo.callback(os.replace, saved, folder / file)
            os.replace(content / file, folder / file)
            if file in chosen.new:
                undo.callback(os.unlink, folder / file)
        undo.pop_all()


def _refuse_obstacles(file: Path, folder: Path) -> None:
    for part in (*reversed(file.parents), file):
        place = folder / part
        if part != Path() and place.is_symlink():
            raise Failure(f"{place} is a link; writing there could change a file elsewhere",
                          "move the link away")  # fmt: skip
        if part != file and place.exists() and not place.is_dir():
            raise Failure(f"{place} is a file, and the project needs a folder there",
                          "move the file away")  # fmt: skip
    if (folder / file).is_dir():
        raise Failure(f"{folder / file} is a folder, and the project needs a file there",
                      "move the folder away")  # fmt: skip
