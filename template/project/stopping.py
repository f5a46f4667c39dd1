"""How a run ends before its time: signals, a dead launcher, a step that hangs."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
PR_SET_PDEATHSIG = 1  # prctl(2)
EXIT_SECONDS = 10.0


class StopRequest:
    """Remembers that a signal asked this process to stop.

    A rank must not stop alone: the others would wait for it. So the handler only takes a note, and
    all ranks agree on a step (exchange.py).
    """

    def __init__(self) -> None:
        self.signal = 0
        for number in STOP_SIGNALS:
            signal.signal(number, self._note)
        _ask_for_signal_when_parent_dies()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number


def _ask_for_signal_when_parent_dies() -> None:
    """Let Linux send SIGTERM when torchrun is killed: it cannot tell its processes any more."""
    if not sys.platform.startswith("linux") or "RANK" not in os.environ:
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent or parent == 1:  # it died before the request
        os.kill(os.getpid(), signal.SIGTERM)


def tell_launcher() -> None:
    """Tell launch.py that the run stopped because it was asked to: torchrun hides exit codes."""
    if marker := os.environ.get("STOP_MARKER"):
        Path(marker).touch()


def watch(seconds: float) -> None:
    """End this process unless called again within so many seconds; first print all its stacks.

    The timer runs in C, so it also ends a process whose main thread hangs inside a collective.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)


def end_soon() -> None:
    """Bound the exit after an error: a thread of gloo can keep the interpreter from ending."""
    watch(EXIT_SECONDS)


def leave() -> NoReturn:
    """End this process after success, without the interpreter's own shutdown.

    In it a thread of gloo can wait for the GIL for ever, long after the work is done and saved.
    https://github.com/pytorch/pytorch/issues/56297
    """
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
