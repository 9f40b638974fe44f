"""The player's core: ``step(event) -> effects``. It decides everything and does nothing.

The caller's duties:

1. Feed events one at a time, from one thread. Perform the returned effects in order.
2. Append a takeover record to the log before making a core; the record's index is the ``epoch``.
3. Give ``control`` as decided by every control record up to the takeover record, a copy of its own: the core goes on
   deciding on it. Records read again change nothing.
4. Feed ``Ticked`` at least every ``limits.tick_ms_max``, and once at the start: sessions are opened on ticks.
5. Answer each ``OpenSession`` with ``Opened``, ``Refused`` or ``Lost``; each ``SendBatch`` with ``Written`` or
   ``Lost``; each ``ReadCatchUp`` with ``CaughtUp``, ``CatchUpTrimmed`` or ``CatchUpFailed``. Late answers of dead
   sessions do no harm.
6. After ``StepDown`` or ``Stop``, close everything; the core answers nothing more.
7. An ``InvariantViolation`` ends the process: the state cannot be trusted, and all that matters is at the targets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logplayer.core import effect, event
from logplayer.core.entry import Entry, Message, Takeover
from logplayer.core.invariant import broken
from logplayer.core.limits import Limits
from logplayer.core.membership import Control
from logplayer.core.queue import State, TargetQueue
from logplayer.core.sessions import LIVE, SUSPENDED, Sessions
from logplayer.core.trace import Sink
from logplayer.core.trim import trim_point
from logplayer.errors import ConfigError

CATCHING_UP = State.CATCHING_UP
_new_tuple = tuple.__new__  # A third of the time that the class itself takes.
HOMELESS_NAMES_MAX = 100


class Player(Sessions):
    """Plays the log into the targets of one group."""

    def __init__(
        self,
        epoch: int,
        current: int,
        control: Control,
        limits: Limits | None = None,
        *,
        group: str = "",
        owns: Callable[[str], bool] | None = None,
        trims: bool = False,
        archived: int | None = None,
        trimmed: int = 0,
        trace: Sink | None = None,
    ) -> None:
        if trims and owns is not None:
            raise ConfigError(
                "a player of some of the targets cannot trim: it does not know what the others have. Trim with a "
                "player that owns every target, or leave trims off"
            )
        super().__init__(epoch, current, control, limits, trimmed, trace)
        self.group = group
        self.archived = archived  # None: no archive policy.
        self._terms: dict[str, int] = {}  # Of members that left: one that comes back must not reuse a session.
        self.homeless: dict[str, int] = {}  # Entries for names that are no members, counted by name.
        self._owns = owns  # Which members are this group's; None: all of them.
        self._trims = trims
        self._trim_asked = trimmed  # The log may have obeyed only in part, or not at all.
        self._clock: int | None = None
        self._swept = self.current  # Where idle targets were last looked at.
        self._handlers: dict[type, Callable[[Any], None]] = {
            event.Fetched: self._fetched,
            event.Written: self._written,
            event.Acked: self._acked,
            event.CaughtUp: self._caught_up,
            event.CatchUpTrimmed: self._catch_up_trimmed,
            event.CatchUpFailed: self._catch_up_failed,
            event.MainTrimmed: self._main_trimmed,
            event.Opened: self._opened,
            event.Refused: self._refused,
            event.Lost: self._lost,
            event.Ticked: self._ticked,
            event.LogTrimmed: self._log_trimmed,
            event.Archived: self._archived_up_to,
            event.StopRequested: self._stop_requested,
            event.RetryRequested: self._retry_requested,
        }
        self._admit_members()
        if self._trace:
            self._trace.main("start", current=self.current)

    def __repr__(self) -> str:
        return f"<Player epoch={self.epoch} current={self.current} targets={len(self.queues)} stopped={self.stopped}>"

    def step(self, fact: event.Event) -> list[effect.Effect]:
        """Take in one fact; return what to do about it, in order."""
        effects: list[effect.Effect] = []
        self.take(fact, effects.append)
        return effects

    def take(self, fact: event.Event, request: Callable[[effect.Effect], None]) -> None:
        """The same, but each effect goes to ``request`` as soon as it is decided: the first batch leaves the earlier.

        It may perform the effect at once. It must not come back with another fact before this one is done.
        """
        if self.stopped:
            return
        self._request = request
        self._handlers[type(fact)](fact)

    # --- The main stream ------------------------------------------------------------------------------------

    def _fetched(self, fact: event.Fetched) -> None:
        if self.draining:
            return  # What is not dispatched will be read by the next player.
        touched: dict[str, TargetQueue] = {}
        alone = len(fact.entries) == 1
        for entry in fact.entries:
            self._dispatch(entry, touched, alone)
            if self.stopped:
                return
        for queue in touched.values():
            if queue.writable:
                self._send(queue)
        if self.current - self._swept >= self.limits.idle_entries_max:
            self._swept = self.current
            for queue in self.queues.values():
                self._pump(queue)

    def _dispatch(self, entry: Entry, touched: dict[str, TargetQueue], alone: bool) -> None:
        """Give the entry to its LIVE targets. The main stream never waits: a target that is full is demoted.

        An entry that came alone goes past the queues that are empty, which is the usual case and cheaper.
        """
        index = entry.index
        if index <= self.current:
            raise broken("MainRises", current=self.current, index=index)
        if entry.record is not None:
            self._decide(entry)
            if self.stopped:
                return
        demoted: list[str] = []
        passed: list[effect.SendBatch] = []
        queues, quarantined = self.queues, self.control.quarantined
        for name, payload in self.control.router.split(entry).items():
            queue = queues.get(name)
            if queue is None:
                self._count_homeless(name, index)
                continue
            if queue.state is not LIVE or index <= queue.covered:
                continue  # Fed by its own reader, or already covered when it joined.
            aside = bool(quarantined) and index in quarantined.get(name, ())
            message = _new_tuple(Message, (index, payload, aside))
            if alone and queue.writable and not queue.messages:
                batch = queue.pass_on(message)
                if batch is not None:
                    self._sent(queue)
                    if self._trace:
                        passed.append(batch)  # A trace tells of the entry first.
                    else:
                        self._request(batch)
                    continue
            if queue.offer(message) or (queue.writable and self._offer_again(queue, message)):
                touched[name] = queue
            else:
                queue.demote(self.current)
                demoted.append(name)
        self.current = index
        if self.recent.keeping:
            self.recent.add(entry)
        if self._trace:
            self._trace.main("dispatch", index=index, demoted=demoted)
            for batch in passed:
                self._trace.send(batch)
                self._request(batch)
        for name in demoted:
            self._catch_up(self.queues[name])

    def _count_homeless(self, name: str, index: int) -> None:
        """An entry is for a target without a queue here: another group's, or nobody's, which is told once a name."""
        if name in self.control.members:
            return
        if name not in self.homeless and len(self.homeless) < HOMELESS_NAMES_MAX:
            self._request(effect.Report(name, f"is no member, but entry {index} is for it: it goes nowhere"))
        elif name not in self.homeless:
            name = ""  # Enough names were told; the rest is counted together.
        self.homeless[name] = self.homeless.get(name, 0) + 1

    def _offer_again(self, queue: TargetQueue, message: Message) -> bool:
        """A long fetch has filled the queue of a target that is ready for more: send before giving up on it."""
        self._send(queue)
        return queue.offer(message)

    def _decide(self, entry: Entry) -> None:
        """Act on a control record at its position in the log."""
        record = entry.record
        if isinstance(record, Takeover):
            if record.group == self.group and entry.index > self.epoch:
                self._step_down(f"epoch {entry.index} has taken over ({record.player or 'another player'})")
            return
        before = {name: len(indexes) for name, indexes in self.control.quarantined.items()}
        if not self.control.decide(entry):
            return
        self._admit_members()
        for name, indexes in self.control.quarantined.items():
            queue = self.queues.get(name)
            if queue is not None and len(indexes) != before.get(name, 0) and queue.health.blocked:
                queue.health.unblock(self.now)

    def _main_trimmed(self, fact: event.MainTrimmed) -> None:
        """The main stream is behind the trim point: every registered target has what is gone, so it jumps there."""
        self._learn_trim(fact.first - 1)
        if fact.control.through > self.control.through:
            self.control = fact.control
            self._admit_members()
        if fact.first - 1 <= self.current:
            return
        demoted = [queue for queue in self.queues.values() if queue.state is LIVE and queue.covered < fact.first - 1]
        for queue in demoted:
            queue.demote(self.current)
        self.current = fact.first - 1
        self.recent.forget()
        if self._trace:
            self._trace.main("jump", current=self.current, demoted=[queue.name for queue in demoted])
        for queue in self.queues.values():
            self._catch_up(queue)

    def _admit_members(self) -> None:
        """Make the set of queues equal to the members that are ours."""
        members = self.control.members
        for name in [name for name in self.queues if name not in members]:
            queue = self.queues.pop(name)
            self._terms[name] = queue.term
            self._end_session(queue)
        for name, added in members.items():
            if name not in self.queues and (self._owns is None or self._owns(name)):
                # Until it reports its own index, it holds the trim point at the index that it reserved.
                self.queues[name] = TargetQueue(name, self.limits, added.at or 0, self._terms.pop(name, 0))

    def wants_entries(self) -> bool:
        """Whether anybody would gain from the next entries of the main stream.

        The main stream waits for no target. But when every target with a session has plenty queued, or reads the log
        for itself, to dispatch more now would only turn LIVE targets into lagging ones. With no session at all there
        may still be control records to see.
        """
        served = False
        for queue in self.queues.values():
            if queue.state is LIVE and queue.has_room():
                return True
            served = served or queue.state is not SUSPENDED
        return not served

    # --- Time -----------------------------------------------------------------------------------------------

    def _ticked(self, fact: event.Ticked) -> None:
        if self._clock is not None and fact.now > self._clock:
            self.now += min(fact.now - self._clock, self.limits.tick_ms_max)
        self._clock = fact.now
        for queue in list(self.queues.values()):
            if queue.session is None:
                self._open_if_due(queue)
            else:
                self._look_after(queue)
            if self.stopped:
                return
        if self.recent.keeping and not any(queue.state is CATCHING_UP for queue in self.queues.values()):
            self.recent.forget()
        if self._trims and not self.draining:
            self._trim_if_worth_it()

    # --- Trim and the end -----------------------------------------------------------------------------------

    def trim_point(self) -> int:
        """Up to where nobody in this group needs the log any more."""
        return trim_point(self.queues.values(), self.current, self.archived)

    def _trim_if_worth_it(self) -> None:
        point = self.trim_point()
        if point - max(self.trimmed, self._trim_asked) < self.limits.trim_entries_min:
            return
        if any(queue.acked < point for queue in self.queues.values()):
            raise broken("TrimSafe", point=point, queues=list(self.queues.values()))
        self._trim_asked = point
        self._request(effect.TrimLog(point))
        if self._trace:
            self._trace.main("trim", to=point)

    def _log_trimmed(self, fact: event.LogTrimmed) -> None:
        self._learn_trim(fact.up_to)

    def _archived_up_to(self, fact: event.Archived) -> None:
        self.archived = fact.up_to

    def _retry_requested(self, fact: event.RetryRequested) -> None:
        queue = self.queues.get(fact.target)
        if queue is not None and queue.session is None:
            queue.health.unblock(self.now)
            self._open_if_due(queue)

    def _stop_requested(self, fact: event.StopRequested) -> None:
        self.draining = True
        for queue in self.queues.values():
            self._pump(queue)
        self._stop_if_drained()
