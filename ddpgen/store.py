"""The template's releases: records inside the package, and the bundle that Copier updates from.

A project records `SOURCE`, a path that is the same text on every machine. The bundle there is made
from the records: the same release is the same commit everywhere, with no network and no clone of
this repository. A template that is no release, as in a checkout that is being worked on, is a
development snapshot, which only the bundle of this machine has.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ddpgen import git, staging
from ddpgen.console import Failure
from ddpgen.template import SOURCE, belongs, template_dir

HISTORY = Path(__file__).resolve().parent / "_history"
_INDEX = "index.json"

# v0.1.0, or a snapshot between that release and the next: v0.1.0.post2+g<ten digits of its digest>.
_TAG = re.compile(r"v(\d+(?:\.\d+)*)(?:\.post(\d+)\+g[0-9a-f]{10})?")
_BEFORE_ALL = "0.0.0"

# Fixed, so that a commit has the same name everywhere; a second apart, so that they have an order.
_FIRST_SECOND = 1_700_000_000
_AUTHOR = "ddpgen <ddpgen@localhost>"

Tree = Mapping[str, bytes]


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a template by path; what trying it leaves there is no part of it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if belongs(relative) and path.is_file():
            found[relative.as_posix()] = path.read_bytes()
    return found


def mode(content: bytes) -> str:
    """Return git's mode of a file: what starts with #! is executable, whatever the disk says."""
    return "100755" if content.startswith(b"#!") else "100644"


def digest(tree: Tree) -> str:
    """Return a name of a template's content."""
    lines = (
        f"{mode(content)} {hashlib.sha256(content).hexdigest()} {path}\n"
        for path, content in sorted(tree.items())
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def releases(history: Path = HISTORY) -> dict[str, str]:
    """Return the digest of each recorded release by its version, oldest first."""
    file = history / _INDEX
    recorded: dict[str, str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return recorded


def read_record(version: str, history: Path = HISTORY) -> dict[str, bytes]:
    """Return the files of a recorded release by their path."""
    import zipfile  # a third of the time of `ddpgen --help`

    with zipfile.ZipFile(history / f"{version}.zip") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def order(tag: str) -> tuple[tuple[int, ...], int] | None:
    """Return what sorts tags from old to new, or None for a tag that is none of ours."""
    found = _TAG.fullmatch(tag)
    if not found:
        return None
    return tuple(map(int, found[1].split("."))), int(found[2] or 0)


@functools.cache
def current() -> str:
    """Return the tag of the template that this ddpgen carries."""
    name = digest(read_tree(template_dir()))
    recorded = releases()
    for version, recorded_digest in recorded.items():
        if name == recorded_digest:
            return f"v{version}"
    last = next(reversed(recorded), _BEFORE_ALL)
    return _snapshot_tag(last, name[:10], tags())


def _snapshot_tag(last: str, name: str, known: Iterable[str]) -> str:
    """Return the tag of a snapshot: the one that it has already, or one after all others."""
    siblings = {tag: order(tag) for tag in known if tag.startswith(f"v{last}.post")}
    for tag in siblings:
        if tag.endswith(f"+g{name}"):
            return tag
    newest = max((place[1] for place in siblings.values() if place), default=0)
    return f"v{last}.post{newest + 1}+g{name}"


def bundle() -> Path:
    """Return where the bundle is on this machine, or will be.

    Raises:
        Failure: nobody knows where the home folder is.
    """
    try:
        return Path(SOURCE).expanduser()
    except RuntimeError:
        raise Failure("there is no home folder: HOME is not set", "export HOME=...") from None


def tags() -> set[str]:
    """Return the tags in the bundle. They stand in its header as text, so this needs no git."""
    found = set()
    with contextlib.suppress(OSError, Failure), bundle().open("rb") as stream:
        for line in iter(stream.readline, b"\n"):
            _, _, reference = line.decode(errors="replace").rstrip("\n").partition(" refs/tags/")
            if not line.startswith((b"#", b"-")) and not reference:
                break  # no bundle, or a damaged one
            if reference:
                found.add(reference)
    return found


def ensure(*, afresh: bool = False) -> Path:
    """Bring what this ddpgen knows into the bundle, and return where that is.

    What another ddpgen has put there stays.

    Args:
        afresh: whether to make it from nothing, because the one that is there is damaged.

    Raises:
        Failure: git is missing or failed, or there is no home folder.
        OSError: the folder cannot be written.
    """
    place = bundle()
    if afresh or not set(known()) <= tags():
        place.parent.mkdir(parents=True, exist_ok=True)
        with staging.folder(beside=place.parent) as scratch:
            with staging.interruptible():
                made = build(scratch, None if afresh else place)
            os.replace(made, place)
    return place


def known() -> list[str]:
    """Return the tags of what this ddpgen carries: the releases, and its template."""
    recorded = [f"v{version}" for version in releases()]
    return recorded if current() in recorded else [*recorded, current()]


# The names of commits must not depend on how git is set up here.
_PLAIN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_DEFAULT_HASH": "sha1"}
# Nor the bytes of the bundle: threads would find other deltas each time.
_STEADY = {"pack.threads": "1"}


def build(scratch: Path, existing: Path | None = None) -> Path:
    """Make a bundle of what this ddpgen knows and what another bundle has.

    Raises:
        GitFailure: git is missing or failed.
    """
    repository, made = scratch / "repository", scratch / "template.bundle"
    git.run(scratch, "init", "--quiet", "--bare", "--template=", repository, env=_PLAIN)
    if existing is not None and existing.exists():
        with contextlib.suppress(git.GitFailure):  # damaged: what is not recorded here is lost
            git.run(repository, "fetch", "--quiet", existing, "refs/tags/*:refs/tags/*", env=_PLAIN)
    git.run(repository, "fast-import", "--quiet", "--force", stdin=_stream(), env=_PLAIN)
    create = ("bundle", "create", "--quiet", made, "--tags")
    git.run(repository, *create, settings=_STEADY, env=_PLAIN)
    return made


def _stream() -> bytes:
    """Return what `git fast-import` makes the commits of: every release, and this template."""
    commits = [(f"v{version}", read_record(version)) for version in releases()]
    if current() not in dict(commits):
        commits.append((current(), read_tree(template_dir())))
    parts: list[bytes] = []
    for number, (tag, tree) in enumerate(commits, start=1):
        signature = f"{_AUTHOR} {_FIRST_SECOND + number} +0000"
        message = f"Template {tag}".encode()
        head = f"commit refs/tags/{tag}\nmark :{number}\ncommitter {signature}\n"
        parts += [head.encode(), b"data %d\n%b\n" % (len(message), message)]
        parts += [b"from :%d\n" % (number - 1) if number > 1 else b"", b"deleteall\n"]
        for path, content in sorted(tree.items()):
            quoted = json.dumps(path, ensure_ascii=False)
            parts.append(f"M {mode(content)} inline {quoted}\n".encode())
            parts.append(b"data %d\n%b\n" % (len(content), content))
    return b"".join(parts)
