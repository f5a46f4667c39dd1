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
    newest = _newest(origin, version)
    behind = newest != origin.commit
    if as_json:
        console.json({"from": origin.commit, "to": newest, "behind": behind})
    elif behind:
        console.out(f"{origin.commit} is behind {newest}: ddpgen update")
    else:
        console.out(f"up to date: {newest}")
    return BEHIND if behind else 0


def _newest(origin: Origin, version: str | None) -> str:
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
    newest = source.named(version, list(tags)) if version else source.highest(list(tags))
    if newest is not None:
        return newest
    head = tags.get("HEAD", "")
    recorded = origin.commit.rpartition("-g")[2]  # as in v1.0.0-3-g0123abc
    return origin.commit if head.startswith(recorded) else head[:7]
