"""A temporary folder beside the target, and the one step that moves what is in it into place.

A process that is killed cannot tidy up. So each folder has a lock that the system drops when its
owner ends; the next `ddpgen new` beside it removes the folders that nobody holds.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ddpgen.console import Failure
from ddpgen.target import Target

PREFIX = ".ddpgen-"
_LOCK = "lock"
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextlib.contextmanager
def folder(beside: Path) -> Iterator[Path]:
    """Give an empty folder inside `beside`, on the same file system, and remove it at the end.

    Signals are held back inside, so that none can come between the lines that make and remove it.
    What takes long belongs into `interruptible`.
    """
    _sweep(beside)
    with uninterrupted():
        staging = Path(tempfile.mkdtemp(prefix=PREFIX, dir=beside))
        try:
            with _locked(staging):
                content = staging / "content"
                content.mkdir()
                yield content
        finally:
            shutil.rmtree(staging, ignore_errors=True)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold signals back; they are delivered at the end."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let signals through for a while, inside of what is uninterrupted."""
    held = signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def publish(content: Path, target: Target) -> None:
    """Move the project into place by one rename.

    `content` holds the path from the target's anchor on: the folders that are missing above the
    project come with it, so that they are never there without it.

    Raises:
        Failure: something else has appeared there in the meantime; it is left as it is.
    """
    parts = target.path.relative_to(target.anchor).parts
    for depth in range(1, len(parts) + 1):
        place = target.anchor.joinpath(*parts[:depth])
        try:
            # Replaces an empty folder, and nothing else: rename(2).
            os.rename(content.joinpath(*parts[:depth]), place)
        except OSError as problem:
            is_folder = problem.errno in {errno.ENOTEMPTY, errno.EEXIST}
            if is_folder and depth < len(parts):
                continue  # a parent that something else has made meanwhile
            if is_folder or problem.errno == errno.ENOTDIR:
                raise Failure(f"{place} exists now: something else has made it") from None
            raise
        else:
            return


@contextlib.contextmanager
def _locked(staging: Path) -> Iterator[None]:
    # Named `lock` only when it is held: a folder is never seen with a lock that is free by chance.
    with (staging / "new-lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass  # a file system without locks: the folder is not swept, should we be killed
        else:
            os.rename(lock.name, staging / _LOCK)
        yield


def _sweep(beside: Path) -> None:
    """Remove the folders of processes that are gone."""
    for stale in beside.glob(f"{PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), stale.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(stale.parent, ignore_errors=True)
