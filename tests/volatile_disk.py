"""A disk whose power can be cut: what was not synced by then is gone.

An ext4 file system of its own in an image file. :meth:`VolatileDisk.cut` asks ext4 to shut down without writing its
journal (the call that file system tests use for this), mounts the image again, and lets ext4 recover: what is there
then is what a machine would find after a power failure whose disk tells the truth about its cache. It needs root and a
loop device. :func:`own_mounts` first: then the mounts of a process end with it, also if it is killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN: _IOR('X', 125, __u32).
_WITHOUT_JOURNAL = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH.
IMAGE_BYTES = 2 << 30  # Sparse: it takes the room that is used.
BUSY_SECONDS = 60.0
_CLONE_NEWNS = 0x20000


class NoVolatileDisk(Exception):
    """This machine cannot make one; the message says why."""


def own_mounts() -> None:
    """From now on this process and its children see mounts of their own; call it before there are threads."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise NoVolatileDisk(f"mounts of its own are refused: {os.strerror(ctypes.get_errno())}")
    _call("mount", "--make-rprivate", "/")


class VolatileDisk:
    """Mounted at ``path`` from an image beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._image = path.with_name(f"{path.name}.img")
        path.mkdir(parents=True)
        with open(self._image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        _call("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self._image))
        self._mount()

    def _mount(self) -> None:
        _call("mount", "-o", "loop", str(self._image), str(self.path))
        self.path.chmod(0o700)

    def cut(self) -> None:
        """The power is gone: from now on nothing is written, and every write fails. :meth:`restore` brings it back."""
        disk = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(disk, _SHUTDOWN, struct.pack("I", _WITHOUT_JOURNAL))
        finally:
            os.close(disk)

    def restore(self) -> None:
        """The power is back."""
        self.unmount()
        self._mount()

    def unmount(self) -> None:
        """Whoever had files open must have ended."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return _call("umount", str(self.path))
            except NoVolatileDisk:  # The kernel still closes the files of a process that was killed.
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def remove(self) -> None:
        """Unmount it, and give its room back."""
        _call("umount", "--lazy", str(self.path))  # After a failure somebody may still use it.
        self._image.unlink()


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoVolatileDisk(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
