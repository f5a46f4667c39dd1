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


@contextlib.contextmanager
def folder(beside: Path) -> Iterator[Path]:
    """Give an empty folder inside `beside`, on the same file system, and remove it at the end."""
    _sweep(beside)
    with contextlib.ExitStack() as at_the_end:
        with uninterrupted():  # between these two lines nobody would know of the folder
            staging = Path(tempfile.mkdtemp(prefix=PREFIX, dir=beside))
            at_the_end.callback(_remove, staging)
        at_the_end.enter_context(_locked(staging))
        content = staging / "content"
        content.mkdir()
        yield content


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold signals back for a moment that has to be finished; they are delivered after it."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _remove(staging: Path) -> None:
    with uninterrupted():
        shutil.rmtree(staging, ignore_errors=True)


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
        last = depth == len(parts)
        if not last and os.path.lexists(place):
            continue
        try:
            # Replaces an empty folder, and nothing else: rename(2).
            os.rename(content.joinpath(*parts[:depth]), place)
        except OSError as problem:
            if problem.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise
            if last or problem.errno == errno.ENOTDIR:
                raise Failure(f"{place} exists now: something else has made it") from None
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
