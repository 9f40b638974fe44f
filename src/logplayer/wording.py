"""Numbers as a message says them: a count with its noun, a time in its unit."""

from __future__ import annotations


def plural(count: int, one: str, many: str = "") -> str:
    """``1 entry``, ``2 entries``: a number with the word that fits it."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """A time in the unit that a person would choose."""
    for unit, length, least in (("d", 86_400, 2), ("h", 3600, 2), ("min", 60, 2)):
        if seconds >= least * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
