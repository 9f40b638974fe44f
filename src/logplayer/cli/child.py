"""``python -m logplayer.cli.child PARENT ARGUMENT...``: the ``logplayer`` command, which ends when its parent does.

The child arranges that itself. A parent that did it between fork and exec would run code in a fork of a process with
threads and open gRPC channels, which now and then dies there without a word.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from logplayer.cli.main import main

_PR_SET_PDEATHSIG = 1


def run() -> None:
    parent = int(sys.argv.pop(1))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # It ended before the signal was arranged.
    main()


if __name__ == "__main__":
    run()
