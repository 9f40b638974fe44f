"""A bench for the core: make a player, open its sessions, look at its effects."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from logplayer.core.control_state import ControlState
from logplayer.core.effects import Effect, LookUp, OpenSession, ReadCatchUp, SendBatch
from logplayer.core.entry import Entry, ExplicitMap, Mutation, Session
from logplayer.core.events import Acked, CaughtUp, Event, Fetched, LookedUp, Opened, Ticked, Written
from logplayer.core.limits import Limits
from logplayer.core.player import Player
from logplayer.core.routing import Owner, join_parts
from logplayer.core.target_queue import State

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


def entry(index: int, record: Any = None, **parts: str | bytes) -> Entry:  # A Record; a dict of parts has no such key.
    """An entry with one mutation for each named target."""
    mutations = [
        Mutation(name.encode(), part if isinstance(part, bytes) else part.encode(), name)
        for name, part in parts.items()
    ]
    return Entry(index, payload(*mutations), record)


def payload(*mutations: Mutation) -> bytes:
    """A payload that :func:`cut` takes apart: what a target gets is exactly what a test has written."""
    return repr([tuple(mutation) for mutation in mutations]).encode() if mutations else b""


def mutations_of(entry: Entry) -> list[Mutation]:
    """The mutations of an entry that nobody has split yet."""
    return [Mutation(*mutation) for mutation in ast.literal_eval(entry.payload.decode() or "[]")]


def cut(payload: bytes, owner: Owner) -> tuple[dict[str, bytes], int]:
    """See :data:`logplayer.core.routing.Cut`."""
    return join_parts(mutations_of(Entry(0, payload)), owner)


class Confirmed(Player):
    """A player whose log confirms at once what a target says that it has: tests of other things need not answer."""

    def take(self, fact: Event, request: Callable[[Effect], None]) -> None:
        looks: list[LookUp] = []

        def pass_on(effect: Effect) -> None:
            claim = self.queues[effect.target].claim if isinstance(effect, LookUp) else None
            if isinstance(effect, LookUp) and claim is not None and claim.opened is not None:
                looks.append(effect)
            else:
                request(effect)

        super().take(fact, pass_on)
        for look in looks:
            claim = self.queues[look.target].claim
            assert claim is not None
            assert claim.opened is not None
            last = max(look.index, self.current)
            found = LookedUp(look.target, look.index, self.trimmed + 1, last, None, claim.opened.chain)
            super().take(found, request)


def new_player(*arguments: Any, confirmed: bool = True, **options: Any) -> Player:
    """A player whose payloads are those of :func:`payload`."""
    return (Confirmed if confirmed else Player)(*arguments, cut=cut, **options)


def control(*names: str) -> ControlState:
    return ControlState.start(ExplicitMap(), names)


def make_player(
    *names: str, epoch: int = 1, current: int = 0, confirmed: bool = True, chain: bytes = b"", **changed: int
) -> Player:
    return new_player(epoch, current, control(*names), limits(**changed), confirmed=confirmed, chain=chain)


def of(effects: Iterable[object], kind: type[E]) -> list[E]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def one(effects: Iterable[object], kind: type[E]) -> E:
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
    player = new_player(1, 0, control(*names), limits(**changed))
    open_all(player)
    assert all(queue.state is State.LIVE for queue in player.queues.values())
    return player


def written(player: Player, batch: SendBatch) -> list[Effect]:
    return player.step(Written(batch.target, batch.session))


def acked(player: Player, batch: SendBatch) -> list[Effect]:
    return player.step(Acked(batch.target, batch.session, batch.to))


def answer_read(player: Player, read: ReadCatchUp, log: Iterable[Entry]) -> list[Effect]:
    """What the log holds, up to what was asked for."""
    found = [Entry(e.index, e.payload, e.record, e.parts) for e in log if read.first <= e.index <= read.last]
    return player.step(CaughtUp(read.target, read.session, read.first - 1, read.last, found))


def fetch(player: Player, *entries: Entry) -> list[Effect]:
    return player.step(Fetched(entries))
