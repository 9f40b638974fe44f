"""A bench for the core: make a player, open its sessions, look at its effects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from logplayer.core.effect import Effect, OpenSession, ReadCatchUp, SendBatch
from logplayer.core.entry import Entry, ExplicitMap, Mutation, Record, Session
from logplayer.core.event import Acked, CaughtUp, Fetched, Opened, Ticked, Written
from logplayer.core.limits import Limits
from logplayer.core.membership import Control
from logplayer.core.player import Player
from logplayer.core.queue import State

E = TypeVar("E")


def limits(**changed: int) -> Limits:
    """Limits in small numbers of milliseconds, with what a test changes."""
    small = {
        "idle_ms_max": 40,
        "heartbeat_ms": 60,
        "silence_ms_max": 250,
        "progress_ms_max": 400,
        "open_ms_max": 200,
        "backoff_ms_min": 8,
        "backoff_ms_max": 64,
        "blocked_ms": 150,
        "tick_ms_max": 120,
        "trim_entries_min": 1,
    }
    return Limits(**{**small, **changed})


def entry(index: int, record: Record | None = None, **parts: str | bytes) -> Entry:
    """An entry with one mutation for each named target."""
    mutations = [
        Mutation(name.encode(), part if isinstance(part, bytes) else part.encode(), name)
        for name, part in parts.items()
    ]
    return Entry(index, tuple(mutations), record)


def control(*names: str) -> Control:
    return Control.start(ExplicitMap(), names)


def make_player(*names: str, epoch: int = 1, current: int = 0, **changed: int) -> Player:
    return Player(epoch, current, control(*names), limits(**changed))


def of(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def one(effects: Iterable[Effect], kind: type[E]) -> E:
    """The only effect of one kind."""
    [effect] = of(effects, kind)
    return effect


def open_all(player: Player, at: int = 0, now: int = 0) -> dict[str, Session]:
    """Tick, and let every target that is asked accept at ``at``."""
    sessions = {}
    for asked in of(player.step(Ticked(now)), OpenSession):
        sessions[asked.target] = asked.session
        player.step(Opened(asked.target, asked.session, at))
    return sessions


def live_player(*names: str, **changed: int) -> Player:
    """A player at index 0 whose targets are all LIVE."""
    player = make_player(*names, **changed)
    open_all(player)
    assert all(queue.state is State.LIVE for queue in player.queues.values())
    return player


def written(player: Player, batch: SendBatch) -> list[Effect]:
    return player.step(Written(batch.target, batch.session))


def acked(player: Player, batch: SendBatch) -> list[Effect]:
    return player.step(Acked(batch.target, batch.session, batch.to))


def answer_read(player: Player, read: ReadCatchUp, log: Iterable[Entry]) -> list[Effect]:
    """What the log holds, up to what was asked for."""
    found = [Entry(e.index, e.mutations, e.record) for e in log if read.first <= e.index <= read.last]
    return player.step(CaughtUp(read.target, read.session, read.first - 1, read.last, found))


def fetch(player: Player, *entries: Entry) -> list[Effect]:
    return player.step(Fetched(entries))
