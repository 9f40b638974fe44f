"""The feed: fills one target from a bounded, ordered source, with the player's own machine. Sinks and backfill use it.

A feed is a :class:`~logplayer.core.player.Player` of one target whose main stream is already at the end of the source,
so that all of the source is catch-up. The player decides on terms, windows, deadlines and back-off, and what an ack or
a refusal means. Only what makes a feed different from a player is decided here:

* *It ends.* A player tries a target for ever and leaves a blocked one to an operator. A feed has a caller who waits:
  it ends once the target has everything up to ``through``, once it is blocked, or after ``patience_ms`` in which the
  target took nothing. How it ended is a value, :class:`Fed`.
* *Its epoch is not new.* A player's epoch is the index of its own takeover record. A feed is given its epoch: all feeds
  of one backfill have 0, all micro-batches of one query have that of the query. So there may have been sessions of this
  epoch, and the first term follows the one that the target has. It is asked once: the position is not a basis for
  sending (only Opened is), and a feed that loses its session to a later feed of the same epoch tries the next term, as
  a player does.
* *It has no log to ask.* A player looks up what a target claims about the log (``core.claims``). A feed takes it at its
  word: FENCED ends it, and a target that has more than the source has all of the source.

The source holds ``(after, through]``. A target that has less than ``after`` would lose entries: to the player the log
is trimmed up to there, and the target is blocked with RESEED.

The caller's duties are the player's, but: answer each ``AskSession`` with ``Stood`` or ``AskFailed``, and each
``ReadCatchUp`` with ``DeliveriesRead``. After ``Stop``, ``ended`` says how it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from logplayer.core import effects, events
from logplayer.core.chain import GENESIS
from logplayer.core.control_state import ControlState
from logplayer.core.entry import Entry, Session
from logplayer.core.limits import Limits
from logplayer.core.player import Player
from logplayer.core.reconnect import Blocked, Reconnect
from logplayer.core.routing import Owner
from logplayer.core.target_queue import State, TargetQueue

# A feed has no other targets to protect, and its caller would rather wait for a slow commit than begin again.
LIMITS = Limits(
    flight_batches_max=64,
    flight_bytes_max=8 << 20,
    idle_entries_max=1,  # What the source has after its last entry is covered at once: the caller waits for it.
    silence_ms_max=30_000,
    progress_ms_max=60_000,
    open_ms_max=30_000,
    backoff_ms_max=1000,
)
PATIENCE_MS = 60_000


@dataclass(frozen=True, slots=True)
class AskSession:
    """Ask the target for its newest session; answer with ``Stood`` or ``AskFailed``."""

    target: str


@dataclass(frozen=True, slots=True)
class Stood:
    """The target's newest session, as it says itself."""

    session: Session


@dataclass(frozen=True, slots=True)
class AskFailed:
    """The target could not be asked for now."""

    error: str


@dataclass(frozen=True, slots=True)
class Fed:
    """How a feed ended: the target has everything, or ``blocked`` or ``error`` says why it does not."""

    index: int
    digest: int = 0
    blocked: Blocked | None = None
    error: str = ""  # The last of them, if the feed lost its patience.


FeedEvent = events.Event | Stood | AskFailed
FeedEffect = effects.Effect | AskSession


class Feed:
    """Fills one target up to ``through``."""

    def __init__(
        self,
        target: str,
        epoch: int,
        through: int,
        *,
        after: int = 0,
        chain: bytes = GENESIS,
        limits: Limits = LIMITS,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self.target = target
        self.epoch = epoch
        self.through = through
        self.ended: Fed | None = None
        self.player: Player | None = None  # Once it is known with which term to begin.
        self._after = after
        self._chain = chain  # The source's chain value at ``through``; empty if it has none.
        self._limits = limits
        self._patience_ms = patience_ms
        self._asking = False
        self._ask = Reconnect(target, limits)
        self._clock: int | None = None
        self._now = 0  # Milliseconds of our own waking time, as the player counts them.
        self._progress_at = 0
        self._reached = -1
        self._request: Callable[[FeedEffect], None]  # Of the step that runs.

    @property
    def has(self) -> int:
        """The largest index that the target has acked in this feed; -1 if none."""
        return self._reached

    def __repr__(self) -> str:
        return f"<Feed {self.target} epoch={self.epoch} through={self.through} {self.ended or self.player}>"

    def step(self, fact: FeedEvent) -> list[FeedEffect]:
        """Take in one fact; return what to do about it, in order."""
        requested: list[FeedEffect] = []
        self.take(fact, requested.append)
        return requested

    def take(self, fact: FeedEvent, request: Callable[[FeedEffect], None]) -> None:
        """The same, but each effect goes to ``request`` as soon as it is decided: see :meth:`Player.take`."""
        if self.ended is not None:
            return  # Whoever was still on the way comes too late: the caller has the outcome.
        self._request = request
        handler = self._handlers.get(type(fact))
        if handler is not None:
            handler(self, fact)
        else:
            self._play(fact)  # type: ignore[arg-type]  # All others are the player's.
        self._end_if_due()

    # --- The first term -------------------------------------------------------------------------------------

    def _ticked(self, fact: events.Ticked) -> None:
        if self._clock is not None and fact.now > self._clock:
            self._now += min(fact.now - self._clock, self._limits.tick_ms_max)
        self._clock = fact.now
        if self.player is not None:
            self._play(fact)
        elif not self._asking and self._ask.due(self._now):
            self._asking = True
            self._request(AskSession(self.target))

    def _stood(self, fact: Stood) -> None:
        if self.player is not None:
            return  # It was asked once, and has answered.
        term = fact.session.term if fact.session.epoch == self.epoch else 0
        self.player = Player(
            self.epoch,
            0,
            ControlState.start(None, (self.target,)),
            self._limits,
            cut=_routed_already,
            trimmed=self._after,
            terms={self.target: term},
            asks=False,
        )
        if self.through > 0:
            # The main stream comes to the source's end, past nothing that is for anybody: the rest is catch-up.
            self._play(events.Fetched([Entry(self.through, parts={}, chain=self._chain)]))
        self._play(events.Ticked(self._clock or 0))

    def _ask_failed(self, fact: AskFailed) -> None:
        self._asking = False
        self._ask.lost(self._now, fact.error)

    # --- The player, and the end ----------------------------------------------------------------------------

    @property
    def _queue(self) -> TargetQueue | None:
        return None if self.player is None else self.player.queues[self.target]

    def _play(self, fact: events.Event) -> None:
        if self.player is not None:
            self.player.take(fact, self._pass_on)

    def _pass_on(self, effect: effects.Effect) -> None:
        # There is no log to look into: what the target claims ends the feed, in this same step.
        if type(effect) is not effects.LookUp:
            self._request(effect)

    def _end_if_due(self) -> None:
        queue = self._queue
        if queue is not None:
            self._note_progress(queue)
            self.ended = self._outcome(queue)
        if self.ended is None and self._now - self._progress_at > self._patience_ms:
            error = self._ask.last_error if queue is None else queue.reconnect.last_error
            self.ended = Fed(max(self._reached, 0), error=error or "the target takes nothing")
        if self.ended is not None:
            self._request(effects.Stop())

    def _note_progress(self, queue: TargetQueue) -> None:
        if queue.known and queue.acked > self._reached:
            self._reached = queue.acked
            self._progress_at = self._now
        elif queue.reading and queue.idle():
            self._progress_at = self._now  # The target waits for us: the source is slow, and that is not its fault.

    def _outcome(self, queue: TargetQueue) -> Fed | None:
        blocked, claim = queue.reconnect.blocked, queue.claim
        if blocked is not None:
            return Fed(queue.acked, queue.digest, _fenced(blocked.index) if blocked.kind == "FENCED" else blocked)
        if claim is not None and claim.opened is not None:
            return Fed(claim.opened.index, claim.opened.digest)
        if claim is not None:
            return Fed(queue.acked, queue.digest, _fenced(claim.at))
        if queue.state is not State.SUSPENDED and queue.acked >= self.through:
            return Fed(queue.acked, queue.digest)
        return None

    _handlers: ClassVar[dict[type, Callable[[Feed, Any], None]]] = {
        events.Ticked: _ticked,
        Stood: _stood,
        AskFailed: _ask_failed,
    }


def _fenced(epoch: int) -> Blocked:
    return Blocked("FENCED", f"epoch {epoch} has taken over", epoch)


def _routed_already(payload: bytes, owner: Owner) -> tuple[dict[str, bytes], int]:
    """See :data:`logplayer.core.routing.Cut`: a feed's source has deliveries, so there is nothing to cut."""
    return {}, 0
