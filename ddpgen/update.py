"""A three-way update by Copier, tried out in a worktree, and then carried out: all or nothing."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ddpgen import config, git, journal, outcome, project, render, signals, staging, store
from ddpgen.console import Failure, UsageFailure
from ddpgen.outcome import Outcome
from ddpgen.scratch import JOURNAL, copier_environment
from ddpgen.template import ANSWERS_FILE
from ddpgen.work import Work

Conflict = Literal["inline", "rej"]


@dataclass(frozen=True)
class Plan:
    """What an update would do.

    Attributes:
        before: the recorded revision of the template.
        after: the one that the update leads to.
        head: the commit of the project that it starts from.
        tree: a worktree of the project in which it is done.
        outcome: what it does to each file.
    """

    before: str
    after: str
    head: str
    tree: Path
    outcome: Outcome


def target(work: Work, version: str | None) -> str:
    """Return the revision that an update leads to.

    Args:
        work: the project.
        version: what somebody typed; None for the newest.

    Raises:
        Failure: there is no such version, or it is older than the recorded one.
    """
    if work.template.ours:
        project.refuse_newer(work.origin)
    wanted = work.template.named(version) if version else work.template.newest()
    if work.template.ours and (store.order(wanted) or ()) < (store.order(work.origin.commit) or ()):
        raise Failure(
            f"{wanted} is older than {work.origin.commit}, and an update leads forward only",
            "git log shows the commit before the last update",
        )
    return wanted


def is_current(work: Work, revision: str) -> bool:
    """Say whether a project is at this revision of its template already."""
    if work.template.ours:
        return work.origin.commit == revision
    return work.template.commit_of(work.origin.commit) == work.template.commit_of(revision)


def make_plan(
    work: Work, revision: str, given: Mapping[str, object], conflict: Conflict = "inline"
) -> Plan:
    """Do an update in a worktree beside the project. The project is not touched.

    Args:
        work: the project.
        revision: where the update leads to.
        given: answers that change.
        conflict: markers in the file, or rejected hunks in a .rej file beside it.

    Raises:
        Failure: the project has work that is not committed, or Copier or the template says no.
    """
    head = project.refuse_unless_clean(work.folder, work.repository)
    _refuse_wrong_answers(work, revision, given)
    if not work.template.ours and not work.trust:
        for there in (work.origin.commit, revision):  # Copier renders both
            config.refuse_to_run(work.files_of(there), work.origin.source)
    tree = _add_worktree(work, head)
    answers = tree / work.repository.prefix / ANSWERS_FILE
    render.record_source(answers, str(work.template.folder), work.origin.commit)
    git.run(answers.parent, "update-index", "--assume-unchanged", ANSWERS_FILE)
    _run_copier(work, answers.parent, revision, given, conflict)
    recorded = project.read_origin(answers.parent).commit
    render.record_source(answers, work.origin.source, recorded)
    found = outcome.read(work, answers.parent, revision, given)
    return Plan(work.origin.commit, recorded, head, answers.parent, found)


def _refuse_wrong_answers(work: Work, revision: str, given: Mapping[str, object]) -> None:
    """Refuse a recorded answer that the template does not take; Copier would take its default."""
    for name, question in work.questions(revision).items():
        if name in given or name not in work.origin.answers:
            continue
        try:
            question.parse(work.origin.answers[name])
        except ValueError as problem:
            raise _refused(work, render.RefusedAnswer(name, str(problem)), given) from None


def _refused(work: Work, problem: render.RefusedAnswer, given: Mapping[str, object]) -> Failure:
    """Say where a refused answer comes from: the command line, or the answers file."""
    again = f"--set {problem.name}=..."
    if problem.name in given:
        return UsageFailure(f"--set {problem.name}={given[problem.name]}: {problem.reason}", again)
    line = work.origin.lines.get(problem.name)
    where = f"{ANSWERS_FILE}, line {line}" if line else ANSWERS_FILE
    return Failure(f"{where}: {problem.name}: {problem.reason}", f"ddpgen update {again}")


def _add_worktree(work: Work, head: str) -> Path:
    tree = work.place / "tree" / work.repository.top.name
    tree.parent.mkdir()
    git.run(work.repository.top, "worktree", "add", "--quiet", "--detach", tree, head)
    return tree


def _run_copier(
    work: Work, folder: Path, revision: str, given: Mapping[str, object], conflict: Conflict
) -> None:
    with staging.uninterrupted():  # an import that is interrupted leaves half a module behind
        import copier
    hash_of_copies = {"GIT_DEFAULT_HASH": work.repository.object_format}
    try:
        with copier_environment(work.place / "copier", hash_of_copies), render.explained():
            copier.run_update(
                folder,
                data=dict(given),
                vcs_ref=revision,
                defaults=True,
                skip_answered=True,
                overwrite=True,
                quiet=True,
                conflict=conflict,
                unsafe=work.trust,
                settings=copier.Settings(),
            )
    except render.RefusedAnswer as problem:
        raise _refused(work, problem, given) from None
    except (Failure, OSError, AssertionError) as problem:
        if "malformed index info" in str(problem):  # Copier writes an empty SHA-1 into it
            hash_name = work.repository.object_format
            raise Failure(
                f"there is a conflict, which Copier cannot mark in a {hash_name} repository",
                "--conflict rej",
            ) from None
        _refuse_obstacles(work, revision, given)
        raise


def _refuse_obstacles(work: Work, revision: str, given: Mapping[str, object]) -> None:
    """Refuse a project with a link or a file where the template has a folder, or the reverse."""
    made = work.pristine(revision, {**work.origin.answers, **given})
    for name in render.files_in(made):
        found = project.in_the_way(work.folder, name)
        if found is None:
            continue
        if found != work.folder / name or (found.is_dir() and not found.is_symlink()):
            mine = found.relative_to(work.folder)
            kind = "link" if found.is_symlink() else "folder" if found.is_dir() else "file"
            raise Failure(
                f"{mine} is a {kind} in this project, and the template has {name}",
                f"git mv {mine} to another name, commit, then the same command again",
            ) from None


def carry_out(work: Work, plan: Plan) -> None:
    """Make the project what the plan says: all of it, or nothing.

    Raises:
        Failure: somebody has changed the project in the meantime.
        OSError: it could not be written, and everything is as before.
    """
    if project.refuse_unless_clean(work.folder, work.repository) != plan.head:
        raise Failure(f"{work.folder} has got a new commit meanwhile", "the same command again")
    writes = {name: plan.tree / name for name in plan.outcome.writes}
    for name, file in writes.items():
        _keep_permissions(work.folder / name, file)
    place = work.place / JOURNAL
    place.mkdir()
    index = _index(work, plan.outcome.unmerged) if plan.outcome.unmerged else None
    journal.apply(place, work.folder, writes, plan.outcome.removals, index)
    signals.ignore()  # what was asked for is done, and has to be reported as done


def _keep_permissions(real: Path, file: Path) -> None:
    """Give a new content the permissions of the old one, unless it becomes executable or ceases."""
    if real.is_symlink() or file.is_symlink() or not real.exists():
        return
    mode = stat.S_IMODE(real.stat().st_mode)
    if bool(mode & stat.S_IXUSR) == os.access(file, os.X_OK):
        file.chmod(mode)


def _index(work: Work, unmerged: bytes) -> tuple[Path, Path]:
    """Write git's index as a merge leaves it: with three versions of each file in conflict."""
    real = work.repository.git_dir / "index"
    made = work.place / "index"
    made.write_bytes(real.read_bytes())
    update = ("update-index", "-z", "--index-info")
    git.run(work.repository.top, *update, stdin=unmerged, env={"GIT_INDEX_FILE": str(made)})
    return made, real
