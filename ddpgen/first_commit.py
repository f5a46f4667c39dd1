"""The first commit of a project. Whatever the user's git is set to, it works or says why not."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from ddpgen import __version__, git

_NOBODY = {"user.name": "ddpgen", "user.email": "ddpgen@localhost", "user.useConfigOnly": "false"}


def is_inside(folder: Path) -> bool:
    """Say whether a project in this folder would be inside a git repository already."""
    return any(_is_repository(place / ".git") for place in (folder, *folder.parents))


def _is_repository(dot_git: Path) -> bool:
    return dot_git.is_file() or (dot_git / "HEAD").exists()


def make(folder: Path, files: Sequence[Path]) -> str | None:
    """Make the folder a repository and commit the files in it.

    Returns:
        None, or why there is no commit; the folder then has no repository either.
    """
    if shutil.which("git") is None:
        return "git is not installed, so the project has no repository; an update will need one"
    try:
        git.run(folder, "init", "--quiet")
        # --force: a global ignore file must not leave out a part of the project.
        git.run(folder, "add", "--force", "--", *files)
        _commit(folder)
    except git.GitFailure as problem:
        shutil.rmtree(folder / ".git", ignore_errors=True)
        why = problem.message.removeprefix("git: ")
        return f"the project has no repository, because git failed: {why}"
    return None


def _commit(folder: Path) -> None:
    message = ("commit", "--quiet", "--message", f"New project by ddpgen {__version__}")
    try:
        git.run(folder, *message)
    except git.GitFailure:
        git.run(folder, *message, settings=_NOBODY)  # nobody has told git who they are
