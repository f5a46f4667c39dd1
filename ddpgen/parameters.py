"""What several commands take on their command line, declared once."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

# The folder of the project; here, by default.
project_path = click.argument("path", default=".")


def assignments(help_text: str) -> Callable[[Function], Function]:
    """Return a decorator that adds `--set KEY=VALUE`: an answer by the key of its question."""
    return click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help=help_text)
