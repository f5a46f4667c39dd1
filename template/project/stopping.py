"""How a run ends before its time: by a signal, a dead launcher, a step that hangs."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

# Exit codes of launch.sh; the others are 0 (done) and 1 (failed).
WRONG_SETTINGS = 2
TRY_AGAIN = 75  # stopped by a signal, the same command goes on: EX_TEMPFAIL of sysexits.h

PR_SET_PDEATHSIG = 1  # prctl(2)
EXIT_SECONDS = 10.0


def stop_signals() -> list[signal.Signals]:
    """Return the signals that ask a run to stop."""
    signals = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # it is ignored under nohup
        signals.append(signal.SIGHUP)
    return signals


def end_on_signals() -> None:
    """Let a signal, or the death of torchrun, end this process at once: nothing to save yet."""
    for number in stop_signals():
        signal.signal(number, signal.SIG_DFL)  # Python's own for Ctrl-C would print a traceback
    die_with_parent(signal.SIGTERM)
    if "LAUNCHER_PID" not in os.environ:
        return
    exit_code = Path(os.environ["EXIT_CODE_FILE"])
    if (  # what has happened while torch was imported?
        os.getppid() != int(os.environ["LAUNCHER_PID"])  # launch.py was killed
        or stopped_mark(exit_code).exists()  # or stopped, and could not tell us
    ):
        os._exit(0)
    exit_code.unlink(missing_ok=True)  # of the processes before these, in an elastic run


def stopped_mark(exit_code: Path) -> Path:
    """Return the file by which launch.py tells processes that they came too late."""
    return exit_code.with_suffix(".stopped")


def die_with_parent(number: signal.Signals) -> None:
    """Let Linux send this signal when the parent is killed and cannot end its processes any more.

    Otherwise they train on, unseen.
    """
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


class StopRequest:
    """From its creation on, remembers that a signal asked this process to stop.

    A rank must not stop alone: the others would wait for it. So the handler only takes a note, and
    all ranks agree on a step (exchange.py).
    """

    def __init__(self) -> None:
        self.signal = 0
        for number in stop_signals():
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number


def watch(seconds: float) -> None:
    """End this process unless called again within so many seconds; first print all its stacks.

    The timer runs in C, so it also ends a process whose main thread hangs inside a collective. The
    processes of a machine print one after the other: their lines would mix.
    """
    turn = int(os.environ.get("LOCAL_RANK", "0"))
    faulthandler.dump_traceback_later(seconds + 0.2 * turn, exit=True)


def end_soon() -> None:
    """Bound the exit after an error: DataLoader workers and threads of gloo can hold it up."""
    import multiprocessing  # not above: launch.py must soon be ready for a signal

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # DataLoader's would raise one more error
    for child in multiprocessing.active_children():
        child.kill()  # they ignore the SIGTERM by which Python would end them, and are waited for
    watch(EXIT_SECONDS)


def leave(code: int) -> NoReturn:
    """End this process with the exit code that launch.sh shall have. Call it on every rank.

    Not by the interpreter's own shutdown: in it a thread of gloo can wait for the GIL for ever,
    long after the work is done and saved. https://github.com/pytorch/pytorch/issues/56297
    """
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.flush()
    sys.stderr.flush()
    if file := os.environ.get("EXIT_CODE_FILE"):
        Path(file).write_text(str(code), encoding="ascii")
        # 0 tells torchrun not to start the processes again. In a range of machines it shall:
        # when one of them leaves or joins, the others save, stop and start again.
        elastic = ":" in os.environ.get("NNODES", "")
        code = TRY_AGAIN if elastic and code == TRY_AGAIN else 0
    os._exit(code)
