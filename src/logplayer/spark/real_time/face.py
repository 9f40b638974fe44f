"""The face of a query in real time: its tasks and targets as one player."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logplayer.admin.app import Action, Face, Facts
from logplayer.admin.decisions import Decisions
from logplayer.admin.exposition import Samples, add_player
from logplayer.config import Config
from logplayer.log.protocol import Log
from logplayer.observe.timeline import Timeline

if TYPE_CHECKING:
    from logplayer.spark.real_time.query import Realtime


def query_face(query: Realtime, log: Log, config: Config, timeline: Timeline) -> Face:
    """What the query shows over HTTP, and lets do: its own stop, and decisions in the log.

    A single target cannot be suspended or retried: the query starts again by itself, also after a quarantine.
    """

    async def status() -> Facts:
        return query.status

    async def not_ready() -> str:
        found = query.status
        return "" if found["state"] == "playing" else f"it is {found['state']}: {found['reason'] or 'in a moment'}"

    async def stop(question: Facts) -> Facts:
        query.request_stop()
        return {"ok": True}

    async def metrics(into: Samples) -> None:
        add_player(into, query.status)

    actions: dict[str, Action] = {"stop": stop, **Decisions(lambda: log, config, status).actions()}
    return Face("spark", status, not_ready, metrics, actions, timeline, page=True)
