"""Does the player's memory stay within its bound while very many entries pass a target that does not take them?

    python -m bench.parts.memory_bench [--json] [--entries 1000000] [--trouble dead,frozen]

Log server, player and targets are processes of their own. Each entry is for a healthy target and for the troubled one,
which is dead (nobody listens) or frozen (stopped by SIGSTOP with a session open). The player's resident memory is
read from the system: after a warm-up, and its maximum until the healthy target has every entry. The exit code is 1
if it grows by more than the bound that its limits give.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from logplayer.config import Config
from logplayer.core.limits import Limits
from logplayer.errors import LogPlayerError
from logplayer.log.client import LogClient
from logplayer.log.protocol import NewEntry
from logplayer.target.client import position
from logplayer.wire.entries import encode_mutation
from tests.campaign.world import Child, free_port

WARM_UP = 50_000
GROUP = 500
MB = 1 << 20


def bound_mb() -> float:
    """What the limits allow for two targets: queues and flights, catch-up chunks, and what the log reads ahead.

    Twice, because an entry in memory costs more than its payload.
    """
    limits, config = Limits(), Config()
    per_target = limits.queue_bytes_max + limits.flight_bytes_max
    chunks = (config.catch_up_readers_max + 4) * config.catch_up_bytes
    return 2 * (2 * per_target + chunks + 4 * MB) / MB


def resident_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


async def run(trouble: str, entries: int, folder: Path) -> dict[str, Any]:
    ports = {name: free_port() for name in ("log", "well", "ill")}
    log_at = f"127.0.0.1:{ports['log']}"
    log = Child("log", folder, "log", "serve", "--log", f"file://{folder}/log", "--listen", log_at)
    targets = {
        name: Child(
            name, folder, "target", "serve", "--store", "sqlite", "--path", f"{folder}/{name}.db", "--id", name,
            "--listen-tcp", f"127.0.0.1:{ports[name]}",
        )
        for name in ("well", "ill")
    }  # fmt: skip
    named = [f"--target={name}=tcp://127.0.0.1:{ports[name]}" for name in targets]
    arguments = ("play", "--in-process", "--log", f"grpc://{log_at}", "--http", "127.0.0.1:0", *named)
    player = Child("player", folder, *arguments)
    children = [log, *targets.values(), player]
    try:
        await log.start()
        await targets["well"].start()
        if trouble == "frozen":
            await targets["ill"].start()
        client = await _open(log_at)
        await player.start()
        return await _pass(client, player, targets["ill"], f"tcp://127.0.0.1:{ports['well']}", trouble, entries)
    finally:
        for child in children:
            child.thaw()
            await child.kill()


async def _pass(
    client: LogClient, player: Child, ill: Child, well_at: str, trouble: str, entries: int
) -> dict[str, Any]:
    sent, began, high = 0, time.perf_counter(), 0.0
    base = 0.0
    while sent < entries:
        group = []
        for number in range(sent + 1, sent + GROUP + 1):
            payload = b"".join(encode_mutation(b"%d" % (number % 1000), bytes(30), n).encoded for n in ("well", "ill"))
            group.append(NewEntry("bench", number, payload))
        last = (await client.append(group))[-1]
        sent += GROUP
        if sent == WARM_UP:
            await _reach(well_at, last)
            if trouble == "frozen":
                ill.freeze()
            base = resident_mb(player.pid)
        if base:
            high = max(high, resident_mb(player.pid))
    while not await _reached(well_at, last):
        high = max(high, resident_mb(player.pid))
        await asyncio.sleep(0.1)
    return {
        "entries": entries,
        "base_mb": round(base, 1),
        "high_mb": round(high, 1),
        "growth_mb": round(high - base, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


async def _reached(address: str, index: int) -> bool:
    try:
        return (await position(address, "well", timeout=5)).index >= index
    except LogPlayerError:
        return False


async def _reach(address: str, index: int) -> None:
    while True:
        if await _reached(address, index):
            return
        await asyncio.sleep(0.1)


async def _open(where: str) -> LogClient:
    while True:
        try:
            return await LogClient.open(where)
        except LogPlayerError:
            await asyncio.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--trouble", default="dead,frozen")
    options = parser.parse_args()
    result: dict[str, Any] = {"bound_mb": bound_mb()}
    for trouble in options.trouble.split(","):
        with tempfile.TemporaryDirectory() as folder:
            result[trouble] = asyncio.run(run(trouble, options.entries, Path(folder)))
    result["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(json.dumps(result) if options.as_json else json.dumps(result, indent=2))
    return int(any(result[trouble]["growth_mb"] > result["bound_mb"] for trouble in options.trouble.split(",")))


if __name__ == "__main__":
    sys.exit(main())
