"""The optional parts of a project, added and removed by the same means as an update."""

from pathlib import Path

import click

from ddpgen import console, parameters, report, staging, update
from ddpgen.console import Failure, UsageFailure
from ddpgen.template import Question, closest
from ddpgen.work import Work, begin

_HELP = """{}

What changes is shown first, and asked for on a terminal. Several parts are separated by commas.
"""


def command(summary: str, *, add: bool) -> click.Command:
    """Return the command that adds or removes parts; its help begins with the summary."""

    @click.command(help=_HELP.format(summary), context_settings={"max_content_width": 100})
    @click.argument("part")
    @parameters.project_path
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
    def call(part: str, path: str, yes: bool, dry_run: bool) -> int:
        return change(path, tuple(part.split(",")), add=add, yes=yes, dry_run=dry_run)

    return call


def change(path: str, names: tuple[str, ...], *, add: bool, yes: bool, dry_run: bool) -> int:
    """Add or remove parts: show what that changes, ask on a terminal, then do it.

    The template stays at the recorded version, so that nothing else changes.

    Returns:
        0, or 2 when there are conflicts to resolve.

    Raises:
        Failure: there is no such part, or the project cannot be updated.
    """
    with begin(Path(path)) as work:
        with staging.interruptible():
            question = _question(work, names)
            had = _chosen(question, work)
            wanted = [*had, *names] if add else [name for name in had if name not in names]
            if set(wanted) == set(had):
                state = "there already" if add else "not there"
                console.out(f"{', '.join(names)}: {state}; nothing to do")
                return 0
            given = {question.name: question.parse(wanted)}
            plan = update.make_plan(work, work.origin.commit, given)
            report.preview_files(work, plan)
            if dry_run:
                console.out("nothing was written")
                return 2 if plan.outcome.conflicts else 0
            if console.is_terminal() and not yes and not console.confirm("Do this?"):
                raise Failure("nothing was written")
        update.carry_out(work, plan)
        report.show_next(path, plan, f"{'Add' if add else 'Remove'} {' and '.join(names)}")
    return 2 if plan.outcome.conflicts else 0


def _question(work: Work, names: tuple[str, ...]) -> Question:
    """Return the question that has these parts as its choices."""
    several = [it for it in work.questions(work.origin.commit).values() if it.multiselect]
    known = [choice for question in several for choice in question.choices]
    for name in names:
        if name not in known:
            guess = closest(name, known)
            hint = f"did you mean {guess}?" if guess else f"one of {', '.join(known)}"
            later = work.questions(work.template.newest()).values()
            if any(name in question.choices for question in later if question.multiselect):
                hint = "ddpgen update, and then the same command: the newest template has it"
            raise UsageFailure(f"there is no part {name!r}", hint)
    (question,) = [it for it in several if set(names) <= set(it.choices)][:1]
    return question


def _chosen(question: Question, work: Work) -> list[str]:
    recorded = work.origin.answers.get(question.name, [])
    return [str(name) for name in recorded] if isinstance(recorded, list) else []
