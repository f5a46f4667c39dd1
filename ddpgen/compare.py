"""A project beside what the template makes of its answers, as git shows a difference."""

import os
import shutil
from pathlib import Path

from ddpgen import git
from ddpgen.console import Failure
from ddpgen.template import closest
from ddpgen.work import Work

_SHOWN = ("--no-ext-diff", "--no-textconv", "--no-renames")


def with_pristine(work: Work, *, colour: bool) -> str:
    """Return what the owner has changed since the recorded version, added files included."""
    pristine = work.pristine(work.origin.commit, work.origin.answers)
    # An index of its own, with the pristine files in it, is what git compares the project with. Its
    # objects are not the project's.
    objects = work.place / "objects"
    objects.mkdir()
    real = git.text(work.folder, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    env = {
        "GIT_INDEX_FILE": str(work.place / "compare.index"),
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": real,
    }
    names = sorted(path.relative_to(pristine) for path in pristine.rglob("*") if path.is_file())
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
    added = _own_files(work.folder) - {str(name) for name in names}
    if added:
        add = ("add", "--force", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
        listed = "\0".join(sorted(added)).encode(errors="surrogateescape")
        literal = {**env, "GIT_LITERAL_PATHSPECS": "1"}
        git.run(work.folder, *add, stdin=listed, env=literal)
    shown = git.run(work.folder, "diff", *_SHOWN, _colour(colour), "--relative", "--", ".", env=env)
    return shown.decode(errors="surrogateescape")


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
        names = [str(path.relative_to(newest)) for path in newest.rglob("*") if path.is_file()]
        guess = closest(name, names)
        hint = f"did you mean {guess}?" if guess else f"one of {', '.join(sorted(names))}"
        raise Failure(f"the template has no file {name!r}", hint)
    beside = work.place / "beside"
    git.run(work.place, "init", "--quiet", "--template=", beside)
    place = beside / name
    place.parent.mkdir(parents=True, exist_ok=True)
    add = ("add", "--force", "--", name)
    mine = work.folder / name
    if mine.is_file():
        shutil.copy(mine, place)
        git.run(beside, *add, settings={"core.autocrlf": "input"})
    shutil.copy(theirs, place)
    if not mine.is_file():
        git.run(beside, "add", "--force", "--intent-to-add", "--", name)
    return git.run(beside, "diff", *_SHOWN, _colour(colour)).decode(errors="surrogateescape")


def _colour(colour: bool) -> str:
    return f"--color={'always' if colour else 'never'}"
