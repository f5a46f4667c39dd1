"""ddpgen presets: what a project's model and data can start from."""

import click

from ddpgen import console
from ddpgen.template import questions


@click.command()
def command() -> None:
    """List the presets, one a line."""
    preset = questions()["preset"]
    console.table([(name, text.removeprefix(f"{name}: ")) for name, text in preset.choices.items()])
