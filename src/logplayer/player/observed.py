"""What a player's shell sees of itself, beside the core. Nothing of it reaches the core, and nobody waits for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from logplayer.core.effects import Report, StepDown
from logplayer.core.player import Player
from logplayer.core.target_queue import State
from logplayer.log.protocol import SYSTEM_PREFIX, Record
from logplayer.observe import tracing
from logplayer.observe.instruments import PlayerCounts
from logplayer.observe.timeline import EPOCH, FAULT, FENCE, Timeline
from logplayer.player.log_watch import LogWatch
from logplayer.player.news import News
from logplayer.player.progress import PlayerProgress
from logplayer.player.redriven import Redriven
from logplayer.player.status import PlayerFacts, PlayerStatus, Rates, View, player_status
from logplayer.wording import plural

logger = logging.getLogger("logplayer.player")

PRODUCERS_SECONDS = 60.0  # A producer that was not seen for so long is not shown.
PRODUCERS_MAX = 100


class Observed:
    """Counts, delays, rates, the time line and the log's end."""

    def __init__(self, timeline: Timeline | None = None) -> None:
        self.timeline = timeline or Timeline(logger)
        self.log = LogWatch(self.timeline)
        self.news = News(self.timeline)
        self.progress = PlayerProgress()
        self.redriven = Redriven()
        self.rates = Rates()
        self.counts = PlayerCounts()
        self.core: Player  # Since the takeover.
        self._log_id = ""
        self._producers: dict[str, float] = {}  # When each was last seen at the end of a fetch.

    def took_over(self, core: Player, log_id: str) -> None:
        """The player begins."""
        self.core, self._log_id = core, log_id
        self.timeline.facts.update(log_id=log_id, group=core.group, epoch=core.epoch)
        targets, start = plural(len(core.queues), "target"), core.current + 1
        text = "took over as epoch %d: %s, the main stream begins at entry %d"
        self.timeline.say(logging.INFO, EPOCH, text, core.epoch, targets, start, index=start)

    def steps_down(self, request: StepDown) -> None:
        """A newer player has taken over."""
        self.timeline.say(logging.WARNING, FENCE, "stepping down: %s", request.reason, by=request.epoch)

    def fetched(self, records: list[Record]) -> None:
        """The main stream dispatched these."""
        self.progress.fetched(records)
        last = records[-1]
        self.log.read(last.index)
        if self.core.control.quarantined:
            self.redriven.read(records)
        now, counts = time.time(), self.counts
        counts.dispatch.note(max(0.0, now - records[0].committed_at_us / 1e6))
        counts.entries += len(records)
        if tracing.active():
            for record in records:
                facts = {"index": record.index, "epoch": self.core.epoch}
                tracing.note("dispatch", record.payload, record.committed_at_us * 1000, **facts)
        counts.bytes = self.progress.newest.bytes
        if not last.producer.startswith(SYSTEM_PREFIX):
            self._producers[last.producer] = now

    def acked(self, target: str, index: int, seconds: float) -> None:
        """The target acked up to ``index``, ``seconds`` after it was sent."""
        self.counts.acks.note(seconds)
        queue = self.core.queues.get(target)
        if queue is not None and queue.state is State.LIVE:
            self.counts.delivery.note(self.progress.seconds_behind(index - 1, time.time_ns() // 1000))

    def tick(self) -> None:
        """Time has passed: look at everything."""
        core = self.core
        now = time.monotonic()
        self.rates.look(core)
        self.news.look(core.queues, core.current, now)
        self.news.look_at_decisions(core.control)
        self.counts.delivery.roll(now)
        if len(self._producers) > PRODUCERS_MAX:
            newest = sorted(self._producers.items(), key=lambda item: item[1])[-PRODUCERS_MAX // 2 :]
            self._producers = dict(newest)

    def report(self, request: Report) -> None:
        """The core says that an operator should know this."""
        who = f"target {request.target}: " if request.target else ""
        text = f"{who}{'BLOCKED: ' if request.blocked else ''}{request.what}"
        self.timeline.say(logging.ERROR, FAULT, "%s", text, target=request.target)

    def producers(self) -> tuple[str, ...]:
        """Whoever appended of late, the newest first."""
        since = time.time() - PRODUCERS_SECONDS
        seen = sorted(((at, name) for name, at in self._producers.items() if at >= since), reverse=True)
        return tuple(name for _, name in seen)

    def status(self, player: str, address: Callable[[str], str]) -> PlayerStatus:
        """The player and its targets now; ``address`` says where a target is reached."""
        facts = PlayerFacts(player, self._log_id, address, self.counts.delivery.recent, self.producers())
        return player_status(self.core, facts, View(self.log, self.news, self.progress, self.rates, self.redriven))
