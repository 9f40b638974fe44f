"""The face of a Spark application: all of its groups as one player. Everything here runs on the background loop."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from logplayer.admin.app import Action, Face, Facts
from logplayer.admin.audit_report import AuditReport
from logplayer.admin.decisions import Decisions, text
from logplayer.admin.exposition import Samples, add_player
from logplayer.errors import ConfigError, Unavailable
from logplayer.spark.resident import events
from logplayer.spark.resident.silence import why_not_ready

if TYPE_CHECKING:
    from logplayer.spark.resident.driver import Resident


def driver_face(resident: Resident) -> Face:
    """What the application shows over HTTP, and lets do."""
    overview = resident.overview

    async def status() -> Facts:
        audit = asdict(resident.audit) if resident.audit is not None else None
        found = resident.status() if resident.machine is not None else resident.waiting.status()
        return {**found, "audit": audit}

    async def not_ready() -> str:
        if resident.machine is None:
            return f"it waits for its log: {resident.waiting.reason}"
        return why_not_ready(resident.machine, resident.now())

    async def retry(question: Facts) -> Facts:
        resident.tell(events.RetryAsked(_member(resident, question)))
        return {"ok": True}

    async def suspend(question: Facts) -> Facts:
        resident.tell(events.SuspendAsked(_member(resident, question)))
        return {"ok": True}

    async def stop(question: Facts) -> Facts:
        resident.request_stop()
        return {"ok": True}

    async def metrics(into: Samples) -> None:
        add_player(into, await status(), overview.tally.total())

    async def audited(question: Facts) -> Facts:
        resident.audit = AuditReport.read(question)
        resident.audit.tell(overview.timeline)
        return {"ok": True}

    actions: dict[str, Action] = {
        "retry": retry,
        "resume": retry,
        "suspend": suspend,
        "stop": stop,
        "audited": audited,
        **Decisions(lambda: resident.log, resident.config, status).actions(),
    }
    return Face("spark", status, not_ready, metrics, actions, overview.timeline, page=True)


def _member(resident: Resident, question: Facts) -> str:
    """The target that the question names."""
    if resident.machine is None:
        raise Unavailable("the application waits for its log; ask again")
    name, members = text(question, "target"), resident.machine.members
    if name not in members:
        raise ConfigError(f"this application has no target {name!r}; it has {', '.join(sorted(members)) or 'none'}")
    return name
