"""Harnesses of the log kit for the logs that ship, and the means to hurt them: kills, flipped bits, a full disk."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from logplayer.log.client import LogClient
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import Log
from logplayer.testing.conformance.log_check import AckedAppend, entry, payload
from logplayer.testing.conformance.logs import Harness, NotApplicable

TMPFS_BYTES = 24 * 1024 * 1024


def parse_acks(lines: list[str]) -> list[AckedAppend]:
    """Lines of ``log_child``; remarks start with #."""
    acks = []
    for line in lines:
        if line and not line.startswith("#"):
            producer, sequence, index = line.split()
            acks.append(AckedAppend(producer, int(sequence), int(index)))
    return acks


class LogChild:
    """A ``log_child`` process that runs until it is killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    @classmethod
    async def start(cls, address: str, *options: str, newest: dict[str, int] | None = None) -> LogChild:
        command = (sys.executable, "-m", "logplayer.testing.conformance.log_child", address, *options)
        process = await asyncio.create_subprocess_exec(
            *command, "--newest", json.dumps(newest or {}), stdout=asyncio.subprocess.PIPE, limit=1 << 20
        )
        return cls(process)

    async def read_acks(self, count: int) -> None:
        """Wait until it said that ``count`` more entries are acknowledged, or until it ended."""
        assert self.process.stdout is not None
        while count > 0 and (line := await self.process.stdout.readline()):
            self.lines.append(line.decode().strip())
            count -= not self.lines[-1].startswith("#")

    async def kill(self) -> list[AckedAppend]:
        """``kill -9``, and everything that it had said by then."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)  # Not Popen's: it would reap a dead child under asyncio's hands.
        return await self.wait()

    async def wait(self) -> list[AckedAppend]:
        assert self.process.stdout is not None
        rest = (await self.process.stdout.read()).decode()
        whole, _, _ = rest.rpartition("\n")  # The last line may be half.
        self.lines += whole.split("\n")
        await self.process.wait()
        return parse_acks(self.lines)


class SmallDisk:
    """A tmpfs of a few megabytes, so that a full disk is a real one. Needs root."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(path)], capture_output=True, text=True
        )
        if made.returncode:
            raise NotApplicable(f"a tmpfs cannot be mounted here: {made.stderr.strip()}")

    def fill(self, leave_bytes: int = 300_000) -> None:
        """Take all the room but a little; a log that writes meanwhile takes its part."""
        room = shutil.disk_usage(self.path).free - leave_bytes
        with contextlib.suppress(OSError), open(self.path / "filler", "ab", buffering=0) as filler:
            while room > 0:
                room -= filler.write(bytes(min(room, 1 << 20)))

    def free(self) -> None:
        (self.path / "filler").unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], capture_output=True)


def flip_in_files(paths: list[Path], needle: bytes) -> int:
    """Flip one bit in every stored copy of ``needle``; the number of flips."""
    flips = 0
    for path in paths:
        data = path.read_bytes()
        at = data.find(needle)
        while at >= 0:
            with open(path, "r+b") as file:
                file.seek(at + len(needle) // 2)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes((byte ^ 0x10,)))
            flips += 1
            at = data.find(needle, at + 1)
    return flips


class FileHarness(Harness):
    """A file log in this process; the one that is killed is in a child process."""

    def __init__(self, directory: Path, segment_bytes: int = 64 * 1024) -> None:
        self.directory = directory
        self._segment_bytes = segment_bytes
        self._disk: SmallDisk | None = None

    @property
    def path(self) -> Path:
        """On the small disk, when the check can have one: it must be there before the log is."""
        return self.directory / "disk" / "log" if self._disk else self.directory / "log"

    def use_small_disk(self) -> None:
        self._disk = SmallDisk(self.directory / "disk")

    async def open(self) -> Log:
        return await FileLog.open(self.path, segment_bytes=self._segment_bytes)

    async def __aexit__(self, *exc: object) -> None:
        if self._disk:
            self._disk.unmount()

    async def crash_under_load(self, newest: dict[str, int]) -> list[AckedAppend]:
        size = str(self._segment_bytes)
        child = await LogChild.start(f"file://{self.path}", "--segment-bytes", size, newest=newest)
        await child.read_acks(300)
        return await child.kill()

    async def flip_bit(self, index: int) -> bool:
        """``index`` is the sequence too: the check has one producer and file indexes have no gaps."""
        flips = flip_in_files(sorted(self.path.glob("*.seg*")), payload("p", index, 2000)[900:1000])
        assert flips, "the stored bytes were not found"
        return False

    async def fill_disk(self) -> None:
        if self._disk is None:
            raise NotApplicable("the log is not on a small disk")
        self._disk.fill()

    async def free_disk(self) -> None:
        assert self._disk is not None
        self._disk.free()


class ServerProcess:
    """A real ``logplayer log serve`` of its own, on a port that it keeps when it is started again."""

    program: tuple[str, ...] = ("-m", "logplayer.cli")

    def __init__(self, address: str, *options: str) -> None:
        self._log = address
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self.where = "127.0.0.1:0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        command = (*self.program, "log", "serve", "--log", self._log, "--listen", self.where, "--json")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *command, *self._options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            raise RuntimeError((await self._process.stderr.read()).decode())
        self.where = json.loads(line)["address"].removeprefix("grpc://")

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """End it and return its exit code."""
        if self._process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        await self._process.communicate()
        code, self._process = self._process.returncode, None
        return code


class ServedHarness(Harness):
    """The log server, a real process, over the log of another harness. Each ``open`` is a new server on the old log."""

    def __init__(self, inner: Harness, address: str) -> None:
        self.inner = inner
        self._address = address
        self._server: ServerProcess | None = None

    async def __aenter__(self) -> Harness:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server:
            await self._server.stop()
        await self.inner.__aexit__(*exc)

    async def open(self) -> Log:
        if self._server is None:
            self._server = ServerProcess(self._address)
        await self._server.stop()
        await self._server.start()
        return await LogClient.open(self._server.where, patience_seconds=30)

    async def served_at(self) -> str:
        await (await self.open()).close()
        assert self._server is not None
        return self._server.where

    async def crash_under_load(self, newest: dict[str, int]) -> list[AckedAppend]:
        log = await self.open()
        assert self._server is not None
        acked: list[AckedAppend] = []
        tasks = [asyncio.create_task(produce(log, f"p{i}", newest.get(f"p{i}", 0), acked)) for i in range(4)]
        while len(acked) < 100:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await self._server.stop(signal.SIGKILL)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await log.close()
        return acked

    async def flip_bit(self, index: int) -> bool:
        assert self._server is not None
        await self._server.stop()
        return await self.inner.flip_bit(index)

    async def fill_disk(self) -> None:
        await self.inner.fill_disk()

    async def free_disk(self) -> None:
        await self.inner.free_disk()


async def produce(log: Log, producer: str, sequence: int, acked: list[AckedAppend], pause_seconds: float = 0.0) -> None:
    """Append for ever; note each answer."""
    while True:
        [index] = await log.append([entry(producer, sequence + 1)])
        sequence += 1
        acked.append(AckedAppend(producer, sequence, index))
        if pause_seconds:
            await asyncio.sleep(pause_seconds)
