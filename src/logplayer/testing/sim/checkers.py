"""Checkers watch from outside: they know the log's oracle and what the targets hold, and nothing of the core's rules.

order, once, none lost   each target's data is, at every apply, the prefix of what the oracle says it must get
one history              where the log was replaced, of what one of the two logs says: never of the one and the other
digest                   the running digest equals one recomputed from the log
memory bound             queued and in-flight entries and bytes stay within the limits
trim                     what is trimmed is durable at every registered target, and none of it went nowhere
ack soundness            no player believes more than the target durably has
fenced                   sessions are accepted in rising order, and only the newest applies anything
fresh session            a player never opens the same session of a target twice
payload                  what arrives is what the log holds for that target
one writer               a stream gets one write at a time
drain                    a player that says it has stopped has nothing under way
false re-seed            no player asks to re-seed a target that the log can still serve
false block              no player reports a claim that a target never made: FENCED by nobody, ahead of the log
step down                a player ends only for a takeover that the log shows, or has trimmed before the player read it
stable                   once everything has arrived and nothing happens, no session is given up
progress                 after the faults stop, every target reaches the end of the log is LIVE; old players are gone
quarantine               a poisoned entry is kept aside exactly once, and nothing else is
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from logplayer.core import digest
from logplayer.core.effects import Report, SendBatch, StepDown
from logplayer.core.entry import Session, Takeover
from logplayer.core.fence import Batch
from logplayer.core.target_queue import State
from logplayer.testing.sim.violation import Violation
from logplayer.testing.sim.world import SimLink, SimLog, SimTarget

if TYPE_CHECKING:
    from logplayer.testing.sim.host import SimHost
    from logplayer.testing.sim.simulation import Simulation


class Checkers:
    """All checkers of one simulation."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._seen: dict[str, int] = {}  # target -> deliveries already checked
        self._opened: dict[tuple[int, str], Session] = {}  # (player, target) -> the newest session
        self._filled_from: dict[str, list[SimLog]] = {}  # target -> the logs that what it has may be from

    def forget(self, name: str) -> None:
        """The target was filled again: its deliveries are counted from here."""
        self._seen.pop(name, None)
        self._filled_from[name] = [self._sim.log]

    def restored(self, at: int) -> None:
        """The log was replaced by its state at ``at``: a target that has more is of the log that is lost."""
        for name, target in self._sim.targets.items():
            if target.position.index > at:
                self._filled_from[name] = list(self._sim.lost)

    # --- After each step ------------------------------------------------------------------------------------

    def applied(self, target: SimTarget) -> None:
        """Look at what the target has accepted and applied since the last look."""
        if len(target.accepted) > 1 and target.accepted[-1] <= target.accepted[-2]:
            raise Violation("fenced", f"{target.name} accepted {target.accepted[-1]} after {target.accepted[-2]}")
        seen = self._seen.get(target.name, 0)
        for at in range(seen, len(target.applied)):
            self._check_history(target, at)
        self._seen[target.name] = len(target.applied)

    def _logs_of(self, name: str) -> list[SimLog]:
        """The logs that what the target has may be from, as far as it was looked at."""
        return self._filled_from.get(name) or [*self._sim.lost, self._sim.log]

    def _check_history(self, target: SimTarget, at: int) -> None:
        """The delivery is what one of the logs says, of which everything before it is."""
        right, wrong = [], None
        for log in self._logs_of(target.name):
            try:
                self._check_delivery(log, target, at)
                right.append(log)
            except Violation as violation:
                wrong = violation
        if not right:
            assert wrong is not None
            raise Violation("one history", str(wrong)) if self._sim.lost else wrong
        if self._sim.lost:
            self._filled_from[target.name] = right

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

    def stepped(self, host: SimHost) -> None:
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

    def opened(self, host: SimHost, name: str, session: Session) -> None:
        """A player opens a session: late words of an older one must not be taken for words of this one."""
        before = self._opened.get((id(host), name))
        if before is not None and session <= before:
            raise Violation("fresh session", f"{name} is opened as {session} after {before}")
        self._opened[id(host), name] = session

    def sent(self, batch: SendBatch, link: SimLink | None) -> None:
        """A batch goes out."""
        limits, count = self._sim.options.limits, len(batch.messages)
        bytes_ = sum([len(message.payload) for message in batch.messages])
        if count > limits.batch_count_max or (count > 1 and bytes_ > limits.batch_bytes_max):
            raise Violation("memory bound", f"a batch of {count} messages and {bytes_} bytes")
        if link is not None and link.writing:
            raise Violation("one writer", f"a second write to {batch.target} before the first was taken")

    def stopped(self, host: SimHost) -> None:
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
        kind = report.what.partition(":")[0]
        if kind not in ("FENCED", "DIVERGED"):
            return
        target = self._sim.targets[report.target]
        index, value = target.position.index, target.position.chain
        excused = any(kind == lie for lie, _ in target.lies) or (
            bool(self._sim.lost) and (kind == "FENCED" or self._sim.log.chain_at(index) != value)
        )
        if not excused:
            raise Violation("false block", f"{report.target}: {report.what}")

    def stepped_down(self, host: SimHost, request: StepDown) -> None:
        """A player ends: somebody newer must be there."""
        log, epoch = self._sim.log, host.core.epoch
        entries = [entry for known in (*self._sim.lost, log) for entry in known.entries]
        newer = any(isinstance(entry.record, Takeover) and entry.index > epoch for entry in entries)
        if not newer and request.epoch > log.trimmed:
            raise Violation("step down", f"P{epoch} ended for epoch {request.epoch}, which nobody has")

    def trimmed(self, up_to: int) -> None:
        """The log is about to be trimmed."""
        for name in self._sim.registered:
            index = self._sim.targets[name].position.index
            if index < up_to:
                raise Violation("trim", f"trimmed up to {up_to}, but {name} has only {index}")
            value = self._sim.log.chain_at(up_to)
            if all(log.chain_at(up_to) != value for log in self._logs_of(name)):
                raise Violation("trim", f"trimmed up to {up_to}, of which {name} has another history")
        if self._sim.archived is not None and up_to > self._sim.archived:
            raise Violation("trim", f"trimmed up to {up_to}, but only {self._sim.archived} is archived")
        self._nobodys(up_to)

    def _nobodys(self, up_to: int) -> None:
        """An entry for a name that is not a member stays; one that was for a member then, which has left, may go."""
        sim, log = self._sim, self._sim.log
        for index in log.indexes[bisect_right(log.indexes, log.trimmed) : bisect_right(log.indexes, up_to)]:
            for name in log.destinations[index]:
                if name not in sim.registered and sim.removed_at.get(name, 0) < index:
                    raise Violation("trim", f"trimmed up to {up_to}, but entry {index} is for unknown target {name}")

    # --- At the end -----------------------------------------------------------------------------------------

    def converged(self) -> bool:
        """Every registered target has the end of the log, and the newest player knows it and is LIVE."""
        sim = self._sim
        host = sim.newest()
        last = sim.log.last
        if host is None or host.core.current < last or any(other.alive for other in sim.hosts if other is not host):
            return False
        for name in sim.registered:
            queue = host.core.queues.get(name)
            if queue is None or queue.state is not State.LIVE or queue.acked < last:
                return False
            if sim.targets[name].position.index < last or sim.targets[name].position.chain != sim.log.chain:
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
