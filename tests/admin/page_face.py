"""Behind a page there is only a status that a test has made: for what real processes do not do at will."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from logplayer.admin.app import Face, Facts, serve
from logplayer.admin.exposition import Samples
from logplayer.player.start import Waiting
from logplayer.wire.security import NONE, Security

HELD = {"kind": "HELD", "detail": "an operator suspended it", "index": None}
POISON = {"kind": "POISON", "detail": "no", "index": 7}
AWAY = {"state": "SUSPENDED", "outlook": "is tried again", "why": "Connection refused", "whether": "tried again in 4 s"}
FALLS = {"state": "CATCHING_UP", "outlook": "falls behind", "why": "too slow", "whether": "falls behind"}
SLOW = {"state": "CATCHING_UP", "outlook": "catches up", "why": "7 entries to go", "whether": "catches up in 9 s"}
BLOCKED = {"state": "BLOCKED", "outlook": "needs you", "why": "POISON: no", "whether": "needs you", "blocked": POISON}
SUSPENDED = {**BLOCKED, "why": "HELD: an operator suspended it", "blocked": HELD}
FINE = {"state": "LIVE", "outlook": "fine", "why": "", "whether": "fine", "blocked": None}


def a_target(name: str, **fields: Any) -> dict[str, Any]:
    """One that has everything, but for ``fields``."""
    return {
        "target": name, "address": "grpc://10.0.0.1:7201", "session": "1.1", "index": 1000, "lag_entries": 0,
        "lag_bytes": 0, "lag_seconds": 0.0, "queued": 0, "in_flight": 0, "entries_per_second": 0.0, "eta_seconds": 0.0,
        "attempts": 0, "digest": "0" * 32, "error": "", "state_seconds": 9.0, "quarantined": 0,
        "quarantined_ahead": 0, "quarantined_indexes": (), "queue_fill": 0.0, "window_fill": 0.0, "sessions": 1,
        "retry_seconds": None,
        **FINE, **fields,
    }  # fmt: skip


def playing(targets: list[dict[str, Any]]) -> dict[str, Any]:
    """The status of a player with these targets."""
    status = Waiting("p", "", "grpc://x").status()
    return {**status, "state": "playing", "log_error": "", "log_last": 1000, "log_first": 1, "targets": targets}


def face_of(status_now: Callable[[], Facts]) -> Face:
    """Of a player that is not there, and whose actions do nothing."""

    async def status() -> Facts:
        return status_now()

    async def not_ready() -> str:
        return ""

    async def metrics(into: Samples) -> None: ...

    async def act(question: Facts) -> Facts:
        return {}

    actions = dict.fromkeys(("retry", "suspend", "resume"), act)
    return Face("player", status, not_ready, metrics, actions, page=True)


@contextmanager
def faced(status_now: Callable[[], Facts], security: Security = NONE) -> Iterator[str]:
    """The address of a page that shows what ``status_now`` returns, on a loop of its own."""
    loop = asyncio.new_event_loop()
    server = serve(face_of(status_now), security)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{asyncio.run_coroutine_threadsafe(server.start('127.0.0.1:0'), loop).result(60)}/"
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
