"""Real servers for tests: a file log with a log server, targets over sockets, players on the same loop."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from logplayer.admin.app import serve
from logplayer.admin.player_face import Stage
from logplayer.config import Config
from logplayer.core.entry import HashMap
from logplayer.core.fence import Position
from logplayer.core.limits import Limits
from logplayer.log.client import LogClient
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import Log, NewEntry
from logplayer.log.server import LogServer
from logplayer.player.ended import Ended
from logplayer.player.shell import Shell
from logplayer.player.status import TargetStatus
from logplayer.target.protocol import Change, Store
from logplayer.target.server import TargetServer
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.wire.entries import encode_mutation
from logplayer.wire.security import NONE, Security
from tests.campaign.check import compare, expect, hashed, read_all

# Short waits, so that what a player notices by time alone is noticed within a test.
QUICK = Limits(
    heartbeat_ms=100,
    silence_ms_max=700,
    progress_ms_max=1500,
    open_ms_max=1500,
    backoff_ms_min=20,
    backoff_ms_max=200,
    blocked_ms=300,
    idle_ms_max=50,
    tick_ms_max=200,
)

# How long a test waits for what must happen before it fails: on a busy machine everything may take its time.
PATIENCE = 120.0


class SlowStore:
    """A store that takes its time for every change, or waits before it until the gate is open."""

    def __init__(self, store: Store, seconds: float, gate: threading.Event | None = None) -> None:
        self._store = store
        self.seconds = seconds
        self._gate = gate

    def apply(self, change: Change) -> Position:
        if self._gate is not None:
            self._gate.wait(120)
        time.sleep(self.seconds)
        return self._store.apply(change)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Seat:
    """One target: an SQLite file, and a server that can go away and come back at the same port."""

    def __init__(self, directory: Path, name: str, scheme: str, security: Security = NONE) -> None:
        self.name = name
        self.path = directory / f"{name}.db"
        self.scheme = scheme
        self.security = security
        self.port = 0
        self.slow = 0.0
        self.gate: threading.Event | None = None
        self.wrap: Callable[[Any], Any] = lambda store: store
        self.server: TargetServer | None = None

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def up(self) -> Seat:
        store: Any = SqliteTarget(self.path, self.name)
        if self.slow or self.gate:
            store = SlowStore(store, self.slow, self.gate)
        self.server = TargetServer({self.name: self.wrap(store)}, self.security)
        [address] = await self.server.start(**{self.scheme: f"127.0.0.1:{self.port}"})
        self.port = int(address.rpartition(":")[2])
        return self

    async def down(self) -> None:
        if self.server is not None:
            await self.server.stop()
            self.server = None

    @property
    def index(self) -> int:
        return self.position.index

    @property
    def position(self) -> Position:
        with self.store() as store:
            position: Position = store.position()
            return position

    @contextlib.contextmanager
    def store(self) -> Any:
        store = SqliteTarget(self.path, self.name, read_only=True)
        try:
            yield store
        finally:
            store.close()


class Playing:
    """A player that runs as a task."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.http_address = ""
        self.task = asyncio.create_task(shell.run())

    async def started(self) -> Playing:
        await until(lambda: self.shell.running or self.task.done(), "the player has taken over")
        return self

    def target(self, name: str) -> TargetStatus:
        return next(item for item in self.shell.status().targets if item.target == name)

    def state(self, name: str) -> str:
        """The target's state, or nothing if the player does not know it."""
        return next((item.state for item in self.shell.status().targets if item.target == name), "")

    def live(self, *names: str) -> bool:
        targets = {item.target: item.state for item in self.shell.status().targets}
        return all(targets.get(name) == "LIVE" for name in names or targets)

    async def answering(self) -> str:
        """Where it answers questions from now on, as ``logplayer play`` does."""
        if not self.http_address:
            stage = Stage(self.shell.waiting, self.shell.config, self.shell.observed.timeline)
            stage.shell = self.shell
            self._server = serve(stage.face())
            self.http_address = await self._server.start("127.0.0.1:0")
        return self.http_address

    async def stop(self) -> Ended:
        self.shell.request_stop()
        return await asyncio.wait_for(self.task, PATIENCE)


class House:
    """Everything that a test needs; all of it is stopped at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seats: dict[str, Seat] = {}
        self.playing: list[Playing] = []
        self.log: Log
        self.file: FileLog
        self.log_port = 0
        self._log_server: LogServer | None = None
        self._clients: list[LogClient] = []
        self._sequences: dict[str, int] = {}

    async def __aenter__(self) -> House:
        await self.log_up()
        self.log = await self.client()
        return self

    async def __aexit__(self, *_: object) -> None:
        for playing in self.playing:
            playing.task.cancel()
        await asyncio.gather(*(playing.task for playing in self.playing), return_exceptions=True)
        await asyncio.gather(*(seat.down() for seat in self.seats.values()))
        for client in self._clients:
            await client.close()
        await self.log_down()

    async def log_up(self) -> None:
        self.file = await FileLog.open(self.directory / "log", segment_bytes=1 << 20)
        self._log_server = LogServer(self.file)
        self.log_port = await self._log_server.start("127.0.0.1", self.log_port)

    async def log_down(self) -> None:
        if self._log_server is not None:
            await self._log_server.stop(0)
            await self.file.close()
            self._log_server = None

    @property
    def log_address(self) -> str:
        return f"grpc://127.0.0.1:{self.log_port}"

    async def client(self) -> LogClient:
        client = await LogClient.open(f"127.0.0.1:{self.log_port}")
        self._clients.append(client)
        return client

    async def targets(self, names: Iterable[str], scheme: str = "tcp", security: Security = NONE) -> list[Seat]:
        made = []
        for name in names:
            self.seats[name] = seat = Seat(self.directory, name, scheme, security)
            made.append(await seat.up())
        return made

    def config(self, **changes: Any) -> Config:
        names = tuple(self.seats)
        addresses = {name: seat.address for name, seat in self.seats.items()}
        first = Config(targets=addresses, map=HashMap(names), limits=QUICK, tick_ms=20)
        return replace(first, **changes)

    async def play(self, **changes: Any) -> Playing:
        playing = Playing(Shell(await self.client(), self.config(**changes)))
        self.playing.append(playing)
        return await playing.started()

    async def append(self, count: int, producer: str = "p", value: bytes = b"", targets: Iterable[str] = ()) -> int:
        """Append transactions of two or three mutations each; the last index."""
        index = 0
        names = tuple(targets)
        while count > 0:
            group = []
            for _ in range(min(count, 100)):
                self._sequences[producer] = sequence = self._sequences.get(producer, 0) + 1
                group.append(NewEntry(producer, sequence, transaction(producer, sequence, value, names)))
            index = (await self.file.append(group))[-1]
            count -= len(group)
        return index

    async def append_raw(self, payload: bytes, producer: str = "raw") -> int:
        self._sequences[producer] = sequence = self._sequences.get(producer, 0) + 1
        return (await self.file.append([NewEntry(producer, sequence, payload)]))[0]

    async def delivered(self, index: int, *names: str, seconds: float = PATIENCE) -> None:
        """Wait until the targets have everything up to ``index``."""
        for name in names or self.seats:
            await until(lambda name=name: self.seats[name].index >= index, f"{name} reaches {index}", seconds)

    async def problems(self, *names: str, after: dict[str, int] | None = None, quarantined: Any = None) -> list[str]:
        """How the stores differ from what the log says."""
        records = await read_all(self.file)
        wanted = expect(records, self.seats, hashed(self.seats), after=after, quarantined=quarantined)
        found: list[str] = []
        for name in names or self.seats:
            with self.seats[name].store() as store:
                found += compare(name, wanted[name], store)
        return found


def transaction(producer: str, sequence: int, value: bytes = b"", targets: tuple[str, ...] = ()) -> bytes:
    """An own key for each entry, and a shared one that must end with the newest value."""
    mine = f"{producer}/{sequence}".encode()
    changes = [
        (b"e/" + mine, mine + value),
        (b"x/" + mine, value or mine),
        (f"newest/{sequence % 7}".encode(), mine),
    ]
    named = [
        (key, new, targets[(sequence + nth) % len(targets)] if targets else "")
        for nth, (key, new) in enumerate(changes)
    ]
    return b"".join(encode_mutation(key, new, target).encoded for key, new, target in named)


async def logplayer(*arguments: str, code: int = 0) -> str:
    """Run the command line; what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "logplayer.cli",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == code, error.decode()
    assert "Traceback" not in error.decode()
    return out.decode() + error.decode()


async def until(holds: Callable[..., bool], what: str, seconds: float = PATIENCE, every: float = 0.01) -> None:
    """Wait until something holds; a test that waits in vain fails with ``what``."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(every)


@contextlib.asynccontextmanager
async def load(house: House, per_second: int = 500, producer: str = "load") -> AsyncIterator[None]:
    """Append all the time while the body runs."""

    async def run() -> None:
        while True:
            await house.append(max(1, per_second // 50), producer)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
