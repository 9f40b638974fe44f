"""Shared by the tests of Spark: a log to write to, targets to deliver to, and what must be in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from logplayer.core.entry import Decision, ShardMap
from logplayer.log import control_chain as chain
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import Log, NewEntry, Record
from logplayer.log.server import LogServer
from logplayer.spark import event_loop
from logplayer.target.protocol import Target
from logplayer.target.server import TargetServer
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.wire.entries import encode_mutation
from logplayer.wire.security import NONE, Security

Put = tuple[bytes, bytes | None, str]
PATIENCE = 240.0  # Ends a test that hangs; a busy machine takes its time.


def transaction(*puts: Put) -> bytes:
    return b"".join(encode_mutation(key, value, target).encoded for key, value, target in puts)


class FileWal:
    """A file log, open for writing on the background loop; ``serve`` shares it over gRPC."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = f"file://{path}"
        self.log: Log = event_loop.run(FileLog.open(path))
        self._sequences: dict[str, int] = {}
        self._server: LogServer | None = None

    def serve(self, host: str = "127.0.0.1", security: Security = NONE, port: int = 0) -> str:
        """The grpc:// address of the log."""
        self._server = LogServer(self.log, security)
        port = event_loop.run(self._server.start(host, port))
        return f"grpc://{host}:{port}"

    def append(self, payloads: Sequence[bytes], producer: str = "shop") -> list[int]:
        first = self._sequences.get(producer, 0) + 1
        self._sequences[producer] = first + len(payloads) - 1
        indexes: list[int] = []
        for at in range(0, len(payloads), 500):
            group = [NewEntry(producer, first + at + n, p) for n, p in enumerate(payloads[at : at + 500])]
            indexes += event_loop.run(self.log.append(group))
        return indexes

    def decide(self, record: Decision, first_map: ShardMap, targets: Sequence[tuple[str, str]] = ()) -> int:
        return event_loop.run(chain.append(self.log, record, first_map, tuple(targets)))[0]

    def records(self, start: int = 0) -> list[Record]:
        info = event_loop.run(self.log.info())
        first = max(start, info.first)
        if first > info.last:
            return []
        return [record for batch in event_loop.iterate(lambda: self.log.read(first, info.last)) for record in batch]

    def last(self) -> int:
        return event_loop.run(self.log.info()).last

    def close(self) -> None:
        if self._server is not None:
            event_loop.run(self._server.stop(0))
            self._server = None
        event_loop.run(self.log.close())


class Shards:
    """SQLite targets, each behind its own server."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        scheme: str = "grpc",
        *,
        host: str = "127.0.0.1",
        security: Security = NONE,
    ) -> None:
        self._host, self._security = host, security
        self._folder = folder
        self.paths = {name: folder / f"{name}.db" for name in names}
        self._servers: dict[str, TargetServer] = {}
        self.addresses: dict[str, str] = {}
        for name in names:
            self.start(name, scheme)

    def start(self, name: str, scheme: str = "grpc", port: int = 0) -> None:
        self.paths.setdefault(name, self._folder / f"{name}.db")
        stores: Mapping[str, Target] = {name: SqliteTarget(self.paths[name], name)}
        server = TargetServer(stores, self._security)
        [address] = event_loop.run(server.start(**{scheme: f"{self._host}:{port}"}))
        self._servers[name], self.addresses[name] = server, address

    def stop(self) -> None:
        for server in self._servers.values():
            event_loop.run(server.stop())
        self._servers.clear()

    def index(self, name: str) -> int:
        return self._servers[name].position(name).index

    def wait(self, index: int, seconds: float = PATIENCE) -> None:
        until(lambda: all(self.index(name) >= index for name in self._servers), seconds)

    def read(self, name: str) -> tuple[dict[bytes, bytes], int, int]:
        """(content, index, digest) as they are on the disk."""
        store = SqliteTarget(self.paths[name], name, read_only=True)
        try:
            position = store.position()
            return dict(store.scan()), position.index, position.digest
        finally:
            store.close()

    @property
    def option(self) -> str:
        return ",".join(f"{name}={address}" for name, address in self.addresses.items())


def until(done: Callable[[], Any], seconds: float = PATIENCE, between: float = 0.02) -> None:
    """Wait for something that must come; the limit only ends a test that hangs."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"did not come within {seconds} s"
        time.sleep(between)


class KeptSession:
    """The session of this run, which no verb may stop."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def stop(self) -> None:
        """The fixture does it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)
