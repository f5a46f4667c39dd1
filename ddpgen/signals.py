"""Signals that end a command: they become exceptions, and it is remembered that one came.

Python drops an exception that a signal raises in a `__del__` or the like. What the signal has done
meanwhile, such as ending a git that was at work, then looks like an error of its own.
"""

import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []


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


def exit_code() -> int | None:
    """Return the exit code after a signal; None when none has come."""
    return 128 + _received[0] if _received else None


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    _received.append(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _report_dropped(dropped: "UnraisableHookArgs") -> None:
    """Leave out the traceback of an exception that is a signal's; `exit_code` tells of it."""
    if not (_received and isinstance(dropped.exc_value, (KeyboardInterrupt, SystemExit))):
        sys.__unraisablehook__(dropped)
