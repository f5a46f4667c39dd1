"""The first commit of a project. Whatever the user's git is set to, it works or says why not."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ddpgen import __version__

# What `git rev-parse --local-env-vars` lists: set inside a hook, they point at another repository.
_LOCAL_VARIABLES = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_DIR",
        "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
    }
)  # fmt: skip

# A hook, a signature or a line-ending check of the user's is for their commits, not for this one.
_QUIET_SETTINGS = {
    "core.hooksPath": os.devnull,
    "commit.gpgSign": "false",
    "core.safecrlf": "false",
    "core.fsmonitor": "false",
    "gc.auto": "0",
}
_NOBODY = {"user.name": "ddpgen", "user.email": "ddpgen@localhost", "user.useConfigOnly": "false"}


def is_inside(folder: Path) -> bool:
    """Say whether a project in this folder would be inside a git repository already."""
    return any(_is_repository(place / ".git") for place in (folder, *folder.parents))


def _is_repository(dot_git: Path) -> bool:
    return dot_git.is_file() or (dot_git / "HEAD").exists()


def first_commit(folder: Path, files: Sequence[Path]) -> str | None:
    """Make the folder a repository and commit the files in it.

    Returns:
        None, or why there is no commit; the folder then has no repository either.
    """
    if shutil.which("git") is None:
        return "git is not installed, so the project has no repository; an update will need one"
    problem = _git(folder, "init", "--quiet")
    # --force: a global ignore file must not leave out a part of the project.
    problem = problem or _git(folder, "add", "--force", "--", *map(str, files))
    problem = problem or _commit(folder)
    if problem:
        shutil.rmtree(folder / ".git", ignore_errors=True)
        return f"the project has no repository, because git failed: {problem}"
    return None


def _commit(folder: Path) -> str | None:
    message = ("commit", "--quiet", "--message", f"New project by ddpgen {__version__}")
    if _git(folder, *message) is None:
        return None
    return _git(folder, *message, settings=_NOBODY)  # nobody has told git who they are


def _git(folder: Path, *arguments: str, settings: dict[str, str] | None = None) -> str | None:
    """Run git; return None, or the last line of what it said when it failed."""
    options = [f"{key}={value}" for key, value in {**_QUIET_SETTINGS, **(settings or {})}.items()]
    command = ["git", *(word for option in options for word in ("-c", option)), *arguments]
    kept = {name: value for name, value in os.environ.items() if name not in _LOCAL_VARIABLES}
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as problem:
        return str(problem)
    try:
        _, said = process.communicate()
    except BaseException:
        process.kill()
        process.wait()  # subprocess.run would not: git would still write into a removed folder
        raise
    if process.returncode == 0:
        return None
    return (said.strip() or f"exit code {process.returncode}").splitlines()[-1]
