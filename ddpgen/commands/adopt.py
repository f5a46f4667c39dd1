"""ddpgen adopt: link a project that has lost its answers file."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from ddpgen import answers, console, parameters, project, render, scratch, staging, store
from ddpgen.adopt import Candidate, Guesser
from ddpgen.console import Failure, UsageFailure
from ddpgen.source import open_template
from ddpgen.template import ANSWERS_FILE, SOURCE, Answer, questions


@click.command(context_settings={"max_content_width": 100})
@parameters.project_path
@parameters.assignments(
    "An answer that is known, such as gpus=8; the others are guessed from the files."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what is found; write nothing.")
def command(path: str, assignments: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Link the project in PATH to the release that is closest to it, so that it can be updated.

    For a project of ddpgen that has lost its .copier-answers.yml, or was copied by hand. Only that
    file is written.
    """
    folder = Path(os.path.realpath(path))
    if not folder.is_dir():
        raise Failure(f"{path} is not a folder")
    if (folder / ANSWERS_FILE).exists():
        project.read_origin(folder)  # a damaged one is said with its line
        raise Failure(f"{path} has a {ANSWERS_FILE}: it needs no adoption", "ddpgen update")
    given = answers.assigned(questions(), assignments)
    repository = project.locate(folder)
    with scratch.folder(repository) as place:
        with staging.interruptible():
            template = open_template(SOURCE, place / "template")
            found = _guess(Guesser(folder, template, place), given)
            _show(path, found)
            if dry_run:
                console.out("nothing was written")
                return
            if console.is_terminal() and not yes and not console.confirm("Is this right?"):
                raise Failure("nothing was written", "--set KEY=VALUE for what is not right")
        made = found.pristine / ANSWERS_FILE
        render.record_source(made, SOURCE, found.revision)
        _write(made.read_bytes(), folder / ANSWERS_FILE)
    console.out(f"{console.bold('Linked')} {path} to {found.revision}")
    console.out("Next:")
    console.out(f"  git add {ANSWERS_FILE} && git commit -m 'Link to {found.revision}'")
    if found.revision != store.current():
        console.out(f"  ddpgen update --dry-run   # shows the merge with {store.current()}")
    else:
        console.out("  ddpgen diff   # shows what is yours")


def _guess(guesser: Guesser, given: Mapping[str, Answer]) -> Candidate:
    try:
        return guesser.best(given)
    except render.RefusedAnswer as problem:
        again = f"--set {problem.name}=..."
        raise UsageFailure(f"{problem.name}: {problem.reason}", again) from None


def _show(path: str, found: Candidate) -> None:
    lines = "1 line differs" if found.lines == 1 else f"{found.lines} lines differ"
    console.out(f"{path} is closest to {found.revision}: {lines}")
    for name in found.files:
        console.out(f"  differs  {name}")
    for name, answer in found.answers.items():
        value = ",".join(answer) if isinstance(answer, list) else answer
        console.out(f"  {name} {value}".rstrip())


def _write(content: bytes, file: Path) -> None:
    beside = file.with_name(f"{file.name}.ddpgen")
    try:
        beside.write_bytes(content)
        os.replace(beside, file)
    finally:
        beside.unlink(missing_ok=True)
