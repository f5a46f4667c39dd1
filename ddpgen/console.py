"""The one place that prints, and the one error that people see."""

import io
import os
import sys
from collections.abc import Mapping, Sequence

import click

# What to type for a traceback, whatever goes wrong.
DEBUG = "DDPGEN_DEBUG=1 and the same command"


class Failure(click.ClickException):
    """What went wrong in one line, and in a second one what to type instead.

    Args:
        message: what is wrong; names the value, the bound or the path.
        hint: what to type instead; "" when there is nothing to advise.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        """Keep the two lines."""
        super().__init__(message)
        self.hint = hint


class UsageFailure(Failure):
    """The command line, or a value that was given, is wrong."""

    exit_code = 2


def prepare_streams() -> None:
    """Print a path that is not valid UTF-8 as the bytes it is, so that it can be pasted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")


def is_terminal() -> bool:
    """Say whether somebody can be asked: both standard input and standard output are a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def out(text: str = "") -> None:
    """Print one line of the result on standard output.

    Raises:
        Failure: it cannot be written. A reader that has ended is a BrokenPipeError instead.
    """
    try:
        click.echo(text, color=_colour())
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise Failure(f"cannot write the output: {problem.strerror}") from None


def bold(text: str) -> str:
    """Return the text in bold; it is printed plain where standard output is no terminal."""
    return click.style(text, bold=True)


def coloured(text: str, colour: str) -> str:
    """Return the text in a colour; it is printed plain where standard output is no terminal."""
    return click.style(text, fg=colour)


def table(rows: Sequence[tuple[str, str]]) -> None:
    """Print rows of two cells in two columns."""
    width = max((len(first) for first, _ in rows), default=0)
    for first, second in rows:
        out(f"  {first:<{width}}  {second}")


def verdicts(rows: Sequence[tuple[str, str, str]], colours: Mapping[str, str]) -> None:
    """Print rows of a verdict, a file and a remark; the verdict in its colour."""
    first, second = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    for verdict, file, remark in rows:
        shown = click.style(verdict.ljust(first), fg=colours.get(verdict))
        out(f"  {shown}  {file.ljust(second) if remark else file}  {remark}".rstrip())


def json(report: Mapping[str, object]) -> None:
    """Print a report for programs."""
    from json import dumps

    out(dumps(report, indent=2))


def in_colour() -> bool:
    """Say whether what goes to standard output is coloured."""
    return _colour() is not False and sys.stdout.isatty()


def flush() -> None:
    """Write what is still held back, so that an error of it is seen here and not at exit."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def abandon_output() -> None:
    """Throw away what standard output still holds; Python would try to write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def confirm(question: str) -> bool:
    """Ask a question on the terminal whose answer is no unless somebody types yes."""
    return click.confirm(question, default=False)


def note(text: str) -> None:
    """Print one line that the result does not depend on, on standard error."""
    click.echo(f"{click.style('note:', fg='yellow')} {text}", err=True, color=_colour())


def error(failure: Failure) -> None:
    """Print a failure: what is wrong, then what to type instead."""
    lines = [f"{click.style('error:', fg='red')} {_one_line(failure.message)}"]
    if failure.hint:
        lines.append(f"{click.style('try:', fg='green')} {_one_line(failure.hint)}")
    click.echo("\n".join(lines), err=True, color=_colour())


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def _colour() -> bool | None:
    """Return False where NO_COLOR asks for no colours; else Click looks at the stream."""
    return False if os.environ.get("NO_COLOR") else None
