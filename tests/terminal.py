"""A real terminal for a program: what it shows can be waited for, and keys can be typed."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

ENTER, SPACE, DOWN, CTRL_C, CTRL_D = "\r", " ", "\x1b[B", "\x03", "\x04"


class Terminal:
    """A program that runs on a pseudo-terminal of its own.

    Args:
        command: the program and its arguments.
        cwd: where it is started.
        env: its environment.
    """

    def __init__(self, command: Sequence[str | Path], cwd: Path, env: dict[str, str]) -> None:
        """Start the program."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, b"\x28\x00\x78\x00\x00\x00\x00\x00")  # 40 x 120
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, "TERM": "xterm", "NO_COLOR": "1"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.shown = ""
        self._seen = 0

    def expect(self, text: str, seconds: float = 60) -> None:
        """Wait until the program shows a text after the last one that was waited for."""
        deadline = time.monotonic() + seconds
        while (found := self.shown.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"{text!r} was not shown: {self.shown!r}"
            assert self._read(), f"ended before {text!r} was shown: {self.shown!r}"
        self._seen = found + len(text)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def end(self) -> int:
        """Read what is left to show and return the exit code of the program."""
        while self._read():
            pass
        code = self.process.wait(timeout=60)
        os.close(self._master)
        return code

    def kill(self) -> None:
        """End the program, should a test have failed before its end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _read(self) -> bool:
        """Add what is shown next; False when the program has closed the terminal."""
        if not select.select([self._master], [], [], 60)[0]:
            return False
        try:
            new = os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # EIO: how Linux says that the other side is closed
            return False
        self.shown += new
        for _ in range(new.count("\x1b[6n")):  # a terminal tells where its cursor is when asked
            self.type("\x1b[1;1R")
        return bool(new)
