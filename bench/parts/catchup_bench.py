"""How fast does a target catch up that was down, while entries keep coming? And does it join?

    python -m bench.parts.catchup_bench [--json] [--rate 1000] [--down 10] [--bytes 1000] [--scheme tcp]

Log server, player and two targets in SQLite files (durable commits) are processes of their own. Entries, each for both
targets, arrive at a steady rate. One target is killed, stays down for a while, and comes back. The factor is
how many entries per second it applies until it is LIVE and has all that came by then, over the arrival rate in
the same seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

from logplayer.admin.http_client import ask
from logplayer.errors import LogPlayerError
from logplayer.log.client import LogClient
from logplayer.log.protocol import NewEntry
from logplayer.wire.entries import encode_mutation
from tests.campaign.world import Child, free_port


class Bench:
    """The processes, and a steady producer."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.options = options
        ports = {name: free_port() for name in ("log", "status", "a", "b")}
        listen = "--listen" if options.scheme == "grpc" else "--listen-tcp"
        self.log_at, self.status_at = f"127.0.0.1:{ports['log']}", f"127.0.0.1:{ports['status']}"
        self.log = Child("log", folder, "log", "serve", "--log", f"file://{folder}/log", "--listen", self.log_at)
        self.targets = {
            name: Child(
                name, folder, "target", "serve", "--store", "sqlite", "--path", f"{folder}/{name}.db", "--id", name,
                listen, f"127.0.0.1:{ports[name]}",
            )
            for name in "ab"
        }  # fmt: skip
        named = [f"--target={name}={options.scheme}://127.0.0.1:{ports[name]}" for name in "ab"]
        arguments = ("play", "--in-process", "--log", f"grpc://{self.log_at}", "--http", self.status_at, *named)
        self.player = Child("player", folder, *arguments)
        self.sent = 0

    async def produce(self) -> None:
        client = await _open(self.log_at)
        value = bytes(self.options.bytes // 2)
        began = time.perf_counter()
        while True:
            due = int((time.perf_counter() - began) * self.options.rate)
            group = []
            for number in range(self.sent + 1, min(due, self.sent + 500) + 1):
                payload = b"".join(encode_mutation(b"%d" % number, value, name).encoded for name in "ab")
                group.append(NewEntry("bench", number, payload))
            if group:
                await client.append(group)
                self.sent = group[-1].sequence
            await asyncio.sleep(0.01)

    async def status(self) -> dict[str, Any]:
        try:
            told = await ask(self.status_at, "/status")
        except LogPlayerError:
            return {"current": 0, "a": {"state": "", "index": 0}, "b": {"state": "", "index": 0}}
        return {"current": told["current"], **{target["target"]: target for target in told["targets"]}}

    async def reach(self, **states: str) -> None:
        while True:
            status = await self.status()
            if all(status[name]["state"] == state for name, state in states.items()):
                return
            await asyncio.sleep(0.05)

    async def leave(self, *states: str) -> dict[str, Any]:
        """The status once the target that was down is in none of these states."""
        while True:
            status = await self.status()
            if status["b"]["state"] not in states:
                return status
            await asyncio.sleep(0.02)

    async def run(self) -> dict[str, Any]:
        children = [self.log, *self.targets.values(), self.player]
        try:
            for child in children[:-1]:
                await child.start()
            await (await _open(self.log_at)).close()
            await self.player.start()
            producing = asyncio.create_task(self.produce())
            await self.reach(a="LIVE", b="LIVE")
            await self.targets["b"].kill()
            await asyncio.sleep(self.options.down)
            await self.targets["b"].start()
            result = await self._catch_up()
            producing.cancel()
            return result
        finally:
            for child in children:
                await child.kill()

    async def _catch_up(self) -> dict[str, Any]:
        status = await self.leave("SUSPENDED", "")
        began, index, current = time.perf_counter(), status["b"]["index"], status["current"]
        joined = await self.leave("CATCHING_UP")
        while status["b"]["index"] < joined["current"]:  # What was queued at that time is durable too.
            await asyncio.sleep(0.01)
            status = await self.status()
        spent = time.perf_counter() - began
        taken, arrived = status["b"]["index"] - index, status["current"] - current
        return {
            "state": joined["b"]["state"],
            "behind_entries": current - index,
            "seconds": round(spent, 2),
            "catch_up_per_second": round(taken / spent),
            "arrival_per_second": round(arrived / spent),
            "factor": round(taken / arrived, 1) if arrived else None,
        }


async def _open(where: str) -> LogClient:
    while True:
        try:
            return await LogClient.open(where)
        except LogPlayerError:
            await asyncio.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--down", type=float, default=10)
    parser.add_argument("--bytes", type=int, default=1000)
    parser.add_argument("--scheme", choices=["tcp", "grpc"], default="tcp")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(Bench(Path(folder), options).run())
    result |= {"scheme": options.scheme, "bytes": options.bytes}
    result["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(json.dumps(result) if options.as_json else json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
