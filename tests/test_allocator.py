"""Freed memory is kept for what needs it next, up to a limit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from logplayer.allocator import KEPT_BYTES
from tests import child_environment
from tests.servers import missing

PROGRAM = """
import resource, sys
from logplayer.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def turn():
    blocks = [b"x" * (500_000 + n) for n in range(20)]
    blocks.clear()
turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str, **variables: str) -> int:
    """Pages that the kernel had to give again, in 20 turns of 10 MB."""
    environment = {name: value for name, value in child_environment().items() if "MALLOC" not in name}
    command = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(command, env={**environment, **variables}, capture_output=True, check=True).stdout)


def test_what_was_freed_is_used_again() -> None:
    if platform.libc_ver()[0] != "glibc":
        missing("another C library than glibc")
    pages = 20 * 10_000_000 // os.sysconf("SC_PAGE_SIZE")
    assert KEPT_BYTES > 10_000_000
    assert faults("leave") > pages // 2
    assert faults("keep") < pages // 20


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_whoever_has_decided_is_not_overruled(name: str) -> None:
    if platform.libc_ver()[0] != "glibc":
        missing("another C library than glibc")
    assert faults("keep", **{name: "131072"}) > 20 * 10_000_000 // os.sysconf("SC_PAGE_SIZE") // 2
