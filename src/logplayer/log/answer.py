"""What becomes of one call of ``append``, and who waits for it."""

from __future__ import annotations

from typing import Protocol

from logplayer.errors import LogError

GroupOutcome = list[int] | LogError
"""An index for each entry of the group, or why the whole of it was refused."""


class GroupAnswer(Protocol):
    """What takes the indexes of a group: a future of asyncio is one."""

    def done(self) -> bool: ...

    def set_result(self, result: list[int], /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...
