"""Answers in, the files of a project out. Copier renders; this file says how it is called."""

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from ddpgen import console, staging, store
from ddpgen.console import Failure, UsageFailure
from ddpgen.template import ANSWERS_FILE, SOURCE, Answer, questions, template_dir


@dataclass(frozen=True)
class Recipe:
    """A template that lies in a plain folder, and what a project remembers of it.

    Attributes:
        folder: where copier.yml is.
        source: what is recorded as its source.
        commit: what is recorded as its revision; "" when it has none, as without git.
        trust: whether its tasks and extensions may run.
    """

    folder: Path
    source: str
    commit: str
    trust: bool = False


def ours() -> Recipe:
    """Return the template that ddpgen carries."""
    return Recipe(template_dir(), SOURCE, store.current())


def render(
    recipe: Recipe,
    destination: Path,
    answers: Mapping[str, Answer],
    *,
    ask: bool = False,
    suggestions: Mapping[str, Answer] | None = None,
) -> list[Path]:
    """Render a template into a folder that does not exist yet.

    Args:
        recipe: the template.
        destination: the folder; its name is the default of the project's name.
        answers: what is known already.
        ask: ask for the rest on the terminal; otherwise the rest takes its default.
        suggestions: defaults for this machine, offered where the rest is asked.

    Returns:
        The files, relative to the folder, sorted.

    Raises:
        Failure: an answer is refused by the template.
        KeyboardInterrupt: somebody pressed Ctrl-C.
    """
    copy(
        recipe.folder,
        destination,
        answers,
        ask=ask,
        suggestions=suggestions,
        trust=recipe.trust,
        tasks=recipe.trust,
    )
    if (destination / ANSWERS_FILE).exists():
        record_source(destination / ANSWERS_FILE, recipe.source, recipe.commit)
    files = sorted(path for path in destination.rglob("*") if not path.is_dir())
    _own([file for file in files if not file.is_symlink()])
    return [file.relative_to(destination) for file in files]


def files_in(folder: Path) -> list[str]:
    """Return the paths of the files that were rendered into a folder, relative to it, sorted."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def copy(
    template: Path,
    destination: Path,
    answers: Mapping[str, object],
    *,
    ask: bool = False,
    suggestions: Mapping[str, object] | None = None,
    exclude: Sequence[str] = (),
    trust: bool = False,
    tasks: bool = False,
) -> None:
    """Let Copier render a template that lies in a plain folder.

    Args:
        template: the folder with copier.yml.
        destination: the folder to fill.
        answers: what is known already.
        ask: ask for the rest on the terminal; otherwise the rest takes its default.
        suggestions: defaults, offered where the rest is asked.
        exclude: patterns of files to leave out.
        trust: whether extensions and tasks of the template may run.
        tasks: whether its tasks do run.

    Raises:
        Failure: an answer is refused by the template.
    """
    with staging.uninterrupted():  # an import that is interrupted leaves half a module behind
        import copier
        from plumbum import local

    # Copier is twice as fast when it finds no git, and a plain folder needs none; a task may.
    path = os.environ.get("PATH", "") if tasks else ""
    with explained(), local.env(PATH=path):
        copier.run_copy(
            str(template),
            destination,
            data=dict(answers),
            user_defaults=dict(suggestions or {}),
            defaults=not ask,
            quiet=True,
            cleanup_on_error=False,
            exclude=exclude,
            overwrite=True,
            unsafe=trust,
            skip_tasks=not tasks,
            settings=copier.Settings(),  # not the user's: they could change the defaults
        )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Translate what Copier raises into what people should read.

    Raises:
        Failure: an answer is refused, or Copier or the template says no.
    """
    with staging.uninterrupted():
        from copier.errors import CopierError, InteractiveSessionError, TaskError, UserMessageError
        from jinja2 import TemplateError
        from plumbum import ProcessExecutionError

    try:
        yield
    except InteractiveSessionError:
        raise Failure("the questions were not answered", "--yes takes the defaults") from None
    except UnicodeDecodeError as problem:
        name = problem.object.decode(errors="surrogateescape")
        raise Failure(f"Copier reads no file name that is not UTF-8: {name}", "git mv") from None
    except TaskError as problem:
        raise Failure(f"a task of the template failed: {problem}") from None
    except UserMessageError as problem:
        raise Failure(str(problem)) from None
    except (CopierError, TemplateError, TypeError, ValueError) as problem:
        raise _refused(problem) from problem
    except ProcessExecutionError as problem:
        said = (problem.stderr or "").strip().splitlines() or [f"exit code {problem.retcode}"]
        raise Failure(f"git: {said[-1]}") from None


class RefusedAnswer(UsageFailure):
    """The template does not take an answer.

    Args:
        name: of the question.
        reason: what the template says.
    """

    def __init__(self, name: str, reason: str) -> None:
        """Say what to type instead, where that is known."""
        question = questions().get(name)
        option = question.option if question else name
        hint = f"{option} {question.default}" if question and not question.computed else ""
        super().__init__(f"{option}: {reason}", hint)
        self.name = name
        self.reason = reason


def _refused(problem: Exception) -> Failure:
    """Translate what Copier says of an answer, or of the template."""
    found = re.fullmatch(r"Validation error for question '(\w+)': (.*)", str(problem), re.DOTALL)
    if found:
        return RefusedAnswer(found[1], found[2])
    what = f"{type(problem).__name__}: {problem}".strip().split("\n")[0]
    return Failure(f"Copier cannot use the template: {what}", f"{console.DEBUG} shows where")


def record_source(answers_file: Path, source: str, commit: str) -> None:
    """Record where a project came from, in place of what the file says of it."""
    text = answers_file.read_text(encoding="utf-8")
    text = re.sub(r"^_(?:commit|src_path):.*\n(?:[ \t]+.*\n)*", "", text, flags=re.MULTILINE)
    comments = re.match(r"(?:#.*\n|\n)*", text)
    head = comments[0] if comments else ""
    origin = {**({"_commit": commit} if commit else {}), "_src_path": source}
    lines = yaml.safe_dump(origin, allow_unicode=True, indent=4)  # as Copier writes it
    answers_file.write_text(head + lines + text[len(head) :], encoding="utf-8", newline="\n")


def _own(files: list[Path]) -> None:
    """Give files the permissions of new files; an installed template may be read-only."""
    umask = os.umask(0)
    os.umask(umask)
    for file in files:
        executable = file.stat().st_mode & stat.S_IXUSR
        file.chmod((0o777 if executable else 0o666) & ~umask)
