"""The door: signals become exceptions here, before anything slow is imported.

A signal that ends the process must unwind it, so that the temporary folder is removed. Nothing else
is decided here; every error is translated in `ddpgen.cli.run`.
"""

import gc
import signal
import sys
from types import FrameType
from typing import NoReturn

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    gc.disable()  # a command lives for a second, and most of what it makes is modules that stay
    try:
        _unwind_on_signals()
        from ddpgen.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    finally:
        for number in _ENDINGS:  # the work is done: a late Ctrl-C would only print a traceback
            signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def _unwind_on_signals() -> None:
    for number in _ENDINGS[1:]:  # Python itself turns SIGINT into KeyboardInterrupt
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP: leave that alone
            signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
