"""The process that holds the targets, and notes when each entry is applied."""

from __future__ import annotations

from array import array
from pathlib import Path
from time import monotonic_ns
from typing import Any

from bench.actor import usage
from bench.bare import Receiver, serve_grpc, serve_tcp
from logplayer.core.fence import Position
from logplayer.target.protocol import Change, Target
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.target.stores.sqlite import SqliteTarget


class Noted:
    """A target that notes, after the store has applied a change, which entries of it are now applied."""

    def __init__(self, number: int, store: Target, stamps: array[int]) -> None:
        self.inline = bool(getattr(store, "inline", False))
        self._number = number
        self._store = store
        self._stamps = stamps

    def position(self) -> Position:
        return self._store.position()

    def apply(self, change: Change) -> Position:
        after = self._store.apply(change)
        if change.batch is not None:
            at = monotonic_ns()
            for message in change.batch.messages:
                self._stamps.extend((self._number, message.index, at))
        return after


class Targets:
    """An actor: see ``bench.actor``. It serves one set of targets at a time."""

    def __init__(self) -> None:
        self._stamps: array[int] = array("q")
        self._server: TargetServer | None = None
        self._bare: Any = None

    async def serve(self, numbers: list[int], scheme: str, folder: str = "", port: int = 0) -> str:
        """Fresh targets in memory (in SQLite files if a folder is given); their address."""
        await self.close()
        stores = {number: _store(number, folder) for number in numbers}
        self._server = TargetServer(
            {f"t{number}": Noted(number, store, self._stamps) for number, store in stores.items()}
        )
        return (await self._server.start(**{scheme: f"127.0.0.1:{port}"}))[0]

    async def serve_bare(self, scheme: str) -> int:
        """A bare receiver for all targets; its port. Its stamps hold the transaction's number in place of an index."""
        await self.close()

        def note(target: int, number: int) -> None:
            self._stamps.extend((target, number, monotonic_ns()))

        receiver = Receiver(note)
        self._bare, port = await (serve_grpc(receiver) if scheme == "grpc" else serve_tcp(receiver))
        return port

    def count(self) -> int:
        """How many stamps there are."""
        return len(self._stamps) // 3

    def take(self) -> array[int]:
        """Target, index and time of everything that was applied since the last time."""
        taken, self._stamps[:] = self._stamps[:], array("q")
        return taken

    def span(self) -> tuple[int, int]:
        """When the first and the last entry were applied."""
        return min(self._stamps[2::3]), max(self._stamps[2::3])

    def usage(self) -> dict[str, float]:
        return usage()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop()
        if self._bare is not None:
            if hasattr(self._bare, "wait_for_termination"):
                await self._bare.stop(0)
            else:
                self._bare.close()
        self._server = self._bare = None
        self._stamps[:] = array("q")


def _store(number: int, folder: str) -> Target:
    if folder:
        return SqliteTarget(Path(folder) / f"t{number}.db", f"t{number}")
    return MemoryTarget(inline=True)
