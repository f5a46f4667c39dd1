"""The door: signals become exceptions here, before anything slow is imported.

A signal that ends the process must unwind it, so that the temporary folder is removed. Nothing else
is decided here; every error is translated in `ddpgen.cli.run`.
"""

import signal
import sys
from types import FrameType
from typing import NoReturn


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP: leave that alone
            signal.signal(number, _end)
    try:
        from ddpgen.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
