"""The door: signals become exceptions here, before anything slow is imported.

A signal that ends the process must unwind it, so that the temporary folder is removed. Nothing else
is decided here; every error is translated in `ddpgen.cli.run`.
"""

import gc
import sys
from typing import NoReturn

from ddpgen import signals


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    gc.disable()  # a command lives for a second, and most of what it makes is modules that stay
    try:
        signals.unwind()
        from ddpgen.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    finally:
        signals.ignore()
    sys.exit(code)


if __name__ == "__main__":
    main()
