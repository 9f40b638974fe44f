"""The face of a log server."""

from __future__ import annotations

import asyncio

from logplayer.admin.app import Face, Facts
from logplayer.admin.exposition import Samples, add_log
from logplayer.errors import LogPlayerError
from logplayer.log.protocol import Log
from logplayer.log.server import LogServer

ANSWER_SECONDS = 3.0


def log_face(address: str, log: Log, server: LogServer) -> Face:
    """``log`` is what ``server`` serves; it was opened by ``address``."""

    async def status() -> Facts:
        info = await log.info()
        counts = server.counts
        values = {"chain": info.chain.hex(), "trimmed_chain": info.trimmed_chain.hex()}
        told = {"entries": counts.entries, "refused": counts.refusals.total()}
        return {"log": address, **info._asdict(), **values, **told}

    async def not_ready() -> str:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await log.info()
        except TimeoutError:
            return f"the log does not answer within {ANSWER_SECONDS:.0f} s"
        except (LogPlayerError, OSError) as error:
            return str(error)
        return ""

    async def metrics(into: Samples) -> None:
        # Each engine has the counts that mean something for it; its class needs a client that may not be installed.
        writer, keeper = getattr(log, "writer_counts", None), getattr(log, "keeper_counts", None)
        add_log(into, await status(), server.counts, writer, keeper)

    return Face("log", status, not_ready, metrics)
