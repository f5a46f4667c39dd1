"""ddpgen add: give a project an optional part."""

import click

from ddpgen import parts


@click.command(context_settings={"max_content_width": 100})
@click.argument("part")
@click.argument("path", default=".")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
def command(part: str, path: str, yes: bool, dry_run: bool) -> int:
    """Add PART, such as slurm, to the project in PATH.

    What changes is shown first, and asked for on a terminal. Several parts are separated by commas.
    """
    names = tuple(part.split(","))
    return parts.change(path, names, add=True, yes=yes, dry_run=dry_run)
