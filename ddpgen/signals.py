"""Signals that end a command: they become exceptions, and it is remembered that one came.

Python drops an exception that a signal raises in a `__del__` or the like. What the signal has done
meanwhile, such as ending a git that was at work, then looks like an error of its own.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []
_holding = False


def unwind() -> None:
    """Let these signals unwind this process, so that temporary folders are removed."""
    for number in _ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP: leave that alone
            signal.signal(number, _end)
    sys.unraisablehook = _report_dropped


def ignore() -> None:
    """Ignore them from here on: the work is done, a late Ctrl-C would only print a traceback."""
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Let a signal that comes meanwhile unwind this process at the end of the block.

    For the start of a process: who leaves Popen in its midst has started something and does not
    know it. A mask would not do, because the new process would inherit it.
    """
    global _holding
    before = len(_received)
    _holding = True
    try:
        yield
    finally:
        _holding = False
    if len(_received) > before:
        raise _unwinding(_received[-1])


def exit_code() -> int | None:
    """Return the exit code after a signal; None when none has come."""
    return 128 + _received[0] if _received else None


def _end(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
    if not _holding:
        raise _unwinding(number)


def _unwinding(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _report_dropped(dropped: "UnraisableHookArgs") -> None:
    """Leave out the traceback of an exception that is a signal's; `exit_code` tells of it."""
    if not (_received and isinstance(dropped.exc_value, (KeyboardInterrupt, SystemExit))):
        sys.__unraisablehook__(dropped)
