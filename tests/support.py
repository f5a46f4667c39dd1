"""What the tests share: a command line that is run to its end, and work in a folder."""

import os
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IDENTITY = ("-c", "user.name=x", "-c", "user.email=x@localhost")


@dataclass(frozen=True)
class Result:
    """What a command left behind: its exit code and its two streams, as text."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Tool:
    """The installed `ddpgen`, with a home of its own, started in one folder.

    Attributes:
        executable: the console script of the installed wheel.
        cwd: where it is started; empty at first.
        env: the environment; a test may change its copy.
    """

    executable: Path
    cwd: Path
    env: dict[str, str] = field(repr=False)

    def __call__(
        self,
        *arguments: str | bytes | Path,
        prefix: Sequence[str] = (),
        env: dict[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
        cwd: Path | None = None,
    ) -> Result:
        """Run a command line to its end; `prefix` is a command that runs it, such as setpriv."""
        done = subprocess.run(
            [*prefix, self.executable, *arguments],
            cwd=cwd or self.cwd,
            env={**self.env, **(env or {})},
            stdin=stdin,
            capture_output=True,
            timeout=120,
            check=False,
        )
        out, err = (
            stream.decode("utf-8", "surrogateescape") for stream in (done.stdout, done.stderr)
        )
        return Result(done.returncode, out, err)


def snapshot(folder: Path) -> dict[str, object]:
    """Return all that is in a folder, so that two moments can be compared.

    Returns:
        for each path below the folder: the content of a file, where a link leads, or "folder".
    """
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = "folder"
    return found


def without_root_powers() -> list[str]:
    """Return a command that takes from root the right to pass over permissions.

    Tests may run as root, for whom no folder is read-only. Anybody else needs no prefix.
    """
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return what it prints."""
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: Path) -> None:
    """Commit all that there is."""
    git(folder, "add", "--all")
    git(folder, *IDENTITY, "commit", "--quiet", "--message", "work")


def edit(file: Path, before: str, after: str) -> None:
    """Replace a text that is in a file once."""
    text = file.read_text()
    assert text.count(before) == 1, (file, before, text.count(before))
    file.write_text(text.replace(before, after))


def free_port() -> str:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
