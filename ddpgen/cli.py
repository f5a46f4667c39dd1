"""The commands, and the one place where an error becomes what people see."""

import errno
import importlib
import os
from collections.abc import Sequence

import click

from ddpgen import __version__, console, signals

# Each with its line in `ddpgen --help`; ddpgen.commands.<name> is imported when it is called.
_COMMANDS = {
    "new": "Make a training project in a new folder.",
    "update": "Bring the template's later improvements into a project.",
    "diff": "Show what you have changed in a project.",
    "add": "Add an optional part to a project.",
    "remove": "Remove an optional part from a project.",
    "adopt": "Link a project that has lost its answers file.",
    "doctor": "Say whether a project can train here, and whether it trains right.",
    "presets": "List what a project's model and data can start from.",
}


class _Commands(click.Group):
    """A group that knows its commands by name only, so that --help stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(f"ddpgen.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ddpgen", message="%(prog)s %(version)s")
def group() -> None:
    """Write data-parallel PyTorch training projects that you own.

    Start with: ddpgen new myproj
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. No exception but a signal's gets out.

    Returns:
        0, 1 when something is in the way, 2 when the command line is wrong, 130 after Ctrl-C.
    """
    console.prepare_streams()
    code = _call(arguments)
    try:
        console.flush()
    except OSError:  # said already, or a pipe whose reader has ended
        console.abandon_output()
        return code or 1
    return code


def _call(arguments: Sequence[str]) -> int:
    try:
        code = group.main(list(arguments), prog_name="ddpgen", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_text:
        help_text.show()
        return help_text.exit_code
    except BrokenPipeError:
        return 1  # the reader of our output has ended, as `| head -1` does: nobody to tell
    except (KeyboardInterrupt, click.Abort):
        console.error(console.Failure("interrupted"))
        return 130
    except Exception as problem:
        if os.environ.get("DDPGEN_DEBUG"):
            import traceback

            traceback.print_exception(problem)
        if _was_interrupted(problem):
            console.error(console.Failure("interrupted"))
            return signals.exit_code() or 130
        failure = _translate(problem)
        console.error(failure)
        return failure.exit_code
    return code if isinstance(code, int) else 0


def _was_interrupted(problem: BaseException | None) -> bool:
    """Say whether an error came up after a signal, or after a Ctrl-C that a question has read."""
    if signals.exit_code():  # such as of a git that died of the same signal
        return True
    while problem is not None and not isinstance(problem, KeyboardInterrupt):
        problem = problem.__context__
    return problem is not None


def _translate(problem: Exception) -> console.Failure:
    if isinstance(problem, console.Failure):
        return problem
    if isinstance(problem, click.UsageError):
        where = problem.ctx.command_path if problem.ctx else "ddpgen"
        return console.UsageFailure(problem.format_message().rstrip("."), f"{where} --help")
    if isinstance(problem, click.ClickException):
        return console.Failure(problem.format_message())
    if isinstance(problem, OSError):
        return _translate_os_error(problem)
    return _bug(problem)


def _translate_os_error(problem: OSError) -> console.Failure:
    reason = problem.strerror or str(problem)
    path = problem.filename2 or problem.filename  # of a rename it is the target that says more
    where = f" ({os.fsdecode(path)})" if path else ""
    if problem.errno in {errno.ENOSPC, errno.EDQUOT}:
        return console.Failure(
            f"{reason}; nothing was left behind{where}", "make room, or choose another disk"
        )
    if problem.errno == errno.ENAMETOOLONG:
        return console.Failure("the path is too long for this file system", "choose a shorter path")
    if problem.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return console.Failure(f"{reason}{where}", "choose a folder of your own")
    return console.Failure(f"{reason}{where}")


def _bug(problem: Exception) -> console.Failure:
    what = str(problem).strip().split("\n")[0]
    return console.Failure(
        f"ddpgen has a bug: {type(problem).__name__}: {what}",
        f"{console.DEBUG}, and report what it prints",
    )
