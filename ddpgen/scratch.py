"""A place for the work on a project, inside of its git folder, where it shows up nowhere.

One process at a time has it. What a killed one has left is put right by the next one.
"""

import contextlib
import fcntl
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

from ddpgen import git, journal, staging
from ddpgen.console import Failure
from ddpgen.project import Repository

JOURNAL = "journal"
_NAME = "ddpgen-update"

# Copier reads what git prints and merges by it, so it has to print what it prints by default. What
# git does for large repositories costs more than it gives in the small ones that Copier makes.
_COPIER_SETTINGS = {
    "maintenance.auto": "false",
    "core.looseCompression": "0",
    "core.preloadIndex": "false",
    "index.threads": "1",
    "status.showUntrackedFiles": "normal",
    "merge.conflictStyle": "merge",
    "init.templateDir": "",
    "init.defaultBranch": "main",
    "core.quotePath": "true",
    "advice.defaultBranchName": "false",
}


@contextlib.contextmanager
def folder(repository: Repository) -> Iterator[Path]:
    """Give an empty folder in the git folder of a project, and remove it at the end.

    First it puts right what an earlier command, killed in the middle, has left. Signals are held
    back inside; what takes long belongs into `staging.interruptible`.

    Raises:
        Failure: another ddpgen is at work on this project.
    """
    place = repository.git_dir / _NAME
    with _locked(repository), staging.uninterrupted():
        recover(repository)
        try:
            place.mkdir()
            yield place
        finally:
            _remove(repository, place)


def recover(repository: Repository) -> None:
    """Undo what a killed command has begun."""
    place = repository.git_dir / _NAME
    if place.exists():
        journal.recover(place / JOURNAL)
        _remove(repository, place)


@contextlib.contextmanager
def _locked(repository: Repository) -> Iterator[None]:
    path = repository.git_dir / f"{_NAME}.lock"
    with path.open("w") as lock:  # for writing: NFS locks no file that is only read
        if not _hold(lock, path):
            raise Failure(
                f"another ddpgen is at work on {repository.top}", "wait until it has ended"
            )
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _hold(lock: TextIO, path: Path) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: whoever starts two at once is on their own
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    return False  # who held it has removed it just now


def _remove(repository: Repository, place: Path) -> None:
    if journal.is_open(place / JOURNAL):
        return  # it could not be undone now; the next command tries again
    shutil.rmtree(place, ignore_errors=True)
    # Not `git worktree prune`: that leaves what a `git worktree add` has locked and was killed in.
    for entry in (repository.common_dir / "worktrees").glob("*/gitdir"):
        with contextlib.suppress(OSError):
            if Path(entry.read_text().strip()).is_relative_to(place):
                shutil.rmtree(entry.parent, ignore_errors=True)
                entry.parent.parent.rmdir()  # the last one: git would remove it as well


@contextlib.contextmanager
def copier_environment(temporary: Path, more: Mapping[str, str]) -> Iterator[None]:
    """Give Copier an environment in which the user's git cannot surprise it.

    Args:
        temporary: a folder for the temporary files of Copier, so that they are removed with it.
        more: more variables.
    """
    from plumbum import local

    temporary.mkdir(exist_ok=True)
    variables = git.environment(_COPIER_SETTINGS)
    # Seen from the temporary files, the git folder around them would be a repository.
    ceiling = [str(temporary), os.environ.get("GIT_CEILING_DIRECTORIES", "")]
    variables |= {"GIT_CEILING_DIRECTORIES": ":".join(filter(None, ceiling))}
    variables |= {"TMPDIR": str(temporary), **more}
    before, before_temporary = dict(os.environ), tempfile.tempdir
    try:
        tempfile.tempdir = str(temporary)
        os.environ.clear()
        os.environ.update(variables)
        with local.env(), contextlib.redirect_stderr(io.StringIO()):
            local.env.clear()
            local.env.update(variables)
            yield
    finally:
        tempfile.tempdir = before_temporary
        os.environ.clear()
        os.environ.update(before)
