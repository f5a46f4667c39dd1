"""Whether something newer is there, told quickly: no git for ddpgen's own template, no Copier."""

import os
from pathlib import Path

from ddpgen import console, git, project, source, store
from ddpgen.project import Origin

BEHIND = 3


def report(folder: Path, version: str | None, *, as_json: bool) -> int:
    """Say whether a project is behind, and return the exit code: 0 when it is not, or else 3.

    Raises:
        Failure: it is no project, or was made by a later ddpgen.
    """
    origin = project.read_origin(Path(os.path.realpath(folder)))
    found = newest(origin, version)
    behind = found != origin.commit
    if as_json:
        console.json({"from": origin.commit, "to": found, "behind": behind})
    elif behind:
        console.out(f"{origin.commit} is behind {found}: ddpgen update")
    else:
        console.out(f"up to date: {found}")
    return BEHIND if behind else 0


def newest(origin: Origin, version: str | None) -> str:
    """Return the revision that an update to a version, or else to the newest, leads to.

    Raises:
        Failure: there is no such version, or the project was made by a later ddpgen.
    """
    if not source.is_ours(origin.source):
        return _newest_of_others(origin, version)
    project.refuse_newer(origin)
    wanted = store.current() if version is None else source.named(version, store.known())
    is_later = (store.order(origin.commit) or ()) > (store.order(wanted) or ())
    return origin.commit if is_later else wanted


def _newest_of_others(origin: Origin, version: str | None) -> str:
    """Ask the repository of another's template for its tags, or else for its branch."""
    address = source.address_of(origin.source)
    asked = ("ls-remote", "--", address, "HEAD", "refs/tags/*")
    listed = [line.split("\t") for line in git.text(Path.cwd(), *asked).splitlines()]
    tags = {name.removeprefix("refs/tags/"): commit for commit, name in listed if "^{}" not in name}
    highest = source.named(version, list(tags)) if version else source.highest(list(tags))
    if highest is not None:
        return highest
    head = tags.get("HEAD", "")
    recorded = origin.commit.rpartition("-g")[2]  # as in v1.0.0-3-g0123abc
    return origin.commit if head.startswith(recorded) else head[:7]
