"""Many files changed as if at once: all of them, or none.

No file system replaces several files in one step. So everything is made ready beside: the new files
and a second name for each old one, and a journal that says what goes where. Then only renames are
left, less than a millisecond of them. They are done by a process of its own that no Ctrl-C and no
kill of the command reaches. Should it die too, in a crash of the machine, the journal is still
there, and the next command of ddpgen undoes what was begun.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_JOURNAL = "journal.json"


@dataclass(frozen=True)
class Step:
    """One path that changes. In the journal, paths stand relative to it: a project may be moved.

    Attributes:
        target: the path.
        new: the file that goes there; None when the path is removed.
        old: a second name of what is there; None when there is nothing.
        digest: of the new content, so that a later change by its owner is not undone; "" for none.
        locked: whether it is git's index, which git locks.
    """

    target: str
    new: str | None
    old: str | None
    digest: str
    locked: bool = False


def apply(
    place: Path,
    root: Path,
    writes: Mapping[str, Path],
    removals: Sequence[str],
    index: tuple[Path, Path] | None,
) -> None:
    """Change files of a folder, and git's index, all or none.

    Args:
        place: a folder for the journal.
        root: the folder with the files.
        writes: what goes where, by the path below `root`.
        removals: the paths that go away.
        index: a file, and the index of git that it replaces; None to leave that alone.

    Raises:
        OSError: it failed, and everything is as before.
    """
    steps = [_prepare(place, root / name, file) for name, file in writes.items()]
    steps += [_prepare(place, root / name, None) for name in removals]
    folders = _missing_folders(root, writes)
    if index is not None:
        steps.append(replace(_prepare(place, index[1], index[0]), locked=True))
    record = {
        "steps": [
            vars(_with_paths(step, lambda path: os.path.relpath(path, place))) for step in steps
        ],
        "folders": [os.path.relpath(folder, place) for folder in folders],
    }
    _write(place / _JOURNAL, json.dumps(record).encode())
    _in_a_process_of_its_own(place, steps, folders)
    for name in removals:
        for parent in (root / name).parents:
            if parent == root or not _remove_if_empty(parent):
                break


def is_open(place: Path) -> bool:
    """Say whether a journal in this folder tells of something that is begun and not done."""
    return (place / _JOURNAL).exists()


def recover(place: Path) -> None:
    """Undo what a journal in this folder says was begun; does nothing where there is none."""
    journal = place / _JOURNAL
    with contextlib.suppress(FileNotFoundError):
        record = json.loads(journal.read_bytes())
        steps = [_with_paths(Step(**it), lambda path: str(place / path)) for it in record["steps"]]
        _undo(steps, [str(place / folder) for folder in record["folders"]])
        journal.unlink()


def _with_paths(step: Step, change: Callable[[str], str]) -> Step:
    """Return a step with each of its paths changed."""
    new, old = (change(path) if path is not None else None for path in (step.new, step.old))
    return replace(step, target=change(step.target), new=new, old=old)


def _prepare(place: Path, target: Path, new: Path | None) -> Step:
    """Make a file ready on the disk, and a second name of the one that it replaces."""
    number = len(os.listdir(place))
    old = None
    if os.path.lexists(target):
        old = str(place / f"{number}.old")
        try:
            os.link(target, old, follow_symlinks=False)
        except OSError:  # another file system, or one without links
            shutil.copy2(target, old, follow_symlinks=False)
    if new is None:
        return Step(str(target), None, old, "")
    with new.open("rb") as stream:
        os.fsync(stream.fileno())
    ready = place / f"{number}.new"
    os.replace(new, ready)
    return Step(str(target), str(ready), old, _digest(ready))


def _missing_folders(root: Path, writes: Mapping[str, Path]) -> list[str]:
    """Return the folders that have to be made, outermost first."""
    found: dict[Path, None] = {}
    for name in writes:
        for parent in reversed((root / name).parents):
            if not parent.exists():
                found[parent] = None
    return list(map(str, found))


def _in_a_process_of_its_own(place: Path, steps: Sequence[Step], folders: Sequence[str]) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_IGN)
            _run(place, steps, folders)
            code = 0
        except OSError as problem:
            path = problem.filename2 or problem.filename
            os.write(writer, json.dumps([problem.errno, problem.strerror, path]).encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    if status:
        recover(place)
        raise OSError(*(json.loads(said) if said else (errno.EIO, "the writing process has ended")))


def _run(place: Path, steps: Sequence[Step], folders: Sequence[str]) -> None:
    try:
        for folder in folders:
            os.mkdir(folder)
        for step in steps:
            _do(step)
        (place / _JOURNAL).unlink()  # from here on it is done
    except OSError:
        recover(place)
        raise


def _do(step: Step) -> None:
    if step.new is None:
        os.unlink(step.target)
    elif step.locked:
        lock = f"{step.target}.lock"
        os.link(step.new, lock)  # fails when a git is at work, as git's own does
        os.rename(lock, step.target)
    else:
        _move(step.new, step.target)


def _move(file: str, target: str) -> None:
    try:
        os.replace(file, target)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
        beside = _beside(target)  # the git folder is on another file system
        shutil.copy2(file, beside, follow_symlinks=False)
        os.replace(beside, target)


def _beside(target: str) -> str:
    head, tail = os.path.split(target)
    return os.path.join(head, f".ddpgen-{tail}")


def _undo(steps: Sequence[Step], folders: Sequence[str]) -> None:
    for step in reversed(steps):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_beside(step.target))
        if step.locked:
            _unlock(step)
        if os.path.lexists(step.target) and _digest(Path(step.target)) != step.digest:
            continue  # not changed yet, or changed by its owner since
        if step.old is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(step.target)
        elif os.path.lexists(step.old):
            _move(step.old, step.target)
    for folder in reversed(folders):
        _remove_if_empty(Path(folder))


def _unlock(step: Step) -> None:
    """Remove a lock of git's index, but only the one that was made here."""
    lock = f"{step.target}.lock"
    with contextlib.suppress(FileNotFoundError):
        if step.new and os.path.samefile(lock, step.new):
            os.unlink(lock)


def _digest(file: Path) -> str:
    if file.is_symlink():
        return f"link to {file.readlink()}"
    if not file.is_file():
        return "no file"
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _write(file: Path, content: bytes) -> None:
    beside = file.with_suffix(".writing")
    with beside.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(beside, file)


def _remove_if_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
