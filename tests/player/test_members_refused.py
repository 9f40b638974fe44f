"""Decisions about members after which entries would go nowhere are refused, in one line and with exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from logplayer.core.entry import HashMap, Takeover
from logplayer.log import control_chain as chain
from logplayer.log.file.log import FileLog

pytestmark = pytest.mark.asyncio


def target(log: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logplayer.cli", "target", *arguments, "--log", log]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def begun(directory: Path) -> str:
    """A log whose one entry makes a and b members, and gives all keys to a."""
    log = await FileLog.open(directory / "log")
    try:
        await chain.append(log, Takeover("g", "p"), HashMap(("a",)), (("a", "tcp://h:1"), ("b", "tcp://h:2")))
    finally:
        await log.close()
    return f"file://{directory}/log"


async def test_a_target_cannot_have_more_than_the_log(tmp_path: Path) -> None:
    log = await begun(tmp_path)
    done = target(log, "add", "c", "tcp://h:3", "--at", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--at 2: the log ends at 1, so c cannot hold more" in done.stderr
    assert target(log, "add", "c", "tcp://h:3", "--at", "1").returncode == 0


async def test_an_owner_of_keys_stays_unless_it_is_forced(tmp_path: Path) -> None:
    log = await begun(tmp_path)
    assert target(log, "remove", "b").returncode == 0
    done = target(log, "remove", "a")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "logplayer: the map in force, hash:a, still gives keys to a: they would be unroutable; "
        "'logplayer map set' first, or --force\n"
    )
    assert target(log, "remove", "a", "--force").returncode == 0
