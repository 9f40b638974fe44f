"""Checkers watch from outside: they know the log's oracle and what the targets hold, and nothing of the core's rules.

order, once, none lost   each target's data is, at every apply, the prefix of what the oracle says it must get
digest                   the running digest equals one recomputed from the log
memory bound             queued and in-flight entries and bytes stay within the limits
trim                     what is trimmed is durable at every registered target
ack soundness            no player believes more than the target durably has
fenced                   sessions are accepted in rising order, and only the newest applies anything
fresh session            a player never opens the same session of a target twice
payload                  what arrives is what the log holds for that target
one writer               a stream gets one write at a time
drain                    a player that says it has stopped has nothing under way
false re-seed            nobody is told to re-seed a target that the log can still serve
stable                   once everything has arrived and nothing happens, no session is given up
progress                 after the faults stop, every target reaches the end of the log and is LIVE, and rivals are gone
quarantine               a poisoned entry is kept aside exactly once, and nothing else is
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logplayer.core import digest
from logplayer.core.effect import Report, SendBatch
from logplayer.core.entry import Session
from logplayer.core.fence import Batch
from logplayer.core.queue import State
from logplayer.testing.sim.world import Link, SimLog, SimTarget

if TYPE_CHECKING:
    from logplayer.testing.sim.host import Host
    from logplayer.testing.sim.simulation import Simulation


class Violation(Exception):
    """A checker found that a promise is broken."""

    def __init__(self, checker: str, message: str) -> None:
        super().__init__(f"{checker}: {message}")
        self.checker = checker


class Checkers:
    """All checkers of one simulation."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._seen: dict[str, int] = {}  # target -> deliveries already checked
        self._opened: dict[tuple[int, str], Session] = {}  # (epoch, target) -> the newest session

    def forget(self, name: str) -> None:
        """The target was filled anew: its deliveries are counted from here."""
        self._seen.pop(name, None)

    # --- After each step ------------------------------------------------------------------------------------

    def applied(self, target: SimTarget) -> None:
        """Look at what the target has accepted and applied since the last look."""
        log = self._sim.log
        if len(target.accepted) > 1 and target.accepted[-1] <= target.accepted[-2]:
            raise Violation("fenced", f"{target.name} accepted {target.accepted[-1]} after {target.accepted[-2]}")
        seen = self._seen.get(target.name, 0)
        for at in range(seen, len(target.applied)):
            self._check_delivery(log, target, at)
        self._seen[target.name] = len(target.applied)

    def _check_delivery(self, log: SimLog, target: SimTarget, at: int) -> None:
        name, got = target.name, target.applied[at]
        before = target.applied[at - 1].index if at else self._sim.started_at[name]
        if any(other.index == got.index for other in target.applied[max(0, at - 50) : at]):
            raise Violation("once", f"{name} applied {got.index} twice")
        if got.index <= before:
            raise Violation("order", f"{name} applied {got.index} after {before}")
        due = next((i for i in log.indexes if i > before and name in log.destinations[i]), None)
        if due != got.index:
            raise Violation("none lost", f"{name} applied {got.index}, but {due} was due after {before}")
        if got.payload != log.destinations[got.index][name]:
            raise Violation("payload", f"{name} got another payload for {got.index}")
        if got.quarantine and (name, got.index) not in self._sim.quarantine_ordered:
            raise Violation("quarantine", f"{name} put {got.index} aside, which nobody ordered")
        if got.session != got.newest:
            raise Violation("fenced", f"{name} applied {got.index} from {got.session} after accepting {got.newest}")

    def stepped(self, host: Host) -> None:
        """After a step of a core: bounds and beliefs."""
        limits, recent = host.core.limits, host.core.recent
        if len(recent.entries) > limits.queue_count_max or recent.bytes > limits.queue_bytes_max:
            raise Violation("memory bound", f"{recent!r}")
        for queue in host.core.queues.values():
            target = self._sim.targets.get(queue.name)
            if target is None:
                continue
            if len(queue.messages) > limits.queue_count_max or (
                len(queue.messages) > 1 and queue.bytes > limits.queue_bytes_max
            ):
                raise Violation("memory bound", f"queue {queue!r}")
            if queue.bytes != sum([len(m.payload) for m in queue.messages]):
                raise Violation("memory bound", f"the queue's bytes do not add up: {queue!r}")
            flight = queue.window.flight
            if len(flight) > limits.flight_batches_max or (
                len(flight) > 1 and queue.window.bytes > limits.flight_bytes_max
            ):
                raise Violation("memory bound", f"window {queue!r}")
            if flight and flight[0][0] <= queue.acked:
                raise Violation("memory bound", f"acked batches are still counted: {queue!r}")
            if queue.known and queue.acked > target.position.index:
                raise Violation("ack soundness", f"believes {queue.acked}, {queue.name} has {target.position.index}")

    def opened(self, host: Host, name: str, session: Session) -> None:
        """A player opens a session: late words of an older one must not be taken for words of this one."""
        before = self._opened.get((host.core.epoch, name))
        if before is not None and session <= before:
            raise Violation("fresh session", f"{name} is opened as {session} after {before}")
        self._opened[host.core.epoch, name] = session

    def sent(self, batch: SendBatch, link: Link | None) -> None:
        """A batch goes out."""
        limits, count = self._sim.options.limits, len(batch.messages)
        bytes_ = sum([len(message.payload) for message in batch.messages])
        if count > limits.batch_count_max or (count > 1 and bytes_ > limits.batch_bytes_max):
            raise Violation("memory bound", f"a batch of {count} messages and {bytes_} bytes")
        if link is not None and link.writing:
            raise Violation("one writer", f"a second write to {batch.target} before the first was taken")

    def stopped(self, host: Host) -> None:
        """A player says that it has drained."""
        for link in host.links.values():
            if (
                link.up
                and not link.hole
                and not link.stray
                and any(isinstance(message, Batch) for message in link.to_target)
            ):
                raise Violation("drain", f"stopped while batches to {link.target.name} were under way")

    def reported(self, report: Report) -> None:
        """A player tells the operator something. Nothing here ever needs to be re-seeded."""
        if report.what.startswith("RESEED"):
            raise Violation("false re-seed", f"{report.target}: {report.what}")

    def trimmed(self, up_to: int) -> None:
        """The log is about to be trimmed."""
        for name in self._sim.registered:
            index = self._sim.targets[name].position.index
            if index < up_to:
                raise Violation("trim", f"trimmed up to {up_to}, but {name} has only {index}")
        if self._sim.archived is not None and up_to > self._sim.archived:
            raise Violation("trim", f"trimmed up to {up_to}, but only {self._sim.archived} is archived")

    # --- At the end -----------------------------------------------------------------------------------------

    def converged(self) -> bool:
        """Every registered target stands at the end of the log, and the newest player knows it and is LIVE."""
        sim = self._sim
        host = sim.newest()
        last = sim.log.last
        if host is None or host.core.current < last or any(other.alive for other in sim.hosts if other is not host):
            return False
        for name in sim.registered:
            queue = host.core.queues.get(name)
            if queue is None or queue.state is not State.LIVE or queue.acked < last:
                return False
            if sim.targets[name].position.index < last:
                return False
        return True

    def sessions(self) -> list[object]:
        """The newest player's sessions, to see whether they stay."""
        host = self._sim.newest()
        return [queue.session for queue in host.core.queues.values()] if host else []

    def final(self) -> None:
        """The whole content of every target against the log."""
        sim = self._sim
        for name, target in sim.targets.items():
            self.applied(target)
            got = [delivery.index for delivery in target.applied]
            due = [i for i in sim.log.expected(name, target.position.index) if i > sim.started_at[name]]
            if got != due:
                raise Violation("none lost", f"{name} holds {got}, must hold {due}")
            total = sim.started_digest[name]
            for index in due:
                total += digest.entry_digest(index, sim.log.destinations[index][name])
            if total % 2**128 != target.position.digest:
                raise Violation("digest", f"{name}'s digest differs from the log's")
