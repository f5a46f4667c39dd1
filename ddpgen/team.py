"""A template of somebody else: fetched into a folder, at the revision that Copier would take."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ddpgen import config, git
from ddpgen.console import Failure, note
from ddpgen.render import Recipe
from ddpgen.source import address_of, open_template


@contextlib.contextmanager
def fetched(source: str, *, trust: bool) -> Iterator[Recipe]:
    """Give a template, without running anything of it.

    Args:
        source: a path, or an address that git can clone.
        trust: whether its tasks, migrations and extensions may run later.

    Raises:
        Failure: it cannot be had, or it would run something and is not trusted; lists what.
    """
    with tempfile.TemporaryDirectory(prefix="ddpgen-template-") as folder:
        recipe = _fetch(source, Path(folder), trust)
        if not trust:
            config.refuse_to_run(recipe.folder, source)
        yield recipe


def _fetch(source: str, folder: Path, trust: bool) -> Recipe:
    address = address_of(source)
    local = os.path.isdir(address)
    if local and not _is_repository(Path(address)):
        note(f"{source} is in no git repository, so the project cannot be updated from it")
        return Recipe(Path(address), address, "", trust)
    template = open_template(source, folder / "clone")
    revision = template.newest()
    if template.commit_of(revision) is None:
        raise Failure(f"the template {source} has no commit yet")
    commit = git.text(template.folder, "describe", "--tags", "--always", revision)
    # A path is recorded so that it can be followed from everywhere on this machine.
    recorded = address if local else source
    return Recipe(template.checkout(revision, folder / "files"), recorded, commit, trust)


def _is_repository(folder: Path) -> bool:
    return (folder / ".git").exists() or (folder / "HEAD").is_file()
