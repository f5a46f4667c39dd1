"""Answers in, the files of a project out. Copier renders; this file says how it is called."""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from ddpgen import staging
from ddpgen.console import Failure, UsageFailure
from ddpgen.template import ANSWERS_FILE, REVISION, SOURCE, Answer, questions, template_dir


def render(
    destination: Path,
    answers: Mapping[str, Answer],
    *,
    ask: bool = False,
    suggestions: Mapping[str, Answer] | None = None,
) -> list[Path]:
    """Render the template into a folder that does not exist yet.

    Args:
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
    with staging.uninterrupted():  # an import that is interrupted leaves half a module behind
        import copier
        from copier.errors import InteractiveSessionError
        from plumbum import local

    try:
        # Copier is twice as fast when it finds no git, and a plain folder needs none.
        with local.env(PATH=""):
            copier.run_copy(
                str(template_dir()),
                destination,
                data=dict(answers),
                user_defaults=dict(suggestions or {}),
                defaults=not ask,
                quiet=True,
                cleanup_on_error=False,
                settings=copier.Settings(),  # not the user's: they could change the defaults
            )
    except InteractiveSessionError:
        raise Failure("the questions were not answered", "--yes takes the defaults") from None
    except ValueError as problem:
        raise _refused(problem) from None
    _record_source(destination / ANSWERS_FILE)
    files = sorted(path for path in destination.rglob("*") if not path.is_dir())
    _own(files)
    return [file.relative_to(destination) for file in files]


def _refused(problem: ValueError) -> Exception:
    """Translate what Copier says of an answer; anything else is no answer's fault."""
    found = re.fullmatch(r"Validation error for question '(\w+)': (.*)", str(problem), re.DOTALL)
    if not found:
        return problem
    question = questions()[found[1]]
    hint = "" if question.computed else f"{question.option} {question.default}"
    return UsageFailure(f"{question.option}: {found[2]}", hint)


def _record_source(answers_file: Path) -> None:
    """Record where the project came from by a text that is the same on every machine."""
    text = answers_file.read_text(encoding="utf-8")
    text = re.sub(r"^_(?:commit|src_path):.*\n(?:[ \t]+.*\n)*", "", text, flags=re.MULTILINE)
    comments = re.match(r"(?:#.*\n|\n)*", text)
    head = comments[0] if comments else ""
    source = f"_commit: {REVISION}\n_src_path: {SOURCE}\n"
    answers_file.write_text(head + source + text[len(head) :], encoding="utf-8", newline="\n")


def _own(files: list[Path]) -> None:
    """Give files the permissions of new files; an installed template may be read-only."""
    umask = os.umask(0)
    os.umask(umask)
    for file in files:
        executable = file.stat().st_mode & stat.S_IXUSR
        file.chmod((0o777 if executable else 0o666) & ~umask)
