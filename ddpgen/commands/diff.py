"""ddpgen diff: what the owner of a project has changed."""

from pathlib import Path

import click

from ddpgen import compare, console, parameters, staging
from ddpgen.work import begin


@click.command(context_settings={"max_content_width": 100})
@parameters.project_path
@click.option("--exit-code", is_flag=True, help="Exit with 1 when there is a difference, as git.")
@click.option(
    "--template",
    "file",
    metavar="FILE",
    help="Show instead what would change in FILE, if you took the template's newest version of it.",
)
def command(path: str, exit_code: bool, file: str | None) -> int:
    """Show what you have changed in the project in PATH, added files included.

    It is compared with what the recorded version of the template makes of your answers.
    """
    with begin(Path(path)) as work, staging.interruptible():
        colour = console.in_colour()
        if file is None:
            shown = compare.with_pristine(work, colour=colour)
        else:
            shown = compare.with_template(work, file, colour=colour)
    if shown:
        console.out(shown.removesuffix("\n"))
    return int(bool(shown) and exit_code)
