"""The trim point: how much of the log nobody needs any more."""

from __future__ import annotations

from collections.abc import Iterable

from logplayer.core.queue import TargetQueue


def trim_point(queues: Iterable[TargetQueue], current: int, archived: int | None) -> int:
    """The largest index up to which the log may be trimmed.

    Every registered target counts, present or absent, with what it durably has by its own word; a target that has
    not reported yet counts with the index that it reserved when it was added (0 if it has been there from the start).
    ``archived`` is None without an archive policy. Never past the main stream: it has yet to see the records there.
    """
    point = current if archived is None else min(current, archived)
    for queue in queues:
        if queue.acked < point:
            point = queue.acked
    return point
