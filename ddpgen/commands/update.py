"""ddpgen update: bring the template's later improvements into a project."""

from pathlib import Path
from typing import Literal

import click

from ddpgen import parameters
from ddpgen.console import UsageFailure


@click.command(context_settings={"max_content_width": 100})
@parameters.project_path
@parameters.assignments("Change an answer, such as gpus=8; repeatable.")
@click.option("--to", "version", metavar="VERSION", help="Update to this release, not the newest.")
@click.option(
    "--conflict",
    type=click.Choice(["inline", "rej"]),
    default="inline",
    show_default=True,
    help="How to show a conflict: markers in the file, or a .rej file beside it.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@click.option("--check", "only_check", is_flag=True, help="Only say whether it is behind: exit 3.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON.")
@click.option("--trust", is_flag=True, help="Let another's template run its tasks and extensions.")
def command(
    path: str,
    assignments: tuple[str, ...],
    version: str | None,
    conflict: Literal["inline", "rej"],
    dry_run: bool,
    only_check: bool,
    as_json: bool,
    trust: bool,
) -> int:
    """Update the project in PATH (here, by default) to the template that this ddpgen carries.

    Your changes stay: git merges them with the template's. Exit code 0: done; 2: done, with
    conflicts to resolve; 1: not done, and nothing has changed.
    """
    # Each imports only what it needs: --check is for continuous integration, and quick.
    if only_check and (assignments or dry_run):
        raise UsageFailure("--check goes with neither --set nor --dry-run", "leave one of them out")
    if only_check:
        from ddpgen import check

        return check.report(Path(path), version, as_json=as_json)
    from ddpgen import answers, report, staging, update
    from ddpgen.work import begin

    with begin(Path(path), trust=trust) as work:
        with staging.interruptible():
            revision = update.target(work, version)
            given = answers.assigned(work.questions(revision), assignments)
            if update.is_current(work, revision) and given.items() <= work.origin.answers.items():
                report.nothing_to_do(work, path, dry_run=dry_run, as_json=as_json)
                return 0
            plan = update.make_plan(work, revision, given, conflict)
            if dry_run:
                report.preview(work, plan, path, assignments, as_json=as_json)
        if not dry_run:
            update.carry_out(work, plan)
            report.done(work, plan, path, assignments, as_json=as_json)
    return 2 if plan.outcome.conflicts else 0
