"""A template's copier.yml, of any template: what it asks, and what it would run."""

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ddpgen.console import Failure
from ddpgen.template import Loader, Question, make_question

_NAMES = ("copier.yml", "copier.yaml")
# What Copier runs without asking when a template is trusted, by what to call it.
_RUNS = {"_tasks": "task", "_migrations": "migration", "_jinja_extensions": "Jinja extension"}


@functools.cache
def read(template: Path) -> dict[str, Any]:
    """Return a template's settings and questions, with the files that it includes.

    Raises:
        Failure: there is no copier.yml, it is no valid YAML, or it includes what it may not.
    """
    file = next((template / name for name in _NAMES if (template / name).is_file()), None)
    if file is None:
        raise Failure(f"{template} is no template of Copier: it has no copier.yml")
    merged: dict[str, Any] = {}
    try:
        for part in _documents(file, template):
            for name, value in part.items():
                lists = name in _RUNS and isinstance(value, list)
                merged[name] = [*merged.get(name, []), *value] if lists else value
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise Failure(f"{file} is not valid YAML: {problem}") from None
    return merged


def _documents(
    file: Path, template: Path, above: tuple[Path, ...] = ()
) -> Iterator[Mapping[str, Any]]:
    """Return the parts of a copier.yml in which `---` and `!include` separate several.

    Args:
        file: the copier.yml, or a file that it includes.
        template: the folder of the template.
        above: the files by which this one is included, from the copier.yml on.
    """
    file = file.resolve()
    if file in above:
        raise Failure(f"{file} includes itself")

    class WithIncludes(Loader):  # type: ignore[misc]
        pass

    def include(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in _included(loader.construct_scalar(node), file, template):
            for part in _documents(path, template, (*above, file)):
                found |= part
        return found

    WithIncludes.add_constructor("!include", include)
    for document in yaml.load_all(file.read_text(encoding="utf-8"), WithIncludes):
        if isinstance(document, dict):
            yield document


def _included(pattern: str, file: Path, template: Path) -> list[Path]:
    """Return the files that a pattern in a file stands for; Copier has the same rules."""
    root = template.resolve()
    problem = "only a relative path to files in the template's folder is allowed"
    if not os.path.isabs(pattern):
        try:
            found = sorted(root.glob(pattern))
            if all(path.resolve().is_relative_to(root) for path in (root / pattern, *found)):
                return found
        except ValueError as no_pattern:
            problem = str(no_pattern)
    raise Failure(f"{file} includes {pattern!r}: {problem}")


def questions_in(template: Path) -> dict[str, Question]:
    """Return the questions of a template by name."""
    return {
        name: make_question(name, details, template)
        for name, details in read(template).items()
        if not name.startswith("_")
    }


def what_it_runs(template: Path) -> list[str]:
    """Return what a template would run on this machine, one line each."""
    config = read(template)
    found = []
    for name, called in _RUNS.items():
        entries = config.get(name) or []
        for entry in entries if isinstance(entries, list) else [entries]:
            command = entry.get("command", entry) if isinstance(entry, dict) else entry
            shown = " ".join(map(str, command)) if isinstance(command, list) else str(command)
            found.append(f"{called}: {shown}")
    return found


def refuse_to_run(template: Path, source: str) -> None:
    """Refuse a template that would run something on this machine.

    Raises:
        Failure: lists what it would run.
    """
    runs = what_it_runs(template)
    if runs:
        raise Failure(
            f"the template {source} would run: {'; '.join(runs)}",
            "--trust, if you trust whoever wrote it",
        )
