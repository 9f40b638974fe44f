"""Serve many targets in memory at one port: ``python -m tests.player.many_targets SCHEME FIRST COUNT``."""

from __future__ import annotations

import asyncio
import sys

from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget


async def serve(scheme: str, first: int, count: int) -> None:
    server = TargetServer({f"s{number}": MemoryTarget() for number in range(first, first + count)})
    [address] = await server.start(**{scheme: "127.0.0.1:0"})
    print(address, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
