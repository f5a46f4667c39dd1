"""git, run so that nothing the user has configured gets in its way."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from ddpgen import signals
from ddpgen.console import Failure

# What `git rev-parse --local-env-vars` lists: set inside a hook, they point at another repository,
# and what stands in GIT_CONFIG_PARAMETERS, as after `git -c`, would win over our settings.
LOCAL_VARIABLES = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS", "GIT_DIR",
        "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
    }
)  # fmt: skip

# A hook, a signature or a line-ending check of the user's is for their commits, not for ours.
SETTINGS = {
    "core.hooksPath": os.devnull,
    "commit.gpgSign": "false",
    "core.safecrlf": "false",
    "core.fsmonitor": "false",
    "gc.auto": "0",
}


class GitFailure(Failure):
    """git said no; the message is the last line of what it said."""


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of this process with settings that win over every file of git.

    Args:
        settings: such as {"gc.auto": "0"}; SETTINGS come with them.
    """
    kept = {name: value for name, value in os.environ.items() if name not in LOCAL_VARIABLES}
    count = int(kept.get("GIT_CONFIG_COUNT") or 0)
    for number, (key, value) in enumerate({**SETTINGS, **settings}.items(), start=count):
        kept[f"GIT_CONFIG_KEY_{number}"] = key
        kept[f"GIT_CONFIG_VALUE_{number}"] = value
        kept["GIT_CONFIG_COUNT"] = str(number + 1)
    return {**kept, "LC_ALL": "C", "GIT_LFS_SKIP_SMUDGE": "1"}


def run(
    folder: Path,
    *arguments: str | Path,
    stdin: bytes = b"",
    settings: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> bytes:
    """Run git in a folder and return what it prints.

    Args:
        folder: where it is started.
        arguments: its command line.
        stdin: what it reads.
        settings: more settings, on top of SETTINGS.
        env: more variables of its environment.

    Raises:
        GitFailure: git is not installed, or its exit code is not 0.
    """
    command = ["git", *map(str, arguments)]
    variables = {**environment(settings or {}), **(env or {})}
    process = None
    try:
        with signals.held():
            process = _start(command, folder, variables)
        out, said = process.communicate(stdin)
    except BaseException:
        if process is not None:
            process.kill()
            process.wait()  # subprocess.run would not: git would still write into a removed folder
        raise
    if process.returncode != 0:
        raise GitFailure(*_two_lines(said, process.returncode))
    return out


def _start(command: list[str], folder: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(command, cwd=folder, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
    except FileNotFoundError:
        raise GitFailure("git is not installed, and this needs it", "install git") from None
    except OSError as problem:
        raise GitFailure(f"git: it does not start: {problem.strerror}") from None


def difference(
    folder: Path,
    *where: str,
    colour: bool,
    new: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
) -> str:
    """Return how the files of a folder differ from git's index, as git shows it.

    Args:
        folder: where it is started.
        where: more of the command line.
        colour: whether with the codes of a terminal.
        new: files that the index does not have, shown as added; the index is changed for that.
        env: more variables of git's environment, such as another index.
    """
    names = "\0".join(sorted(new)).encode(errors="surrogateescape")
    if names:
        add = ("add", "--force", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
        run(folder, *add, stdin=names, env={**(env or {}), "GIT_LITERAL_PATHSPECS": "1"})
    shown = ("--no-ext-diff", "--no-textconv", "--no-renames")
    coloured = f"--color={'always' if colour else 'never'}"
    return run(folder, "diff", *shown, coloured, *where, env=env).decode(errors="surrogateescape")


def text(folder: Path, *arguments: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Run git and return what it prints as text, without the newline at its end."""
    return os.fsdecode(run(folder, *arguments, env=env)).removesuffix("\n")


def _two_lines(said: bytes, code: int) -> tuple[str, str]:
    """Return the line of git that says what is wrong, and the command that it advises."""
    lines = [line.strip() for line in os.fsdecode(said).splitlines() if line.strip()]
    wrong = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    advice = [line for line in lines if line.startswith("git config ")]  # safe.directory
    message = (wrong or lines or [f"exit code {code}"])[-1]
    return f"git: {message.removeprefix('fatal: ')}", advice[-1] if advice else ""
