"""The face of a player in its own process: from the wait for its log to its end."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict

from logplayer.admin.app import Action, Face, Facts
from logplayer.admin.audit_report import AuditReport
from logplayer.admin.decisions import Decisions, text
from logplayer.admin.exposition import Samples, add_player
from logplayer.config import Config
from logplayer.errors import Unavailable
from logplayer.observe.timeline import Timeline
from logplayer.player.shell import Shell
from logplayer.player.start import Waiting


class Stage:
    """What HTTP and the signals reach: a wait for the log at first, then a player."""

    def __init__(self, waiting: Waiting, config: Config | None = None, timeline: Timeline | None = None) -> None:
        self.shell: Shell | None = None
        self.config = config or Config()
        self.timeline = timeline or Timeline(logging.getLogger("logplayer.player"))
        self.audit: AuditReport | None = None
        self.stop = asyncio.Event()
        self.waiting = waiting

    def request_stop(self) -> None:
        self.stop.set()
        if self.shell is not None:
            self.shell.request_stop()

    def face(self) -> Face:
        decisions = Decisions(lambda: self._playing().log, self.config, self._status)
        actions: dict[str, Action] = {
            "retry": self._retry,
            "resume": self._retry,
            "suspend": self._suspend,
            "stop": self._stop,
            "audited": self._audited,
            **decisions.actions(),
        }
        return Face("player", self._status, self._not_ready, self._metrics, actions, self.timeline, page=True)

    async def _status(self) -> Facts:
        if self._waits:
            return self.waiting.status()
        audit = asdict(self.audit) if self.audit is not None else None
        return {**self._playing().status().as_json(), "audit": audit}

    async def _not_ready(self) -> str:
        if self.shell is not None and self.shell.running:
            return ""
        if self.waiting.standby:
            return "it stands by: another player plays"
        return f"it waits for its log: {self.waiting.reason}" if self.waiting.reason else "it has not taken over"

    async def _metrics(self, into: Samples) -> None:
        add_player(into, await self._status(), self.shell.observed.counts if self.shell is not None else None)

    async def _retry(self, question: Facts) -> Facts:
        self._playing().retry(text(question, "target"))
        return {"ok": True}

    async def _suspend(self, question: Facts) -> Facts:
        self._playing().hold(text(question, "target"))
        return {"ok": True}

    async def _audited(self, question: Facts) -> Facts:
        self.audit = AuditReport.read(question)
        self.audit.tell(self.timeline)
        return {"ok": True}

    async def _stop(self, question: Facts) -> Facts:
        if not self._waits:
            self._playing()
        self.request_stop()
        return {"ok": True}

    @property
    def _waits(self) -> bool:
        return self.shell is None or (not self.shell.running and bool(self.waiting.reason))

    def _playing(self) -> Shell:
        if self.shell is None:
            raise Unavailable("the player waits for its log, or stands by; ask again")
        if not self.shell.running:
            raise Unavailable("the player is starting or ending; ask again")
        return self.shell
