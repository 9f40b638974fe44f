"""Makes the machine of a log server vanish, under load: run by ``test_partition`` in a network of its own.

The first server is in a network namespace whose link goes down: no packet comes back, no connection breaks. It serves
the log of the second one, so both serve the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from logplayer.log.client import LogClient
from logplayer.log.file.log import FileLog
from logplayer.log.server import LogServer
from logplayer.testing.conformance.log_check import LogChecker
from logplayer.testing.conformance.log_cluster import TimedAcks
from logplayer.testing.conformance.log_harness import produce
from logplayer.wire.security import Security
from tests.log.partition_child import ip

HERE, THERE = "10.78.0.254", "10.78.0.1"
SPACE = f"lpv{os.getpid()}"
INSECURE = Security(insecure=True)


def link() -> None:
    ip("netns", "add", SPACE)
    ip("link", "add", "v0", "type", "veth", "peer", "name", "eth0", "netns", SPACE)
    ip("addr", "add", f"{HERE}/24", "dev", "v0")
    ip("link", "set", "v0", "up")
    ip("-n", SPACE, "addr", "add", f"{THERE}/24", "dev", "eth0")
    ip("-n", SPACE, "link", "set", "eth0", "up")
    ip("-n", SPACE, "link", "set", "lo", "up")


def serve_there(address: str) -> tuple[subprocess.Popen[str], str]:
    serve = (sys.executable, "-m", "logplayer.cli", "log", "serve", "--log", address, "--listen", f"{THERE}:0")
    command = ["ip", "netns", "exec", SPACE, *serve, "--json", "--insecure", "--log-insecure"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, str(json.loads(server.stdout.readline())["address"]).removeprefix("grpc://")


async def run(folder: Path) -> None:
    kept = await FileLog.open(folder / "log")
    second = LogServer(kept, INSECURE)
    hosts = [f"{HERE}:{await second.start(HERE)}"]
    process, where = await asyncio.to_thread(serve_there, f"grpc://{hosts[0]}")
    try:
        log = await LogClient.open([where, *hosts], security=INSECURE, patience_seconds=60)
        acked, seen = TimedAcks(), LogChecker()

        async def follow() -> None:
            async for records in log.read(1):
                seen.see(records)

        async def ask() -> None:
            while True:
                await log.newest("p0")

        tasks = [asyncio.create_task(produce(log, f"p{i}", 0, acked)) for i in range(3)]
        tasks += [asyncio.create_task(follow()), asyncio.create_task(ask())]
        await acked.more(200)
        assert log._servers.current.where == where
        gone = time.monotonic()
        ip("-n", SPACE, "link", "set", "eth0", "down")
        await acked.more(200)
        assert log._servers.current.where == hosts[0]
        while seen.index < acked[-1].index:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await log.info()
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        seen.acknowledge(acked)
        await seen.catch_up(kept)
        await seen.prove_all(kept)
        await log.close()
        print(f"{len(acked)} acknowledged, {acked.longest_gap(gone):.2f} s without")
    finally:
        process.kill()
        process.wait()
        await second.stop(0)
        await kept.close()


def main() -> None:
    try:
        link()
        asyncio.run(run(Path(sys.argv[1])))
    finally:
        subprocess.run(["ip", "netns", "del", SPACE], capture_output=True)


if __name__ == "__main__":
    main()
