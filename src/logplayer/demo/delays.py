"""How long from the log's acknowledgement until a shard has it durably: asked of the shards themselves."""

from __future__ import annotations

import statistics
import time
from collections import deque

from logplayer.errors import LogPlayerError
from logplayer.wire import codec
from logplayer.wire.transport import Link, connect

WAITING_MAX = 50


class IndexWatcher:
    """One connection to one shard, over which it is asked to answer once it has reached an index."""

    def __init__(self, shard: str, address: str) -> None:
        self._shard = shard
        self._address = address
        self._link: Link | None = None
        self._ready = False
        self._waiting: deque[tuple[int, float]] = deque()
        self.samples: list[tuple[float, float]] = []  # When it was asked, and how many milliseconds it took.

    async def ask(self, index: int) -> None:
        """Note how long the shard takes from now to reach ``index``; skipped while it is away or busy answering."""
        if self._link is None:
            try:
                self._link = await connect(self._address, self, timeout=0.5)
            except LogPlayerError:
                return  # Killed or frozen: the demo does that. What it misses meanwhile is not sampled.
            self._ready = True
        if self._ready and len(self._waiting) < WAITING_MAX:
            self._ready = False
            self._waiting.append((index, time.perf_counter()))
            self._link.send(codec.encode_ask(codec.AskPosition(self._shard, index)))

    def received(self, data: bytes) -> None:
        answer = codec.decode_to_player(data)
        now = time.perf_counter()
        while (
            isinstance(answer, codec.PositionAnswer) and self._waiting and self._waiting[0][0] <= answer.position.index
        ):
            asked = self._waiting.popleft()[1]
            self.samples.append((asked, (now - asked) * 1000))

    def writable(self) -> None:
        self._ready = True

    def closed(self, error: Exception | None) -> None:
        self._link = None
        self._waiting.clear()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()


def percentiles(samples: list[float]) -> dict[str, float]:
    """p50, p90, p99 and the largest, in milliseconds."""
    if len(samples) < 2:
        return {}
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    named = {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "max": max(samples)}
    return {name: round(value, 2) for name, value in named.items()}
