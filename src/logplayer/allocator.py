"""How much freed memory a process keeps, instead of giving it back to the kernel at once.

A server of ours takes and frees a few megabytes for each read of the log and for each write of a batch. By default
glibc gives most of that back each time, and the kernel has to find, clear and map the same pages again: of a player at
full speed, that is a fifth of its processor time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

KEPT_BYTES = 32 * 1024 * 1024
MAPPED_BYTES = 4 * 1024 * 1024  # What is larger is mapped by itself, and given back as soon as it is free.

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # Of malloc.h.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Keep up to 32 MiB. It counts for the whole process, so a library does not call it; commands and Spark's tasks do.

    Whoever has set one of glibc's variables has decided already. Another C library decides for itself.
    """
    if any(os.environ.get(name) for name in _VARIABLES):
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, MAPPED_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
