"""A project beside what the template makes of its answers, as git shows a difference."""

import os
import shutil
from pathlib import Path

from ddpgen import git, render
from ddpgen.console import Failure
from ddpgen.template import closest
from ddpgen.work import Work


def with_pristine(work: Work, *, colour: bool) -> str:
    """Return what the owner has changed since the recorded version, added files included."""
    pristine = work.pristine(work.origin.commit, work.origin.answers)
    # An index of its own, with the pristine files in it, is what git compares the project with. Its
    # objects are not the project's.
    objects = work.place / "objects"
    objects.mkdir()
    env = {
        "GIT_INDEX_FILE": str(work.place / "compare.index"),
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(work.repository.common_dir / "objects"),
    }
    names = render.files_in(pristine)
    paths = "\n".join(str(pristine / name) for name in names).encode()
    hashes = git.run(
        work.folder, "hash-object", "-w", "--no-filters", "--stdin-paths", stdin=paths, env=env
    )
    entries = [
        f"{'100755' if os.access(pristine / name, os.X_OK) else '100644'} {blob}\t"
        f"{work.repository.prefix}{name}\0"
        for name, blob in zip(names, hashes.decode().split(), strict=True)
    ]
    update = ("update-index", "-z", "--index-info")
    git.run(work.folder, *update, stdin="".join(entries).encode(), env=env)
    added = _own_files(work.folder) - set(names)
    where = ("--relative", "--", ".")
    return git.difference(work.folder, *where, colour=colour, new=added, env=env)


def _own_files(folder: Path) -> set[str]:
    """Return the files of a project: what git tracks, and what it does not ignore."""
    every = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = map(os.fsdecode, git.run(folder, *every).split(b"\0"))
    return {
        name for name in listed if name and not name.endswith("/") and (folder / name).is_file()
    }


def with_template(work: Work, name: str, *, colour: bool) -> str:
    """Return what would change if the owner took the template's newest version of a file."""
    newest = work.pristine(work.template.newest(), work.origin.answers)
    theirs = newest / name
    if not theirs.is_file() or Path(name).is_absolute() or ".." in Path(name).parts:
        names = render.files_in(newest)
        guess = closest(name, names)
        hint = f"did you mean {guess}?" if guess else f"one of {', '.join(names)}"
        raise Failure(f"the template has no file {name!r}", hint)
    beside = work.place / "beside"
    git.run(work.place, "init", "--quiet", "--template=", beside)
    place = beside / name
    place.parent.mkdir(parents=True, exist_ok=True)
    mine = work.folder / name
    if mine.is_file():
        shutil.copy(mine, place)
        git.run(beside, "add", "--force", "--", name, settings={"core.autocrlf": "input"})
    shutil.copy(theirs, place)
    return git.difference(beside, colour=colour, new=[] if mine.is_file() else [name])
