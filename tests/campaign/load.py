"""Producers for a campaign: they append all the time, through everything that happens to the log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from logplayer.errors import LogError
from logplayer.log.client import LogClient
from logplayer.log.producer import Producer
from logplayer.log.protocol import Kind, Record
from logplayer.wire.entries import encode_mutation

PRODUCERS = 3
GROUP_MAX = 20


class Producers:
    """Several producers in this process, each with a connection of its own."""

    def __init__(self, port: int, targets: list[str], rate: int, seed: int, entries_max: int | None) -> None:
        self.answers: dict[tuple[str, int], int] = {}  # (producer, sequence) -> index
        self._port = port
        self._targets = targets
        self._rng = random.Random(f"load {seed}")
        self._pause = PRODUCERS * GROUP_MAX / 2 / rate
        self._entries_max = entries_max
        self._stopping = False

    @property
    def appended(self) -> int:
        return len(self.answers)

    def stop(self) -> None:
        """Each producer ends once its last entries are answered."""
        self._stopping = True

    async def run(self) -> None:
        await asyncio.gather(*(self._produce(f"p{number}") for number in range(PRODUCERS)))

    async def _produce(self, producer: str) -> None:
        log = await self._open()
        mine = await Producer.open(log, producer)
        while not self._stopping and not self._full():
            waiting = [
                mine.append_payload(self._payload(producer, mine.sequence + 1))
                for _ in range(self._rng.randint(1, GROUP_MAX))
            ]
            for receipt in await asyncio.gather(*waiting):
                self.answers[receipt.producer, receipt.sequence] = receipt.index
            await asyncio.sleep(self._rng.uniform(0, 2 * self._pause))
        await log.close()

    async def _open(self) -> LogClient:
        while True:
            try:
                return await LogClient.open(f"127.0.0.1:{self._port}", patience_seconds=1)
            except LogError:
                await asyncio.sleep(0.1)

    def _full(self) -> bool:
        return self._entries_max is not None and self.appended >= self._entries_max

    def _payload(self, producer: str, sequence: int) -> bytes:
        """A key of its own; a shared one that must end with its newest value; sometimes a delete, or a named target."""
        mine = f"{producer}/{sequence}"
        changes: list[tuple[str, str | None, str]] = [(f"own/{mine}", mine, "")]
        changes.append((f"shared/{sequence % 5}", mine, ""))
        if sequence % 3 == 0:
            changes.append((f"own/{producer}/{sequence - 1}", None, ""))
        if sequence % 4 == 0:
            changes.append((f"named/{producer}", mine * 20, self._rng.choice(self._targets)))
        return b"".join(
            encode_mutation(key.encode(), None if value is None else value.encode(), target).encoded
            for key, value, target in changes
        )

    def compare(self, records: Iterable[Record]) -> list[str]:
        """Whether the log holds each answered entry once, at the index that was answered."""
        found: dict[tuple[str, int], list[int]] = {}
        for record in records:
            if record.kind == Kind.DATA:
                found.setdefault((record.producer, record.sequence), []).append(record.index)
        problems = [f"the log holds {key} at {at}" for key, at in found.items() if len(at) > 1]
        for key, index in self.answers.items():
            if found.get(key) != [index]:
                problems.append(f"{key} was acknowledged at {index}, the log has it at {found.get(key)}")
        return problems[:10]
