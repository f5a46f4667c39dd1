"""ddpgen presets: what a project's model and data can start from."""

import click

from ddpgen import console
from ddpgen.template import presets, template_dir


@click.command()
def command() -> None:
    """List the presets, one a line: what each is, its data, and what else it depends on."""
    rows = []
    for preset in presets(template_dir()):
        needs = f"; needs {', '.join(preset.dependencies)}" if preset.dependencies else ""
        rows.append((preset.name, f"{preset.description} ({preset.data}){needs}"))
    console.table(rows)
