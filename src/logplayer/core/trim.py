"""The trim point: how much of the log nobody needs any more."""

from __future__ import annotations

from collections.abc import Iterable

from logplayer.core.target_queue import TargetQueue


def trim_point(queues: Iterable[TargetQueue], current: int, archived: int | None, kept: int | None = None) -> int:
    """The largest index up to which the log may be trimmed.

    Every registered target counts, present or absent, with what it durably has by its own word, as far as that is the
    history that the main stream has read; a target that has
    not reported yet counts with the index that it reserved when it was added (0 if it has been there from the start).
    ``archived`` is None without an archive policy; ``kept`` is the first entry that must stay because it reached
    nobody, or because nobody has looked yet. Never past the main stream: it has yet to see the records there.
    """
    point = current if archived is None else min(current, archived)
    for queue in queues:
        point = min(point, queue.trimmable())
    return point if kept is None else min(point, kept - 1)
