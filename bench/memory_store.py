"""A store in memory, as ``target serve --store bench.memory_store:BenchStore`` wants one."""

from __future__ import annotations

from logplayer.target.stores.memory import MemoryTarget


class BenchStore(MemoryTarget):
    """The place does not matter: nothing is kept."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__()
