"""Which version of a protocol two peers speak: the newest that both know, or none, and then a sentence that says why.

A peer says which versions it speaks in whatever it sends first. The other one, the *server* of the two (a target, a log
server), picks: the lower of the two newest, if that is not older than what either still speaks. Its answer says which
one it picked, so a peer that says nothing is recognised as well: it is older than the first version that had a number.

Both protocols, that of targets and that of the log server, have the same number: a release speaks a range of versions,
and an operator wants one answer to "which of them must I upgrade?".

Raise ``OURS.newest`` with any change after which an older peer would misunderstand what it reads, and ``OURS.oldest``
when the code that speaks an older version goes. A new field that an older peer may ignore needs neither.
"""

from __future__ import annotations

from typing import NamedTuple

from logplayer.errors import VersionMismatch


class Versions(NamedTuple):
    """Every version from ``oldest`` to ``newest``."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        if not self.newest:
            return "no protocol version"
        if self.oldest == self.newest:
            return f"protocol version {self.newest}"
        return f"protocol versions {self.oldest} to {self.newest}"


OURS = Versions(1, 1)
UNSAID = Versions(0, 0)  # Of a peer from before the first version.


def agreed(theirs: Versions) -> int | None:
    """The version in which to speak with a peer of ``theirs``; None if there is none."""
    version = min(theirs.newest, OURS.newest)
    return version if version >= max(theirs.oldest, OURS.oldest) else None


def conflict(them: str, theirs: Versions, us: str) -> str:
    """Why the two cannot speak with each other, and which of them must be upgraded."""
    lagging = us if theirs.newest > OURS.newest else them
    return f"the {them} speaks {theirs}, the {us} speaks {OURS}: upgrade the {lagging}"


def require(version: int, them: str, us: str, where: str = "") -> None:
    """Raise VersionMismatch if what ``them`` answered is in a version that we do not speak.

    Args:
        version: What the answer says; 0 if it says none.
        them: What answered, a target or a log server.
        us: What asked, for the message.
        where: Its address, for the message.
    """
    if not OURS.oldest <= version <= OURS.newest:
        at = f"{where}: " if where else ""
        raise VersionMismatch(at + conflict(them, Versions(version, version), us))


def to_text(versions: Versions) -> str:
    """As in the metadata of a call to the log server."""
    return f"{versions.oldest}-{versions.newest}"


def from_text(text: str) -> Versions | None:
    """The inverse; ``UNSAID`` for nothing, None for what is not a range of versions."""
    if not text:
        return UNSAID
    oldest, dash, newest = text.partition("-")
    if not (text.isascii() and dash and oldest.isdecimal() and newest.isdecimal() and len(text) < 20):
        return None
    return Versions(int(oldest), int(newest))
