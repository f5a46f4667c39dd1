"""What people and programs are told of an update."""

import shlex
from collections.abc import Sequence

from ddpgen import console, git
from ddpgen.outcome import Change
from ddpgen.update import Plan
from ddpgen.work import Work

_COLOURS = {"conflict": "red", "kept yours": "yellow", "added": "green", "removed": "green"}


def nothing_to_do(work: Work, typed: str, *, dry_run: bool, as_json: bool) -> None:
    """Say that a project is as new as its template."""
    if as_json:
        show_json(None, work, dry_run=dry_run)
    else:
        console.out(f"{typed} is up to date: {work.origin.commit}")


def preview(
    work: Work, plan: Plan, typed: str, assignments: Sequence[str], *, as_json: bool
) -> None:
    """Show what an update would do, and the diff."""
    if as_json:
        show_json(plan, work, dry_run=True)
        return
    step, _ = _described(plan, assignments)
    console.out(f"{console.bold('Would update')} {typed}: {step}")
    preview_files(work, plan)
    console.out("nothing was written")


def preview_files(work: Work, plan: Plan) -> None:
    """Show what happens to each file, and the diff."""
    show(plan)
    console.out()
    console.out(diff(work, plan, colour=console.in_colour()).rstrip("\n"))


def done(work: Work, plan: Plan, typed: str, assignments: Sequence[str], *, as_json: bool) -> None:
    """Say what an update has done, how to go on, and how to undo it."""
    if as_json:
        show_json(plan, work, dry_run=False)
        return
    step, message = _described(plan, assignments)
    console.out(f"{console.bold('Updated')} {typed}: {step}")
    show(plan)
    show_next(typed, plan, message)


def _described(plan: Plan, assignments: Sequence[str]) -> tuple[str, str]:
    """Return where an update leads, to a revision or to answers, and a message for the commit."""
    if plan.after != plan.before:
        return f"{plan.before} -> {plan.after}", f"Update to {plan.after}"
    answers = " ".join(assignments)
    return answers, f"Set {answers}"


def show(plan: Plan) -> None:
    """Print one line a file."""
    rows = []
    for change in plan.outcome.sorted():
        where = ", ".join(map(str, change.lines))
        lines = f"{'line' if len(change.lines) == 1 else 'lines'} {where}" if where else ""
        rows.append((change.verdict, change.path, "; ".join(filter(None, (lines, change.why)))))
    console.verdicts(rows, _COLOURS)
    for note in plan.outcome.notes:
        console.note(note)


def show_json(plan: Plan | None, work: Work, *, dry_run: bool) -> None:
    """Print the same for programs."""
    changes = plan.outcome.sorted() if plan else []
    report = {
        "from": work.origin.commit,
        "to": plan.after if plan else work.origin.commit,
        "dry_run": dry_run,
        "conflicts": len(plan.outcome.conflicts) if plan else 0,
        "files": [_entry(change) for change in changes],
        "notes": plan.outcome.notes if plan else [],
    }
    if dry_run:
        report["diff"] = diff(work, plan, colour=False) if plan else ""
    console.json(report)


def _entry(change: Change) -> dict[str, object]:
    return {
        "path": change.path,
        "verdict": change.verdict,
        "lines": list(change.lines),
        "why": change.why,
    }


def diff(work: Work, plan: Plan, *, colour: bool) -> str:
    """Return what an update would change, as git shows it."""
    index = {"GIT_INDEX_FILE": str(work.place / "diff.index")}
    git.run(plan.tree, "read-tree", plan.head, env=index)
    where = ("--relative", "--", ".")
    return git.difference(plan.tree, *where, colour=colour, new=plan.outcome.added, env=index)


def show_next(folder: str, plan: Plan, message: str) -> None:
    """Print how to go on, and how to undo."""
    git_here = "git" if folder == "." else f"git -C {shlex.quote(folder)}"
    first = "resolve what is in conflict, then" if plan.outcome.conflicts else ""
    console.out(f"Go on: {first}".rstrip())
    add = f"{git_here} add --all ."
    if plan.outcome.ignored:  # a part of the project, whatever somebody ignores elsewhere
        add += f" && {git_here} add --force -- {shlex.join(sorted(plan.outcome.ignored))}"
    console.out(f"  {add} && {git_here} commit -m {shlex.quote(message)}")
    console.out("Undo:")
    console.out(f"  {undo_command(git_here, plan)}")


def undo_command(git_here: str, plan: Plan) -> str:
    """Return what to type so that everything is as before the update."""
    restore = f"{git_here} restore --source=HEAD --staged --worktree ."
    added = " ".join(shlex.quote(name) for name in sorted(plan.outcome.added))
    return f"{restore} && {git_here} clean -dfxq -- {added}" if added else restore
