"""The scheduler: a random walk over everything that can happen next, with faults, and then without.

Phase one injects faults. Phase two heals the world and demands that everything arrives. One seed, one walk.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from zlib import crc32

from logplayer.core import events
from logplayer.core.control_state import ControlState
from logplayer.core.entry import (
    Decision,
    Entry,
    ExplicitMap,
    HashMap,
    MapChanged,
    Quarantined,
    RangeMap,
    ShardMap,
    Takeover,
    TargetAdded,
    TargetRemoved,
)
from logplayer.core.fence import Position
from logplayer.core.player import Player
from logplayer.core.trace import Sink, config
from logplayer.testing.sim.checkers import Checkers
from logplayer.testing.sim.host import SimHost
from logplayer.testing.sim.options import SimOptions
from logplayer.testing.sim.violation import Violation
from logplayer.testing.sim.world import LOG_ID, Every, SimLog, SimTarget, owner_by
from logplayer.wire.entries import encode_mutation, route_transaction

HEAL_STEPS_PER_ENTRY = 400


class Simulation:
    """One world, one seed."""

    _host_class: ClassVar[type[SimHost]] = SimHost

    def __init__(self, options: SimOptions, trace: bool = False, sink: Sink | None = None) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self.log = SimLog()
        self.targets: dict[str, SimTarget] = {}
        self.registered: dict[str, None] = {}  # The members, by the log's records; a dict keeps their order.
        self.removed_at: dict[str, int] = {}
        self.started_at: dict[str, int] = {}
        self.started_digest: dict[str, int] = {}
        self.hosts: list[SimHost] = []
        self.quarantine_ordered: set[tuple[str, int]] = set()
        self.archived: int | None = 0 if options.archive else None
        self.clock = 0
        self.steps = 0
        self.faulty = True
        self.faults = 0
        self.trace: list[Mapping[str, object]] = []
        self._sink = sink or (self.trace.append if trace else None)
        self._ready: list[tuple[Callable[[Any], None], Any]] = []
        self.checkers = Checkers(self)
        self._to_append = options.entries
        self._takeovers = options.players
        self._spare = 0
        self._born = 0
        self.lost: list[SimLog] = []  # Logs that an older state has replaced.
        names = tuple(f"t{i}" for i in range(1, options.targets + 1))
        self._first_map: ShardMap = self._make_map(names)
        self._map = self._first_map
        self._first_names = names
        for name in names:
            self._make_target(name, 0, 0)
            self.registered[name] = None

    # --- The scheduler --------------------------------------------------------------------------------------

    def schedule(self, act: Callable[[Any], None], argument: Any) -> None:
        """Let ``act`` happen some time later: which of all pending acts comes next is the seed's choice."""
        self._ready.append((act, argument))

    def run(self) -> None:
        """Both phases; raises a Violation or an InvariantViolation."""
        early = int(self.options.entries * (1 - self.options.late_log))
        for _ in range(early):
            self._append_data()
        self._start_player()
        for _ in range(self.options.steps):
            self._fault_step()
        self._heal()
        limit = HEAL_STEPS_PER_ENTRY * (self.options.entries + 10)
        for step in range(limit):
            self._one_step()
            if step % 16 == 0 and self._finish():
                break
        else:
            raise Violation("progress", f"not everything arrived within {limit} steps: {self.describe()}")
        if self.options.seed % 8 == 0:
            self._stay()
        self.checkers.final()

    def _stay(self) -> None:
        """Let quiet time pass: once the last black hole is noticed, no session may be given up any more."""
        self._quiet()
        before = self.checkers.sessions()
        self._quiet()
        if self.checkers.sessions() != before:
            raise Violation("stable", f"sessions changed while nothing happened: {before} {self.checkers.sessions()}")

    def _quiet(self) -> None:
        until = self.clock + 2 * self.options.limits.progress_ms_max
        while self.clock < until:
            while self._ready:
                act, argument = self._ready.pop(0)
                act(argument)
            self._tick(20)

    def _one_step(self) -> None:
        self.steps += 1
        ready, rng = self._ready, self.rng
        if not ready or rng.random() < self.options.tick:
            self._tick()
            return
        at = int(rng.random() * len(ready))
        act, argument = ready[at]
        ready[at] = ready[-1]
        ready.pop()
        act(argument)
        owner = getattr(act, "__self__", None)
        if isinstance(owner, SimTarget):
            self.checkers.applied(owner)

    def _tick(self, span: int = 0) -> None:
        self.clock += span or self.rng.choice((1, 5, 20, 60))
        for host in self.hosts:
            if host.alive and not host.frozen:
                host.tell(events.Ticked(self.clock))
                host.want_fetch()

    def _fault_step(self) -> None:
        rng = self.rng
        if self._to_append and rng.random() < 0.15:
            self._append_data()
        if rng.random() < self.options.fault:
            self.faults += 1
            rng.choice(self._faults)(self)
        self._one_step()

    # --- The log --------------------------------------------------------------------------------------------

    def _append(self, payload: bytes, record: Decision | None, names: dict[str, bytes]) -> int:
        index = self._next_index()
        self._born += 1
        self.log.append(Entry(index, payload, record), names, self._born)
        for host in self.hosts:
            host.want_fetch()
        return index

    def _next_index(self) -> int:
        gap = self.rng.randrange(1, 3) if self.rng.random() < self.options.sparse else 0
        return self.log.last + 1 + gap

    def _append_data(self) -> None:
        """A transaction with a mutation or a few; where each goes is decided here, by the map as of this moment."""
        rng = self.rng
        self._to_append -= 1
        payload = b""
        names: dict[str, bytes] = {}
        for _ in range(rng.choice((1, 1, 2, 3))):
            key = b"%d" % rng.randrange(1000)
            value = b"x" * rng.choice((1, 5, 30))
            explicit = isinstance(self._map, ExplicitMap) or rng.random() < 0.1
            owner = rng.choice(list(self.registered) or ["t1"]) if explicit else owner_by(self._map, key)
            encoded = encode_mutation(key, value, owner if explicit else "").encoded
            payload += encoded
            names[owner] = names.get(owner, b"") + encoded
        self._append(payload, None, names)

    def _append_record(self, record: Decision) -> int:
        return self._append(b"", record, {})

    def trim(self, up_to: int) -> None:
        """A player asked for it; the log obeys."""
        self.checkers.trimmed(up_to)
        self.log.trimmed = max(self.log.trimmed, up_to)

    def control_now(self) -> ControlState:
        """The decisions of all records so far, as a starting player gets them from the log."""
        control = ControlState.start(self._first_map, self._first_names)
        for entry in self.log.entries:
            if entry.record is not None:
                control.decide(entry)
        return control

    # --- Players and targets --------------------------------------------------------------------------------

    def _start_player(self, _: object = None) -> None:
        epoch = self._append_record(Takeover(player=f"p{len(self.hosts) + 1}"))
        start = self.rng.choice([self.log.trimmed, *(i for i in self.log.indexes if i >= self.log.trimmed)])
        self._play(epoch, start)

    def _play(self, epoch: int, start: int) -> None:
        core = Player(
            epoch,
            start,
            self.control_now(),
            self.options.limits,
            cut=route_transaction,
            trims=self.options.trim,
            archived=self.archived,
            trimmed=self.log.trimmed,
            trace=self._sink,
            chain=self.log.chain_at(min(start, epoch)) or b"",
        )
        host = self._host_class(self, core)
        self.hosts.append(host)
        host.tell(events.Ticked(self.clock))
        host.want_fetch()
        if self.options.trim:
            self.schedule(host.survey, None)

    def newest(self) -> SimHost | None:
        """The player with the highest epoch, if it lives."""
        host = self.hosts[-1]
        return host if host.alive else None

    def _make_target(self, name: str, at: int, total: int) -> None:
        start = Position(index=at, digest=total, log_id=LOG_ID, chain=self.log.chain_at(at) or b"")
        self.targets[name] = target = SimTarget(name, self.schedule, start, self._sink)
        self.started_at[name], self.started_digest[name] = at, total
        if self.options.poison:
            target.poisoned = Every(7, crc32(name.encode()) % 7)

    def _make_map(self, names: tuple[str, ...]) -> ShardMap:
        if self.options.map == "hash":
            return HashMap(names)
        if self.options.map == "range":
            return RangeMap(tuple(sorted(b"%d" % (900 * i // len(names)) for i in range(1, len(names)))), names)
        return ExplicitMap()

    # --- Faults ---------------------------------------------------------------------------------------------

    def _pick_target(self) -> SimTarget:
        return self.rng.choice(list(self.targets.values()))

    def _pick_host(self) -> SimHost:
        return self.rng.choice(self.hosts)

    def _crash_target(self) -> None:
        target = self._pick_target()
        if target.up:
            target.crash()
        else:
            target.restart()

    def _freeze_target(self) -> None:
        target = self._pick_target()
        if target.frozen:
            target.thaw()
        elif target.up:
            target.frozen = True

    def _freeze_player(self) -> None:
        host = self._pick_host()
        if host.frozen:
            host.thaw()
        else:
            host.frozen = True

    def _kill_player(self) -> None:
        if self._takeovers:
            self._pick_host().kill()

    def _take_over(self) -> None:
        if self._takeovers:
            self._takeovers -= 1
            self._start_player()

    def _stop_player(self) -> None:
        host = self._pick_host()
        if self._takeovers and host.alive and not host.frozen:
            host.tell(events.StopRequested())

    def _hang(self) -> None:
        for link in self._pick_target().links:
            link.hung = True

    def _replay(self) -> None:
        if not self.options.plain:
            self._pick_host().replay(self._pick_target())

    def _cut(self) -> None:
        self._pick_host().cut(self._pick_target(), silent=self.rng.random() < 0.3)

    def _lie(self) -> None:
        """A target claims nonsense, until it is asked to stop: an epoch that nobody has, or more than the log has."""
        target = self._pick_target()
        if target.lie is not None:
            target.lie = None
        elif self.rng.random() < 0.3:
            target.lie = "DIVERGED", self.log.last + 1_000_000
        else:
            epochs = (0, self.log.last, self.log.last + 1, 2**63 - 1, self.rng.randrange(self.log.last + 2))
            target.lie = "FENCED", self.rng.choice(epochs)
        for link in target.links:
            target.drop(link)  # Else nobody would ask it.

    def _pause(self) -> None:
        self.clock += 1000  # Everybody's time, or one host's pause: the core must not mistake it for a death.

    def _change_members(self) -> None:
        """Add a target that was filled up to its own record, or remove one, or move keys."""
        if not self.options.membership:
            return
        what = self.rng.random()
        if what < 0.5 and len(self.registered) < self.options.targets + 2:
            self._add_target()
        elif what < 0.7 and len(self.registered) > 1:
            name = self.rng.choice(list(self.registered))
            self.removed_at[name] = self._append_record(TargetRemoved(name))
            del self.registered[name]
        elif not isinstance(self._map, ExplicitMap):
            self._map = self._make_map(tuple(self.registered))
            self._append_record(MapChanged(self._map))

    def _add_target(self) -> None:
        """A new target, or one that was removed and that somebody has filled again: it remembers its last session."""
        gone = [name for name in self.targets if name not in self.registered]
        if gone and self.rng.random() < 0.5:
            name = self.rng.choice(gone)
            at = self._append_record(TargetAdded(name))
            self.targets[name].refill(at, self.log.chain)
            self.started_at[name], self.started_digest[name] = at, 0
            self.checkers.forget(name)
        else:
            self._spare += 1
            name = f"n{self._spare}"
            self._make_target(name, self._append_record(TargetAdded(name)), 0)
        self.registered[name] = None

    def _restore(self) -> None:
        """An older backup takes the log's place, under whoever plays: what came after it is lost, in silence."""
        if self.options.restore and not self.lost:
            self.restore(self.rng.choice([self.log.trimmed, *(i for i in self.log.indexes if i > self.log.trimmed)]))

    def restore(self, at: int) -> None:
        self.lost.append(self.log)
        self.log = self.log.up_to(at)
        self.checkers.restored(at)

    def _archive(self) -> None:
        if self.archived is not None:
            self.archived = self.rng.choice([i for i in [0, *self.log.indexes] if i >= self.archived])
            for host in self.hosts:
                if host.alive and not host.frozen:
                    host.tell(events.Archived(self.archived))

    def _retry(self) -> None:
        host = self._pick_host()
        if host.alive and not host.frozen:
            host.tell(events.RetryRequested(self._pick_target().name))

    _faults = (
        _crash_target,
        _crash_target,
        _freeze_target,
        _freeze_player,
        _kill_player,
        _take_over,
        _stop_player,
        _hang,
        _lie,
        _replay,
        _cut,
        _cut,
        _cut,
        _pause,
        _change_members,
        _archive,
        _restore,
        _retry,
    )

    # --- Healing --------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.faulty = False
        while self._to_append:
            self._append_data()
        for target in self.targets.values():
            target.lie = None
            if not target.up:
                target.restart()
            target.thaw()
        if self.hosts[-1].frozen:
            self.hosts[-1].thaw()
        if self.newest() is None:
            self._start_player()

    def _finish(self) -> bool:
        """What an operator does while the world heals; returns whether everything has arrived."""
        for rival in self.hosts:
            if rival.frozen and self.rng.random() < 0.1:
                rival.thaw()  # A zombie wakes up late: much has been delivered and trimmed by then.
        host = self.newest()
        if host is None:  # It was asked to stop, and has drained by now.
            self._start_player()
            return False
        for queue in host.core.queues.values():
            blocked = queue.reconnect.blocked
            if blocked is not None and blocked.kind == "POISON":
                if (queue.name, blocked.index) not in self.quarantine_ordered:
                    self.quarantine_ordered.add((queue.name, blocked.index))
                    self._append_record(Quarantined(queue.name, blocked.index))
            elif blocked is not None and self.lost and blocked.kind in ("FENCED", "DIVERGED"):
                self._remedy(host, self.targets[queue.name], blocked.kind)
            elif blocked is not None and blocked.kind not in ("BAD_BATCH", "FENCED", "DIVERGED"):  # A replay, a lie.
                raise Violation("progress", f"{queue.name} is blocked for good: {blocked}")
        return self.checkers.converged()

    def _remedy(self, host: SimHost, target: SimTarget, kind: str) -> None:
        """What an operator does once the log was restored: free a fence of the lost log, fill what has diverged."""
        if kind == "FENCED" and target.position.session.epoch > host.core.epoch:
            target.unfence()
        elif kind == "DIVERGED" and self.log.chain_at(target.position.index) != target.position.chain:
            at = self.rng.choice([self.log.trimmed, *(i for i in self.log.indexes if i > self.log.trimmed)])
            target.refill(at, self.log.chain_at(at) or b"")
            self.started_at[target.name], self.started_digest[target.name] = at, 0
            self.checkers.forget(target.name)
        else:
            return
        host.tell(events.RetryRequested(target.name))

    # --- What is left ---------------------------------------------------------------------------------------

    def describe(self) -> str:
        """The state of all players and targets, for a failing run."""
        targets = [f"{t.name}={t.position.index}" for t in self.targets.values()]
        queues = [repr(queue) for host in self.hosts if host.alive for queue in host.core.queues.values()]
        return f"log ends at {self.log.last}, trimmed {self.log.trimmed}; {' '.join(targets)}; {'; '.join(queues)}"

    def state_digest(self) -> str:
        """A fingerprint of the final state: two runs of a seed must agree."""
        parts: list[object] = [self.steps, self.clock, self.faults, self.log.indexes, self.log.trimmed]
        for target in self.targets.values():
            parts.append((target.name, target.position, [(d.index, d.payload, d.session) for d in target.applied]))
        for host in self.hosts:
            parts.append((repr(host), [repr(queue) for queue in host.core.queues.values()]))
        return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()

    def trace_lines(self) -> list[Mapping[str, object]]:
        """The trace of this run, with the config line that the trace check needs."""
        entries = [(index, sorted(self.log.destinations[index])) for index in self.log.indexes]
        limits = self.options.limits
        head = config(
            entries, list(self.targets), limits.queue_count_max, limits.flight_batches_max, limits.batch_count_max
        )
        return [head, *self.trace]
