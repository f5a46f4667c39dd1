"""ddpgen new: make a project."""

import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from ddpgen import (
    answers,
    config,
    console,
    first_commit,
    machine,
    names,
    overlay,
    parameters,
    staging,
    store,
    target,
    team,
)
from ddpgen.options import question_options
from ddpgen.render import Recipe, ours, render
from ddpgen.target import Target
from ddpgen.template import ANSWERS_FILE, SOURCE, Answer, Question, questions

Answers = dict[str, Answer]


@dataclass(frozen=True)
class Request:
    """What was asked for, checked: where to, with which answers, and how.

    Attributes:
        typed: PATH as it was typed.
        place: where that is.
        given: the answers that were given.
        ask: whether the other answers are asked for.
        git: whether to make a repository.
        recipe: the template.
        questions: what it asks.
    """

    typed: str
    place: Target
    given: Answers
    ask: bool
    git: bool
    recipe: Recipe
    questions: Mapping[str, Question]

    def render(self, folder: Path) -> list[Path]:
        """Render the project into a folder, and ask what has to be asked."""
        suggestions: Answers = {"gpus": machine.suggested_gpus()} if self.ask else {}
        return render(self.recipe, folder, self.given, ask=self.ask, suggestions=suggestions)


@click.command(context_settings={"max_content_width": 100})
@click.argument("path")
@question_options(questions())
@parameters.assignments("Answer any question of the template by its key; repeatable.")
@click.option(
    "--answers",
    "answers_file",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read answers from a YAML file, such as another project's .copier-answers.yml.",
)
@click.option(
    "--template",
    metavar="URL_OR_PATH",
    help="Start from another template: a git repository, such as your team's fork of this one.",
)
@click.option("--trust", is_flag=True, help="Let another template run its tasks and extensions.")
@click.option("--yes", is_flag=True, help="Ask nothing: what is not given takes its default.")
@click.option("--dry-run", is_flag=True, help="List the files and their sizes; write nothing.")
@click.option("--force", is_flag=True, help="Allow a folder that is not empty; asks to overwrite.")
@click.option("--no-git", is_flag=True, help="Make no git repository.")
def command(
    path: str,
    assignments: tuple[str, ...],
    answers_file: Path | None,
    template: str | None,
    trust: bool,
    yes: bool,
    dry_run: bool,
    force: bool,
    no_git: bool,
    **options: Answer | None,
) -> None:
    """Make a training project in the new folder PATH.

    The last part of PATH is the project's name. On a terminal, what is not given is asked.
    """
    chosen = {name: answer for name, answer in options.items() if answer is not None}
    with contextlib.ExitStack() as fetched:
        recipe, asked = ours(), questions()
        if template is not None:
            recipe = fetched.enter_context(team.fetched(template, trust=trust))
            asked = config.questions_in(recipe.folder)
        given = answers.collect(asked, chosen, assignments, answers_file)
        _check_name(path, given)
        place = target.inspect(path)
        if not force:
            target.refuse_unless_empty(place, path)
        if place.path != Path(os.path.abspath(path)):
            console.note(f"{path} is a link: the project goes to {place.path}")
        ask = console.is_terminal() and not yes
        request = Request(path, place, given, ask, not no_git, recipe, asked)
        if dry_run:
            _preview(request)
        elif force and place.exists:
            _fill(request)
        else:
            _create(request)


def _check_name(typed: str, given: Answers) -> None:
    """Check the project's name: the last part of the path, unless another one is given."""
    is_given = "project_name" in given

    def retry(name: str) -> str:
        if is_given:
            return f"--set project_name={name}"
        return f"ddpgen new {shlex.quote(os.path.join(os.path.dirname(typed.rstrip('/')), name))}"

    name = str(given.setdefault("project_name", target.name_of(typed)))
    warning = names.check(name, retry)
    if warning:
        console.note(warning)


def _create(request: Request) -> None:
    """Make the project beside its place, with its first commit, and move it there in one step."""
    place = request.place
    target.refuse_unless_writable(place.anchor)
    with staging.folder(beside=place.anchor) as content:
        project = content / place.path.relative_to(place.anchor)
        project.parent.mkdir(parents=True, exist_ok=True)
        with staging.interruptible():
            files = request.render(project)
            remark = _commit(request, project, files)
        answered = _answered(request, project)
        staging.publish(content, place)
    _finish(request, len(files), answered, remark)


def _fill(request: Request) -> None:
    """Add the project to a folder that is there; overwrite only what somebody agreed to."""
    folder = request.place.path
    target.refuse_unless_writable(folder)
    with staging.folder(beside=folder) as content:
        project, backup = content / "project", content / "backup"
        with staging.interruptible():
            files = request.render(project)
            answered = _answered(request, project)
            plan = overlay.plan(files, project, folder)
            _agree_to_overwrite(request, plan)
        overlay.apply(plan, project, folder, backup)
    remark = _commit(request, folder, files)
    _finish(request, len(plan.new) + len(plan.changed), answered, remark)


def _answered(request: Request, project: Path) -> Answers:
    """Return what the project was made with; another template may not write it down."""
    file = project / ANSWERS_FILE
    if not file.exists():
        console.note(f"the template writes no {ANSWERS_FILE}, so the project cannot be updated")
        return {}
    return answers.read_file(request.questions, file)


def _agree_to_overwrite(request: Request, plan: overlay.Plan) -> None:
    if not plan.changed:
        return
    changed = ", ".join(map(str, plan.changed))
    if not request.ask:
        raise console.Failure(
            f"{request.typed} has files that would be overwritten: {changed}",
            "move them away, or run without --yes on a terminal to be asked",
        )
    if not console.confirm(f"Overwrite {changed}?"):
        raise console.Failure("nothing was written")


def _preview(request: Request) -> None:
    """List what would be written. The project is made in the system's temporary folder."""
    with tempfile.TemporaryDirectory(prefix="ddpgen-") as scratch:
        project = Path(scratch, request.place.name)
        files = request.render(project)
        plan = overlay.plan(files, project, request.place.path)
        for file in (*plan.new, *plan.changed):
            size = f"{(project / file).stat().st_size:,}"
            mark = "  (overwrites)" if file in plan.changed else ""
            console.out(f"{size:>9}  {file}{mark}")
    console.out(f"{len(plan.new) + len(plan.changed)} files; nothing was written")


def _commit(request: Request, folder: Path, files: list[Path]) -> str | None:
    """Make the first commit where one is wanted; return a remark for the user, if there is one."""
    if not request.git:
        return None
    if first_commit.is_inside(request.place.path):
        return "it is inside a git repository already, so the commit is left to you"
    return first_commit.make(folder, files)


def _finish(request: Request, count: int, answered: Answers, remark: str | None) -> None:
    """Say what was made, and what to type next."""
    described = ", ".join(
        f"{name} {','.join(map(str, answer)) if isinstance(answer, list) else answer}"
        for name, answer in answered.items()
        if name != "project_name" and answer != []
    )
    files = "1 file" if count == 1 else f"{count} files"
    console.out(f"{console.bold('Made')} {request.typed}: {files} ({described})")
    if remark:
        console.note(remark)
    if request.recipe.source == SOURCE:
        _keep_template()
    nodes = answered.get("nodes", 1)
    alone = "NNODES=1 " if nodes != 1 else ""
    console.out("Next:")
    console.out(f"  cd {_quoted(request.typed)}")
    console.out("  python -m pip install -e .")
    console.out(f"  {alone}./launch.sh")
    if alone:
        console.out(f"That trains on this machine alone; README.md says how to start all {nodes}.")


def _keep_template() -> None:
    """Keep the template for updates; the project is whole without it, and `update` tries again."""
    if shutil.which("git") is None:
        return
    try:
        store.ensure()
    except (console.Failure, OSError) as problem:
        console.note(f"the template could not be kept for updates yet: {problem}")


def _quoted(path: str) -> str:
    """Quote a path for a shell; a leading - would be an option of cd."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
