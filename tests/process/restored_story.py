"""A log server, two shards and a player as real processes, whose log is put back to an older state."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import logplayer as lp
from logplayer.admin.http_client import ask
from tests.servers import free_port

PATIENCE = 120.0
Process = asyncio.subprocess.Process
Seen = dict[str, dict[str, Any]]


class Story:
    """The processes, by name; every one that still runs is killed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = f"grpc://127.0.0.1:{free_port()}"
        self.shards = {name: f"tcp://127.0.0.1:{free_port()}" for name in ("a", "b")}
        self.player = f"127.0.0.1:{free_port()}"
        self._processes: dict[str, Process] = {}

    async def __aenter__(self) -> Self:
        await self.serve_log()
        for name in self.shards:
            await self.serve_shard(name)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for name in list(self._processes):
            await self.end(name, signal.SIGKILL)

    # --- Processes ---

    async def start(self, name: str, *arguments: str) -> None:
        """Start ``logplayer ...`` and wait for what it says first; its errors go to a file."""
        with open(self.folder / f"{name}.err", "ab") as errors:  # noqa: ASYNC230
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "logplayer.cli", *arguments, stdout=asyncio.subprocess.PIPE, stderr=errors
            )
        self._processes[name] = process
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        assert line, self.errors(name)

    def errors(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text()

    async def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        with contextlib.suppress(ProcessLookupError):
            self._processes[name].send_signal(number)
        return await self.ended(name)

    async def ended(self, name: str) -> int:
        """Wait until it ends; returns its exit code."""
        process = self._processes.pop(name)
        await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode is not None
        return process.returncode

    async def serve_log(self) -> None:
        listen = self.log.removeprefix("grpc://")
        await self.start("log", "log", "serve", "--log", f"file://{self.folder}/log", "--listen", listen, "--json")

    async def serve_shard(self, name: str) -> None:
        listen = self.shards[name].removeprefix("tcp://")
        store = ("--store", "sqlite", "--path", str(self.store(name)))
        await self.start(name, "target", "serve", "--id", name, "--listen-tcp", listen, *store, "--json")

    async def play(self) -> None:
        shards = [f"--target={name}={address}" for name, address in self.shards.items()]
        words = ("play", "--in-process", "--log", self.log, "--http", self.player, "--trims", "--json")
        await self.start("player", *words, *shards)

    async def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "logplayer.cli", *arguments, stdout=pipe, stderr=pipe
        )
        out, errors = (text.decode() for text in await asyncio.wait_for(process.communicate(), PATIENCE))
        assert process.returncode == code, errors
        assert "Traceback" not in errors, errors
        return out, errors

    # --- The log ---

    async def append(self, word: str, count: int) -> int:
        """``count`` transactions with the keys word-0, word-1 and so on; returns the last index."""
        log = await lp.open_log(self.log)
        try:
            producer = await log.producer(word)
            receipts = [await producer.append(lp.put(f"{word}-{n}", word)) for n in range(count)]
            return receipts[-1].index
        finally:
            await log.close()

    async def first(self) -> int:
        """The first index that the log still has."""
        log = await lp.open_log(self.log)
        try:
            return (await log.info()).first
        finally:
            await log.close()

    async def back_up(self) -> None:
        await self.run("log", "backup", "--log", f"file://{self.folder}/log", "--to", f"{self.folder}/backup")

    async def restore(self) -> dict[str, Any]:
        """Put the log aside as ``newer`` and the backup in its place; the server must not run."""
        (self.folder / "log").rename(self.folder / "newer")
        out, _ = await self.run(
            "log", "restore", f"{self.folder}/backup", "--to", f"file://{self.folder}/log", "--json"
        )
        return dict(json.loads(out))

    def lose_tail(self, after: int) -> None:
        """Remove the rows of the newest segment that hold entries after ``after``, as a disk may."""
        shutil.copytree(self.folder / "log", self.folder / "newer")
        newest = max((self.folder / "log").glob("*.seg"))
        with closing(sqlite3.connect(newest)) as db, db:
            assert db.execute("DELETE FROM chunks WHERE first > ?", (after,)).rowcount > 0

    # --- The shards ---

    def store(self, name: str) -> Path:
        return self.folder / f"{name}.db"

    def rows(self, *names: str) -> dict[str, int]:
        """How many rows of each word the shards have, all together."""
        found: dict[str, int] = {}
        for name in names or tuple(self.shards):
            with closing(sqlite3.connect(self.store(name))) as db:
                for (value,) in db.execute("SELECT value FROM data"):
                    found[value.decode()] = found.get(value.decode(), 0) + 1
        return found

    def back_up_shard(self, name: str) -> None:
        """By the database's own means, while it is served."""
        source, copy = sqlite3.connect(self.store(name)), sqlite3.connect(self.folder / f"{name}.backup")
        with closing(source), closing(copy):
            source.backup(copy)

    def empty_shard(self, name: str) -> None:
        for path in self.folder.glob(f"{name}.db*"):
            path.unlink()

    def restore_shard(self, name: str) -> None:
        self.empty_shard(name)
        shutil.copy(self.folder / f"{name}.backup", self.store(name))
        os.chmod(self.store(name), 0o600)

    # --- The player ---

    async def status(self, holds: Callable[[Seen], bool]) -> Seen:
        """The targets by name, once something holds for them."""
        seen: Seen = {}
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    with contextlib.suppress(lp.Unavailable):
                        facts = await ask(self.player, "/status")
                        seen = {one["target"]: one for one in facts["targets"]}
                        if seen and holds(seen):
                            return seen
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{seen}\n{self.errors('player')}") from None

    async def reach(self, index: int) -> None:
        """Wait until both shards have everything up to ``index``."""
        await self.status(lambda now: all(one["index"] >= index for one in now.values()))

    async def both_blocked(self) -> Seen:
        return await self.status(lambda now: len(now) == 2 and all(map(diverged, now.values())))


def diverged(one: dict[str, Any]) -> bool:
    return one["state"] == "BLOCKED" and (one["blocked"] or {}).get("kind") == "DIVERGED"
