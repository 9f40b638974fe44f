"""The processes of a fault campaign: a log server, targets with proxies in front, and players, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from logplayer.core.limits import Limits
from logplayer.errors import LogPlayerError
from logplayer.target.client import position
from logplayer.target.protocol import Store
from logplayer.target.stores.open import open_store
from tests.campaign.proxy import Proxy

# Short waits and small queues: what takes seconds in production must happen often here.
LIMITS = Limits(
    queue_count_max=200,
    batch_count_max=50,
    flight_batches_max=4,
    heartbeat_ms=300,
    silence_ms_max=1500,
    progress_ms_max=3000,
    open_ms_max=3000,
    backoff_ms_min=50,
    backoff_ms_max=500,
    idle_ms_max=200,
    tick_ms_max=500,
)


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Child:
    """One process of ours, that can be killed, frozen and started again with the same command line."""

    def __init__(self, name: str, directory: Path, *arguments: str) -> None:
        self.name = name
        self.frozen = False
        self.starts = 0
        self._arguments = arguments
        self._starting = asyncio.Lock()  # Two repairs at once must not start two processes.
        self._out = directory / f"{name}.out"
        self._process: asyncio.subprocess.Process | None = None
        self._file: IO[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start it, if it does not run."""
        async with self._starting:
            if not self.alive:
                await self._start()

    async def _start(self) -> None:
        await self._close()
        self._file = open(self._out, "ab")  # noqa: SIM115, ASYNC230 - It lives as long as the process; a local file.
        command = [sys.executable, "-m", "logplayer.cli", *self._arguments]
        quiet = {**os.environ, "GRPC_VERBOSITY": "ERROR"}
        self._process = await asyncio.create_subprocess_exec(*command, stdout=self._file, stderr=self._file, env=quiet)
        self.starts += 1
        self.frozen = False

    async def kill(self) -> None:
        """kill -9, and wait for the end."""
        self._signal(signal.SIGKILL)
        await self._close()

    async def end(self, seconds: float = 20) -> int | None:
        """Ask it to end, and insist after a while. Its exit code."""
        self.thaw()
        self._signal(signal.SIGTERM)
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), seconds)
        code = self.exit_code
        await self.kill()
        return code

    def freeze(self) -> None:
        self.frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            self._signal(signal.SIGCONT)

    def said(self) -> str:
        """What it printed, in all its lives."""
        try:
            return self._out.read_text(errors="replace")
        except OSError:
            return ""

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.alive:
            # Not by Popen's own send_signal: it would collect an exit code that asyncio is waiting for.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def _close(self) -> None:
        if self._process is not None:
            await self._process.wait()
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(slots=True)
class Seat:
    """One target: its process, the proxy in front of it, and its store."""

    name: str
    scheme: str
    kind: str
    where: dict[str, str]  # path or url; {id} stands for the name
    port: int
    child: Child
    proxy: Proxy

    @property
    def address(self) -> str:
        """Where players reach it: through the proxy."""
        return f"{self.scheme}://127.0.0.1:{self.proxy.port}"

    async def index(self) -> int:
        """Where it stands by its own word; -1 if it does not answer."""
        try:
            return (await position(f"{self.scheme}://127.0.0.1:{self.port}", self.name, timeout=3)).index
        except LogPlayerError:
            return -1

    def store(self) -> Store:
        where = {key: value.replace("{id}", self.name) for key, value in self.where.items()}
        return open_store(self.kind, self.name, read_only=True, **where)

    def neighbour(self, name: str) -> Seat:
        """Another target of the same process."""
        return replace(self, name=name)


@dataclass(slots=True)
class World:
    """Everything that a campaign breaks."""

    directory: Path
    trace: bool
    log: Child
    log_port: int
    seats: dict[str, Seat]
    players: list[Child] = field(default_factory=list)

    @classmethod
    def make(cls, directory: Path, targets: int, servers: dict[str, str], trace: bool) -> World:
        """``servers`` gives urls of PostgreSQL and Redis; a target is made in each beside those in SQLite files."""
        log_port = free_port()
        listen = ("--listen", f"127.0.0.1:{log_port}")
        log = Child("log", directory, "log", "serve", "--log", f"file://{directory}/log", *listen)
        kinds = [("sqlite", "")] * targets + list(servers.items())
        # Those in SQLite files that are reached over TCP live in one process, so that they share connections. A trace
        # is of one target.
        together = [f"t{nth}" for nth in range(0, targets, 2)] if not trace else []
        seats: dict[str, Seat] = {}
        for nth, (kind, url) in enumerate(kinds):
            name, scheme = f"t{nth}", ("tcp", "grpc")[nth % 2]
            if name in together[1:]:
                seats[name] = seats[together[0]].neighbour(name)
            else:
                hosted = together if name in together else [name]
                seats[name] = _seat(directory, hosted, scheme, kind, url, trace)
        world = cls(directory, trace, log, log_port, seats)
        world._write_config()
        return world

    async def start(self) -> None:
        await self.log.start()
        for proxy in self.proxies():
            await proxy.start()
        for child in self.children():
            await child.start()
        self._write_config()

    def children(self) -> list[Child]:
        """The processes of the targets, each once."""
        return list({id(seat.child): seat.child for seat in self.seats.values()}.values())

    def proxies(self) -> list[Proxy]:
        """What stands in front of them, each once."""
        return list({id(seat.proxy): seat.proxy for seat in self.seats.values()}.values())

    async def stop(self) -> None:
        """End every process that still runs."""
        children = [*self.players, *self.children(), self.log]
        for child in children:
            child.thaw()
        await asyncio.gather(*(child.kill() for child in children))
        await asyncio.gather(*(proxy.stop() for proxy in self.proxies()))

    async def add_player(self) -> Child:
        """A new player process; those that live become its elders."""
        number = len(self.players)
        arguments = ["play", "--in-process", "--take-over", "--config", str(self.directory / "logplayer.toml")]
        if self.trace:
            arguments += ["--trace", str(self.directory / f"player{number}.trace")]
        player = Child(f"player{number}", self.directory, *arguments)
        self.players.append(player)
        await player.start()
        return player

    def living(self) -> list[Child]:
        return [player for player in self.players if player.alive]

    def _write_config(self) -> None:
        targets = "".join(f'[targets.{seat.name}]\naddress = "{seat.address}"\n' for seat in self.seats.values())
        limits = "".join(f"{name} = {getattr(LIMITS, name)}\n" for name in Limits.__dataclass_fields__)
        text = (
            f'[log]\naddress = "grpc://127.0.0.1:{self.log_port}"\n'
            f'[player]\nhttp = "127.0.0.1:0"\ntick_ms = 20\n[limits]\n{limits}{targets}'
        )
        (self.directory / "logplayer.toml").write_text(text)


def _seat(directory: Path, names: list[str], scheme: str, kind: str, url: str, trace: bool) -> Seat:
    """The first of the targets ``names``, which one process serves."""
    port, name = free_port(), names[0]
    where = {"url": url} if url else {"path": str(directory / "{id}.db")}
    [(key, value)] = where.items()
    listen = "--listen" if scheme == "grpc" else "--listen-tcp"
    arguments = ["target", "serve", "--store", kind, f"--{key}", value, listen, f"127.0.0.1:{port}"]
    arguments += [word for name in names for word in ("--id", name)]
    if trace:
        arguments += ["--trace", str(directory / f"{name}.trace")]
    return Seat(name, scheme, kind, where, port, Child(name, directory, *arguments), Proxy(0, port))
