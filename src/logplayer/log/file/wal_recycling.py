"""The write-ahead log of a sealed segment is used again for a later one.

To write over blocks that a file has already costs a sync much less than to let it grow: about a third of an append, and
half of a large group. SQLite takes a write-ahead log whose header is not valid for an empty one, and the frames after
it for what they are, left over: they do not bear the salt of its next header.

Whether nobody has it open any more only SQLite can tell, which deletes it when the last connection of all processes is
closed. So it gets a second name first, and is spare if it loses the other. The steps, and what a crash leaves: give it
the second name; close the segment; sync the directory; make its header invalid, sync; give it the name SPARE. Opening
removes SPARE and what is half made. A spare is put in place before the segment that it is for has its name, so no
reader ever sees that segment with another.
"""

from __future__ import annotations

import os
from pathlib import Path

from logplayer.crashpoint import crashpoint
from logplayer.fsync import sync

NAME = "SPARE"
HEADER_BYTES = 32


class Spare:
    """At most one, in the directory of a log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / NAME
        self._half = folder / f"{NAME}.new"

    def hold(self, wal: Path) -> None:
        """Give the write-ahead log ``wal``, all of which is in its database, a second name."""
        self.let_go()
        os.link(wal, self._half)
        crashpoint("spare-held")

    def let_go(self) -> None:
        """Give up what is held: it stays where it is."""
        self._half.unlink(missing_ok=True)

    @property
    def alone(self) -> bool:
        """Whether what is held has lost its first name."""
        return os.stat(self._half).st_nlink == 1

    def keep(self, bytes_max: int) -> None:
        """What is held is spare from here on."""
        sync(self._folder)  # Before it changes: its segment must not find it again.
        crashpoint("spare-moved")
        fd = os.open(self._half, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, bytes(HEADER_BYTES), 0)
            if os.fstat(fd).st_size > bytes_max:
                os.ftruncate(fd, bytes_max)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        os.rename(self._half, self._path)
        crashpoint("spare-kept")

    def place(self, wal: Path) -> None:
        """Make it the write-ahead log of a segment that is not there yet; nothing if there is none."""
        try:
            os.rename(self._path, wal)
        except FileNotFoundError:
            return
        crashpoint("spare-placed")

    def drop(self) -> None:
        """Give its room back."""
        self._path.unlink(missing_ok=True)
