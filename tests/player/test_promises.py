"""What the pages say of a player's process, seen from outside: it writes no file, and its memory is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from logplayer.admin.http_client import ask
from logplayer.config import Config
from logplayer.core.fence import Position
from logplayer.player.catch_up_reader import CHUNKS_KEPT
from logplayer.player.memory import held_bytes_max
from logplayer.target.protocol import Change, Store
from tests import ROOT
from tests.player.player_support import House, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MIB = 1 << 20


@contextlib.asynccontextmanager
async def a_player(house: House, here: Path) -> AsyncIterator[tuple[int, str]]:
    """A real player of the house in a process that starts in ``here``; its pid and where it answers."""
    for name in ("work", "home", "tmp"):
        (here / name).mkdir(parents=True)
    places = {"HOME": str(here / "home"), "TMPDIR": str(here / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    targets = [f"--target={name}={seat.address}" for name, seat in house.seats.items()]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "logplayer.cli", "play", "--in-process", "--log", house.log_address, *targets,
        "--http", "127.0.0.1:0", "--json", cwd=here / "work", env={**os.environ, **places},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = json.loads(await asyncio.wait_for(process.stdout.readline(), 120))
        yield process.pid, said["http"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def written(pid: int) -> int:
    """The bytes that the process gave to disks."""
    [count] = re.findall(r"(?m)^write_bytes: (\d+)$", Path(f"/proc/{pid}/io").read_text())
    return int(count)


async def test_a_player_keeps_nothing_on_disk(house: House, tmp_path: Path) -> None:
    here = tmp_path / "player"
    await house.targets("ab")
    async with a_player(house, here) as (pid, _):
        last = await house.append(200)
        await house.delivered(last)
        await house.seats["b"].down()
        last = await house.append(200)
        await house.delivered(last, "a")
        await house.seats["b"].up()
        await house.delivered(last)
        assert written(pid) == 0
    assert [path for path in here.rglob("*") if path.parent != here] == []


class Frozen:
    """A store that takes a session, and then never finishes its next change."""

    def __init__(self, store: Store, thawed: threading.Event) -> None:
        self._store = store
        self._thawed = thawed

    def apply(self, change: Change) -> Position:
        if change.messages:
            self._thawed.wait(300)
        return self._store.apply(change)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def passed(where: str, index: int) -> None:
    """Wait until the player's main stream has passed ``index``."""
    while (await ask(where, "/status", timeout=60))["current"] < index:  # noqa: ASYNC110 - another process.
        await asyncio.sleep(0.2)


def memory(pid: int) -> int:
    """The most that the process ever had in memory."""
    [kilobytes] = re.findall(r"(?m)^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) << 10


def test_the_page_has_the_formula_with_the_defaults() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    config = Config()
    per_target = held_bytes_max(config, 1) - held_bytes_max(config, 0)
    assert per_target == config.limits.queue_bytes_max + config.limits.flight_bytes_max
    assert f"at most {per_target // MIB} MiB per target and {held_bytes_max(config, 0) // MIB} MiB" in page
    assert f"+  {config.catch_up_readers_max + CHUNKS_KEPT} * {config.catch_up_bytes // MIB} MiB " in page


async def test_a_frozen_target_costs_a_player_no_more_memory_than_is_said(house: House, tmp_path: Path) -> None:
    """See "Capacity" in docs/operations.md; three times as much is appended as the bound allows it to hold."""
    thawed = threading.Event()
    [seat] = await house.targets("a")
    await seat.down()
    seat.wrap = lambda store: Frozen(store, thawed)
    await seat.up()
    bound = held_bytes_max(Config(), targets=1)
    try:
        async with a_player(house, tmp_path / "player") as (pid, where):
            await until(lambda: seat.position.session.term > 0, "the target has a session")
            base = memory(pid)
            last = await house.append(3 * bound // (MIB // 8), value=bytes(MIB // 16))

            await passed(where, last)
            grown = memory(pid) - base
    finally:
        thawed.set()
    # Twice, as the page says: copies on their way are not counted.
    assert grown <= 2 * bound, f"{grown / MIB:.0f} MiB, where {bound / MIB:.0f} are said"
