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


def milliseconds(value: float) -> str:
    """A delay, as the page writes it (``ms`` in parts.js)."""
    if value >= 10_000:
        return duration(value / 1000)
    if value >= 1000:
        return f"{int(value / 100 + 0.5) / 10:g} s"
    return f"{int(value + 0.5)} ms" if value >= 10 else f"{int(value * 100 + 0.5) / 100:g} ms"


def size(count: float) -> str:
    """Bytes in the unit that a person would choose, as the page writes them (``bytes`` in parts.js)."""
    units = ("B", "KB", "MB", "GB", "TB")
    unit = 0
    while count >= 1024 and unit < len(units) - 1:
        count, unit = count / 1024, unit + 1
    number = int(count * 10 + 0.5) / 10 if unit and count < 10 else int(count + 0.5)
    return f"{number:g} {units[unit]}"
