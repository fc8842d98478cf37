"""The command `wigwag`, in the wheel: the same as the standalone binary."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command with the arguments of the process."""
    from . import _native

    # Python's handler only sets a flag, and no Python code runs here that would check it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.main(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
