"""The face of a target server."""

from __future__ import annotations

import asyncio
from typing import Any

from logplayer.admin.app import Face, Facts
from logplayer.admin.exposition import Samples, add_store
from logplayer.core import digest
from logplayer.target.host import Host
from logplayer.target.server import TargetServer

ANSWER_SECONDS = 3.0


def target_face(server: TargetServer) -> Face:
    """All targets that ``server`` has."""

    async def status() -> Facts:
        return {"addresses": server.addresses, "targets": [_facts(host) for host in server.hosts.values()]}

    async def not_ready() -> str:
        answers = await asyncio.gather(*(_trouble(host) for host in server.hosts.values()))
        return "; ".join(answer for answer in answers if answer)

    async def metrics(into: Samples) -> None:
        for host in server.hosts.values():
            add_store(into, _facts(host), host.counts)

    return Face("target", status, not_ready, metrics)


def _facts(host: Host) -> dict[str, Any]:
    position = host.position
    return {
        "target": host.name,
        "index": position.index,
        "epoch": position.session.epoch,
        "term": position.session.term,
        "log_id": position.log_id,
        "digest": digest.to_bytes(position.digest).hex(),
        "connected": host.connected,
        "entries": host.counts.entries,
        "refused": host.counts.refusals.total(),
        "failures": host.counts.failures,
    }


async def _trouble(host: Host) -> str:
    """Why the target's store does not answer; empty if it does."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await host.answers()
    except TimeoutError:
        return f"the store of {host.name} does not answer within {ANSWER_SECONDS:.0f} s"
    except Exception as error:  # noqa: BLE001 - whatever the store raises is why.
        return f"the store of {host.name} failed: {error}"
    return ""
