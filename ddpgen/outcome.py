"""What an update has done in the worktree, file by file, and what of it goes into the project."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import yaml

from ddpgen import config, git, project
from ddpgen.template import ANSWERS_FILE, SOURCE_KEYS, Loader, Question
from ddpgen.work import Work

Verdict = Literal["updated", "added", "removed", "kept yours", "conflict"]
_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # conflicts last: next to the prompt
_HUNK = re.compile(rb"@@ -\d+(?:,\d+)? \+(\d+)")


@dataclass(frozen=True)
class Change:
    """What happens to one file, and where in it somebody has to decide.

    Attributes:
        path: relative to the project.
        verdict: what happens.
        lines: the first line of each conflict.
        why: more about it, or "".
    """

    path: str
    verdict: Verdict
    lines: tuple[int, ...] = ()
    why: str = ""


@dataclass
class Outcome:
    """What happens to the files.

    Attributes:
        revision: of the template that the update leads to.
        changes: by path.
        writes: the files that are copied into the project.
        removals: the files that go away.
        ignored: the files that are new, and that git ignores.
        unmerged: for `git update-index -z --index-info`: the versions of each file in conflict.
        notes: what else has to be said.
    """

    revision: str
    changes: dict[str, Change] = field(default_factory=dict)
    writes: set[str] = field(default_factory=set)
    removals: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    unmerged: bytes = b""
    notes: list[str] = field(default_factory=list)

    def sorted(self) -> list[Change]:
        """Return the changes in the order in which they are told."""
        return sorted(self.changes.values(), key=lambda it: (_VERDICTS.index(it.verdict), it.path))

    @property
    def conflicts(self) -> list[Change]:
        """The files in which somebody has to decide."""
        return [change for change in self.sorted() if change.verdict == "conflict"]

    @property
    def added(self) -> list[str]:
        """The files that are new in the project."""
        return [name for name in self.writes if self.changes[name].verdict == "added"]

    def add(self, path: str, verdict: Verdict, why: str = "", lines: Iterable[int] = ()) -> None:
        """Note what happens to a file."""
        self.changes[path] = Change(path, verdict, tuple(lines), why)


def read(work: Work, tree: Path, revision: str, given: Mapping[str, object]) -> Outcome:
    """Look at what Copier has done.

    Args:
        work: the project.
        tree: the project's folder in the worktree; what the project keeps is put back in it.
        revision: of the template that the update leads to.
        given: the answers that somebody has changed.
    """
    found = Outcome(revision)
    states = _states(work, tree)
    deleted = [name for name, state in states.items() if state == " D"]
    for name, state in states.items():
        if state in {"??", "!!"}:
            _read_added(work, tree, name, found)
            if state == "!!" and name in found.writes and not name.endswith(".rej"):
                found.ignored.append(name)
        elif state == " D":
            continue
        elif "U" in state or state in {"AA", "DD"}:
            found.writes.add(name)
            found.add(name, "conflict", "", _marked_lines(tree / name))
        else:
            found.writes.add(name)
            found.add(name, "updated")
    _read_rejected(tree, deleted, found)
    if found.conflicts:
        found.unmerged = _index_info(git.run(tree, "ls-files", "--unmerged", "-z", "--full-name"))
    _read_deleted(work, tree, deleted, found)
    _read_answers(work, tree, given, found)
    _read_owned(work, found)
    return found


def _states(work: Work, tree: Path) -> dict[str, str]:
    """Return git's two letters for each file of the project that is not as it was."""
    status = ("status", "--porcelain", "-z", "--untracked-files=all", "--ignored", "--no-renames")
    listed = git.run(tree, *status, "--", ".")
    prefix = len(os.fsencode(work.repository.prefix))
    states = {
        os.fsdecode(entry[3 + prefix :]): entry[:2].decode()
        for entry in listed.split(b"\0")
        if entry and not entry.endswith(b"/")
    }
    # Where git turns line ends, status takes each file of another size for a changed one.
    differ = ("diff", "--name-only", "-z", "--no-ext-diff", "--no-renames", "--relative", "--", ".")
    looked = {"diff.autoRefreshIndex": "true"}
    changed = set(map(os.fsdecode, git.run(tree, *differ, settings=looked).split(b"\0")))
    return {name: it for name, it in states.items() if it != " M" or name in changed}


def _read_added(work: Work, tree: Path, name: str, found: Outcome) -> None:
    real = project.in_the_way(work.folder, name)
    if real is not None:  # git ignores it, so git could not bring it back
        if real != work.folder / name:
            mine = real.relative_to(work.folder)
            found.add(name, "kept yours", f"git ignores {mine}, which is in its place")
        elif not (real.is_file() and real.read_bytes() == (tree / name).read_bytes()):
            found.add(name, "kept yours", "git ignores it; the template has a file of that name")
        (tree / name).unlink()
    elif work.template.ours and name in _owned(work, work.origin.commit):
        found.add(name, "kept yours", "you have deleted it")
        (tree / name).unlink()
    else:
        found.writes.add(name)
        found.add(name, "added")


def _owned(work: Work, revision: str) -> list[str]:
    """Return the files that belong to the owner once they exist."""
    settings = config.read(work.files_of(revision))
    return [name for name in settings.get("_skip_if_exists", []) if not set("*?[{!") & set(name)]


def _read_rejected(tree: Path, deleted: list[str], found: Outcome) -> None:
    """Tell of each .rej file together with the file that it belongs to."""
    for name in list(found.writes):
        base = name.removesuffix(".rej")
        if base == name or found.changes[name].verdict != "added":
            continue
        if base in deleted:  # the whole file is kept, so its hunks are of no use
            found.writes.remove(name)
            del found.changes[name]
            (tree / name).unlink()
        if not (tree / base).exists():
            continue
        hunks = _HUNK.findall((tree / name).read_bytes())
        del found.changes[name]
        found.add(base, "conflict", f"what did not fit is in {name}", map(int, hunks))
        found.add(name, "added", "to be deleted once it is dealt with")
        found.writes.add(base)


def _read_deleted(work: Work, tree: Path, deleted: list[str], found: Outcome) -> None:
    """Let files go that the template no longer has, but none that its owner has changed."""
    if not deleted:
        return
    git.run(tree, "checkout", "--", *deleted)
    untouched = _verbatim(work, tree, deleted)
    rest = [name for name in deleted if name not in untouched]
    old = work.pristine(work.origin.commit, work.origin.answers, only=rest) if rest else None
    for name in deleted:
        base = old / name if old else tree
        if name in untouched or (
            base.is_file() and base.read_bytes() == (tree / name).read_bytes()
        ):
            (tree / name).unlink()
            found.removals.append(name)
            found.add(name, "removed")
        else:
            found.unmerged += _deleted_by_them(tree, name, base)
            found.add(name, "conflict", "the template has removed it, and you have changed it")


def _verbatim(work: Work, tree: Path, names: list[str]) -> set[str]:
    """Return the files that are to the byte as they stand in the template: no need to render it."""
    listed = git.run(work.template.folder, "ls-tree", "-r", "-z", work.origin.commit)
    known = {(blob, os.path.basename(path)) for _, blob, path in _entries(listed)}
    mine = _entries(git.run(tree, "ls-files", "--stage", "-z", "--", *names))
    return {os.fsdecode(path) for _, blob, path in mine if (blob, os.path.basename(path)) in known}


def _deleted_by_them(tree: Path, name: str, old: Path) -> bytes:
    """Return what git's own merge writes into the index for such a file."""
    kept = _entries(git.run(tree, "ls-files", "--stage", "-z", "--full-name", "--", name))
    lines = [b"0 %b\t%b\0" % (b"0" * len(blob), path) for _, blob, path in kept]
    for mode, blob, path in kept:
        lines.append(b"%b %b 2\t%b\0" % (mode, blob, path))
        if old.is_file():
            base = git.run(tree, "hash-object", "-w", "--", old).strip()
            lines.append(b"%b %b 1\t%b\0" % (mode, base, path))
    return b"".join(lines)


def _index_info(unmerged: bytes) -> bytes:
    """Return what makes another index have the same unmerged files."""
    files = {path: blob for _, blob, path in _entries(unmerged)}
    cleared = [b"0 %b\t%b\0" % (b"0" * len(blob), path) for path, blob in files.items()]
    return b"".join(cleared) + unmerged


def _entries(listed: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Return mode, blob and path of the lines of `git ls-files --stage -z` or `git ls-tree -z`."""
    found = []
    for line in filter(None, listed.split(b"\0")):
        head, _, path = line.partition(b"\t")
        words = head.split(b" ")
        found.append((words[0], max(words, key=len), path))
    return found


def _marked_lines(file: Path) -> list[int]:
    if not file.is_file():
        return []
    lines = file.read_bytes().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.startswith(b"<<<<<<< ")]


def _read_answers(work: Work, tree: Path, given: Mapping[str, object], found: Outcome) -> None:
    """Compare the answers file, and tell of answers that Copier has changed by itself."""
    new = (tree / ANSWERS_FILE).read_bytes()
    if new == (work.folder / ANSWERS_FILE).read_bytes():
        return
    found.writes.add(ANSWERS_FILE)
    found.add(ANSWERS_FILE, "updated")
    answers = yaml.load(new, Loader=Loader)
    for name, answer in work.origin.answers.items():
        if name in SOURCE_KEYS or name in given or name not in answers:
            continue
        if answers[name] != answer:
            found.notes.append(
                f"{name} was {answer!r}, which the template no longer takes; it is now "
                f"{answers[name]!r}"
            )


def _read_owned(work: Work, found: Outcome) -> None:
    """Tell where the template's own version of the owner's files has moved on."""
    revision = found.revision
    if work.origin.commit == revision:
        return
    between = git.text(work.template.folder, "diff", "--name-only", work.origin.commit, revision)
    sources = [Path(path) for path in between.split("\n")]
    questions = work.questions(revision)
    sources = [path for path in sources if _is_meant(path, work.origin.answers, questions)]
    for name in _owned(work, revision):
        moved = any(path.name.removesuffix(".jinja") == Path(name).name for path in sources)
        if moved and name not in found.changes and (work.folder / name).exists():
            how = f"the template's own has changed: ddpgen diff --template {name}"
            found.add(name, "kept yours", how)


def _is_meant(path: Path, answers: Mapping[str, object], questions: Mapping[str, Question]) -> bool:
    """Say whether a file of the template is for the answers of this project.

    One in a folder that is called like a choice is for those who have chosen it.
    """
    others = {
        choice
        for name, question in questions.items()
        for choice in question.choices
        if not question.multiselect and choice != answers.get(name)
    }
    return not others & set(path.parts)
