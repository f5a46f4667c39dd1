"""A project on the disk: what it was made from, and the git repository that it is in."""

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

from ddpgen import answers, git, store
from ddpgen.console import Failure, UsageFailure
from ddpgen.template import ANSWERS_FILE, SOURCE_KEYS, Loader

_MARKER = re.compile(rb"^(?:<{7}|={7}|>{7}|\|{7})(?: |$)")
# What git leaves in its folder while something is under way, by the command that goes on with it.
_UNDER_WAY = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}


@dataclass(frozen=True)
class Origin:
    """What a project's answers file says.

    Attributes:
        source: the template: a path or an address.
        commit: the revision of the template, a tag for ours.
        answers: what was answered, by question.
        lines: the line of each answer in the file.
    """

    source: str
    commit: str
    answers: dict[str, object]
    lines: dict[str, int]


@dataclass(frozen=True)
class Repository:
    """The git repository of a project.

    Attributes:
        top: the folder that is checked out.
        git_dir: where git keeps what belongs to this checkout.
        common_dir: where it keeps what all checkouts share.
        prefix: the project's folder below `top`, such as "sub/myproj/", or "".
        object_format: "sha1" or "sha256".
    """

    top: Path
    git_dir: Path
    common_dir: Path
    prefix: str
    object_format: str


def read_origin(folder: Path) -> Origin:
    """Read where a project came from.

    Raises:
        Failure: it is no project, or its answers file is damaged; names the line and the repair.
    """
    file = folder / ANSWERS_FILE
    if not folder.is_dir():
        raise Failure(f"{folder} is not a folder", "ddpgen new makes a project")
    if file.is_symlink():  # writing it would write what may be another project's
        raise Failure(f"{file} is a link", "put the file itself there, and commit")
    if not file.exists():
        raise Failure(
            f"{folder} is no project of ddpgen: it has no {ANSWERS_FILE}", _where_instead(folder)
        )
    repair = f"git log -p -- {ANSWERS_FILE} shows what was in it; or delete it and run ddpgen adopt"
    try:
        text = file.read_bytes()
        for number, line in enumerate(text.splitlines(), start=1):
            if _MARKER.match(line):
                raise Failure(
                    f"{file}, line {number}: a conflict marker of git",
                    "keep one of the two sides, delete the markers, and commit",
                )
        root = answers.compose(file)
    except UsageFailure as problem:
        raise Failure(problem.message, repair) from None
    except OSError as problem:
        raise Failure(f"cannot read {file}: {problem.strerror}") from None
    if not isinstance(root, yaml.MappingNode):
        raise Failure(f"{file} holds no answers", repair)
    try:
        found = yaml.load(text, Loader=Loader)
    except (yaml.YAMLError, ValueError, TypeError):
        raise Failure(f"{file} is not a list of answers", repair) from None
    lines: dict[str, int] = {}
    for key, _ in root.value:
        name, line = str(key.value), key.start_mark.line + 1
        if lines.setdefault(name, line) != line:  # as after a merge that has kept both sides
            raise Failure(f"{file}, line {line}: {name} is given twice", f"keep one {name}")
    for key in SOURCE_KEYS:
        if not isinstance(found.get(key), str) or not found[key]:
            where = f"{file}, line {lines[key]}" if key in lines else str(file)
            raise Failure(f"{where}: {key} does not say where the project came from", repair)
    given = {str(name): value for name, value in found.items() if name not in SOURCE_KEYS}
    return Origin(found["_src_path"], found["_commit"], given, lines)


def in_the_way(root: Path, name: str) -> Path | None:
    """Return what is at a path below a folder, or keeps a file from being there.

    Args:
        root: a folder.
        name: a path below it. A link counts as what it is, wherever it leads.
    """
    path = root
    for part in Path(name).parts[:-1]:
        path /= part
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
            return path
    return root / name if os.path.lexists(root / name) else None


def _where_instead(folder: Path) -> str:
    """Return what to type where a folder is no project: perhaps it is inside of one."""
    for parent in Path(os.path.abspath(folder)).parents:
        if (parent / ANSWERS_FILE).exists():
            return f"cd {shlex.quote(str(parent))}, then the same command again"
    return "ddpgen new makes a project; ddpgen adopt links one that has lost this file"


def refuse_newer(origin: Origin) -> None:
    """Refuse a project of ddpgen's own template that this ddpgen cannot have made.

    Raises:
        Failure: its revision is later than this ddpgen's template, or is none at all.
    """
    recorded = store.order(origin.commit)
    if recorded is None:
        raise Failure(
            f"{ANSWERS_FILE}, line {origin.lines['_commit']}: {origin.commit!r} is no version of "
            "the template",
            "delete it and ddpgen adopt",
        )
    if recorded > (store.order(store.current()) or ()):
        raise Failure(
            f"the project was made by ddpgen {origin.commit}, and this one is {store.current()}",
            "python -m pip install --upgrade ddpgen",
        )


def locate(folder: Path) -> Repository:
    """Find the git repository of a project.

    Raises:
        Failure: there is none, or git refuses it.
    """
    asked = ("--show-toplevel", "--absolute-git-dir", "--show-object-format", "--show-prefix")
    common = ("--path-format=absolute", "--git-common-dir")
    try:
        told = git.text(folder, "rev-parse", *asked, *common).split("\n")
    except git.GitFailure as problem:
        if "not a git repository" not in problem.message:
            raise
        raise Failure(
            f"{folder} is not in a git repository, which is what makes an update safe",
            "git init && git add --all && git commit -m 'Before the update'",
        ) from None
    top, git_dir, object_format, prefix, common_dir = told
    return Repository(Path(top), Path(git_dir), Path(common_dir), prefix, object_format)


def under_way(git_dir: Path) -> str | None:
    """Return the command of git that waits to be continued, such as "merge"; None if none does."""
    return next((name for mark, name in _UNDER_WAY.items() if (git_dir / mark).exists()), None)


def refuse_unless_clean(folder: Path, repository: Repository) -> str:
    """Refuse a project with work that is not committed, so that nothing of it can be lost.

    Returns:
        the commit that is checked out.

    Raises:
        Failure: no commit yet, changes, untracked files, or a merge or the like under way; or git
            was told not to look at a file.
    """
    if command := under_way(repository.git_dir):
        raise Failure(
            f"a {command} is under way in {repository.top}",
            f"git {command} --continue or --abort, then the same command again",
        )
    head, dirt = _status(folder)
    if head == "(initial)":
        raise Failure(
            f"{repository.top} has no commit yet", "git add --all && git commit -m 'New project'"
        )
    if dirt:
        shown = ", ".join(dirt[:3]) + (", ..." if len(dirt) > 3 else "")
        raise Failure(
            f"{folder} has changes that are not committed: {shown}",
            "git commit or git stash --include-untracked, then the same command again",
        )
    tracked = _tracked(folder)
    hidden = [name for name, seen in tracked.items() if not seen and (folder / name).exists()]
    if hidden:
        raise Failure(
            f"{folder} has files that git was told not to look at: {', '.join(hidden)}",
            f"git update-index --no-skip-worktree {shlex.join(hidden)} && "
            f"git update-index --no-assume-unchanged {shlex.join(hidden)}, "
            "then git commit or git stash what is changed in them",
        )
    if ANSWERS_FILE not in tracked:
        raise Failure(
            f"git does not track {folder / ANSWERS_FILE}",
            f"git add --force {ANSWERS_FILE} && git commit -m 'Where the project came from'",
        )
    return head


def _tracked(folder: Path) -> dict[str, bool]:
    """Return the tracked files of a project, and whether git looks for changes in them."""
    listed = git.run(folder, "ls-files", "-v", "-z", "--", ".").split(b"\0")
    return {os.fsdecode(line[2:]): line[:1] == b"H" for line in listed if line}


def _status(folder: Path) -> tuple[str, list[str]]:
    """Return the commit that is checked out, and what is not as it is there."""
    status = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal")
    listed = git.run(folder, *status, "--no-renames", "--ignore-submodules=none", "--", ".")
    lines = [os.fsdecode(line) for line in listed.split(b"\0") if line]
    (head,) = (line.split()[-1] for line in lines if line.startswith("# branch.oid "))
    # The path is the last field: behind 1 space for "?", 8 for "1" and 10 for "u".
    fields = {"?": 1, "1": 8, "u": 10}
    return head, [line.split(" ", fields[line[0]])[-1] for line in lines if line[0] != "#"]
