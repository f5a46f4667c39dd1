"""Where a template comes from: the bundle of ddpgen's own, or a git repository of somebody else."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpgen import git, store
from ddpgen.console import Failure
from ddpgen.template import SOURCE, template_dir

_SHORT = {"gh:": "https://github.com/", "gl:": "https://gitlab.com/"}


@dataclass(frozen=True)
class Template:
    """A template that is at hand as a git repository.

    Attributes:
        source: what a project records of it.
        folder: a clone of it; nothing is checked out there.
        ours: whether it is the one that ddpgen carries.
    """

    source: str
    folder: Path
    ours: bool

    def commit_of(self, revision: str) -> str | None:
        """Return the commit of a tag or the like, or None when there is no such thing."""
        if revision.startswith("-"):
            return None
        try:
            wanted = f"{revision}^{{commit}}"
            return git.text(self.folder, "rev-parse", "--verify", "--quiet", wanted)
        except git.GitFailure:
            return None

    def checkout(self, revision: str, destination: Path) -> Path:
        """Write the files of a revision into a new folder and return it."""
        destination.mkdir(parents=True)
        index = {"GIT_INDEX_FILE": f"{destination}.index"}
        where = ("--git-dir", self.folder / ".git", "--work-tree", destination)
        git.run(destination, *where, "read-tree", revision, env=index)
        git.run(destination, *where, "checkout-index", "--all", "--quiet", env=index)
        return destination

    def checkout_once(self, revision: str, place: Path) -> Path:
        """Return a folder with the files of a revision, below a place for the work."""
        if self.ours and revision == store.current():
            return template_dir()
        folder = place / "template-at" / revision.replace("/", "-")
        return folder if folder.exists() else self.checkout(revision, folder)

    def newest(self) -> str:
        """Return the revision that an update goes to when nobody says which.

        For ours it is the one that this ddpgen carries; for others it is what Copier would take:
        the highest release among the tags, or else the branch that a clone gets.
        """
        if self.ours:
            return store.current()
        return highest(git.text(self.folder, "tag").split()) or self.commit_of("HEAD") or "HEAD"

    def named(self, version: str) -> str:
        """Return the revision that somebody has typed, with or without a leading v.

        Raises:
            Failure: there is none; lists those that there are.
        """
        if self.ours:
            return named(version, store.known())
        if self.commit_of(version):  # a branch or a commit
            return version
        return named(version, git.text(self.folder, "tag").split())


def named(version: str, tags: Sequence[str]) -> str:
    """Return the tag that somebody has typed, with or without a leading v.

    Raises:
        Failure: there is none; lists those that there are.
    """
    for tag in (version, f"v{version}"):
        if tag in tags:
            return tag
    raise Failure(f"the template has no version {version!r}", f"one of {', '.join(tags)}")


def is_ours(source: str) -> bool:
    """Say whether a recorded source is the template that ddpgen carries."""
    return source == SOURCE or os.path.expanduser(source) == os.path.expanduser(SOURCE)


def open_template(source: str, folder: Path) -> Template:
    """Clone a template into a new folder.

    Raises:
        Failure: it cannot be had; for another's template, names the source.
    """
    if is_ours(source):
        return _open_ours(folder)
    address = address_of(source)
    try:
        git.run(folder.parent, "clone", "--quiet", "--no-checkout", "--", address, folder)
    except git.GitFailure as problem:
        raise Failure(
            f"cannot get the template {source}: {problem.message}", problem.hint
        ) from None
    return Template(source, folder, ours=False)


def _open_ours(folder: Path) -> Template:
    clone = ("clone", "--quiet", "--no-checkout", "--template=")
    try:
        try:
            git.run(folder.parent, *clone, store.ensure(), folder)
        except git.GitFailure:  # the bundle is damaged: it is made of what is in this package
            git.run(folder.parent, *clone, store.ensure(afresh=True), folder)
    except (OSError, Failure):  # no home folder, or one that cannot be written
        place = folder.with_name("bundle")
        place.mkdir()
        git.run(folder.parent, *clone, store.build(place), folder)
    return Template(SOURCE, folder, ours=True)


def address_of(source: str) -> str:
    """Return what git clones for a source in Copier's spelling."""
    for short, full in _SHORT.items():
        if source.startswith(short):
            return f"{full}{source.removeprefix(short)}.git"
    address = source.removeprefix("git+")
    if re.match(r"[\w+.-]+://|[\w.-]+@[\w.-]+:", address):
        return address
    path = Path(os.path.expanduser(address))  # leaves a ~ that stands for nobody's home
    if not address or not path.exists():
        raise Failure(
            f"the template {source or repr(source)} is not there",
            f"it is looked for from {os.getcwd()}; give a path that leads to it from there",
        )
    return str(path.resolve())


def highest(tags: list[str]) -> str | None:
    """Return the tag of the highest release; prereleases are for those who name them."""
    return max(_releases(tags), default=(None, None))[1]


def _releases(tags: list[str]) -> Iterator[tuple[object, str]]:
    from packaging.version import InvalidVersion, Version

    for tag in tags:
        try:
            version = Version(tag)
        except InvalidVersion:
            continue
        if not version.is_prerelease:
            yield version, tag
