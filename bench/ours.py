"""Our own contestants: the player over gRPC and over framed TCP, and the bare streams that are its limit.

Every part is a process of its own: the log's servers, the producer, the player (or the bare streams in its place), and
one process with all targets.
"""

from __future__ import annotations

import os
import tempfile
import time
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from bench.actor import Actor, ActorFailed
from bench.contest import Sample, Workload
from bench.logs import LogHost
from bench.play import BareStreams, Player
from bench.producer import Producer, payload_of
from bench.targets import Targets

SCHEMES = ("grpc", "tcp")
APPLY_SECONDS = 60.0  # How long the last entries may take after the last append was acknowledged.


class FlatOut(NamedTuple):
    """How fast it went, from the first apply to the last: so that how long a start takes is not in it."""

    seconds: float
    bytes: int
    transactions: int
    player_cpu_s: float

    @property
    def mb_s(self) -> float:
        return self.bytes / 1e6 / self.seconds


def triples(stamps: array[int]) -> Iterator[tuple[int, int, int]]:
    """Target, key and time, as the targets' process noted them."""
    numbers = iter(stamps)
    return zip(numbers, numbers, numbers, strict=True)


def pairs(stamps: array[int]) -> dict[int, int]:
    """Key to time, as the player's process noted them."""
    numbers = iter(stamps)
    return dict(zip(numbers, numbers, strict=True))


class Ours:
    """The player of this product, from append to apply."""

    guarantee = "exactly once"

    def __init__(self, scheme: str, host: LogHost) -> None:
        self.name = f"ours_{scheme}"
        self.scheme = scheme
        self.host = host
        self.producer: Actor
        self.targets: Actor
        self.player: Actor
        self._open = False

    def open(self) -> None:
        self.host.open()
        self._open = True
        self.producer, self.targets, self.player = Actor(Producer), Actor(Targets), Actor(self._play_class())

    def _play_class(self) -> type[Player] | type[BareStreams]:
        return Player

    def run(self, workload: Workload) -> list[Sample]:
        log = self.host.fresh()
        try:
            self._start(log, workload)
            self.producer.ask("open", log)
            seconds = workload.count / workload.rate + 180
            sent = self.producer.ask("steady", workload, seconds=seconds)
            wait_applied(self.targets, sum(len(workload.parts(n)) for n in range(1, workload.count + 1)))
            dispatched = pairs(self.player.ask("dispatched"))
            return self._samples(workload, sent, dispatched, self.targets.ask("take"))
        finally:
            self._finish(log)

    def _start(self, log: str, workload: Workload) -> None:
        address = self.targets.ask("serve", list(range(workload.targets)), self.scheme)
        self.player.ask("play", log, dict.fromkeys(workload.names(), address))

    def _samples(
        self, workload: Workload, sent: array[int], dispatched: dict[int, int], applied: array[int]
    ) -> list[Sample]:
        by_index, asked, committed = split_sent(sent)
        return _joined(
            workload,
            ((target, by_index.get(index, 0), at) for target, index, at in triples(applied)),
            {by_index[index]: at for index, at in dispatched.items() if index in by_index},
            asked,
            committed,
        )

    def flat_out(self, workload: Workload) -> FlatOut:
        """Everything that a full log holds, as fast as it goes."""
        log = self.host.fresh()
        try:
            last, total = self.fill(log, workload)
            address = self.targets.ask("serve", list(range(workload.targets)), self.scheme)
            used = self.player.ask("usage")
            self.player.ask("play", log, dict.fromkeys(workload.names(), address), "", (), False)
            self.player.ask("reach", last, seconds=250)
            return self._flat_out_result(workload, total, used)
        finally:
            self._finish(log)

    def _flat_out_result(self, workload: Workload, total: int, before: dict[str, float]) -> FlatOut:
        spent = self.player.ask("usage")["cpu_s"] - before["cpu_s"]
        wait_applied(self.targets, sum(len(workload.parts(n)) for n in range(1, workload.count + 1)))
        first, last = self.targets.ask("span")
        return FlatOut((last - first) / 1e9, total, workload.count, spent)

    def fill(self, log: str, workload: Workload) -> tuple[int, int]:
        """Append everything; the last index and the payload bytes."""
        self.producer.ask("open", log)
        last, total = self.producer.ask("fill", workload, seconds=250)
        return int(last), int(total)

    def _finish(self, log: str) -> None:
        for actor in (self.player, self.producer, self.targets):
            actor.ask("close")
        self.host.drop(log)

    def close(self) -> None:
        if self._open:
            self._open = False
            for actor in (self.player, self.producer, self.targets):
                actor.stop()
            self.host.close()


class Bare(Ours):
    """The same bytes from the same log's tail, over streams with nothing around them."""

    guarantee = "none: what a crash or a cut interrupts is lost"

    def __init__(self, scheme: str, host: LogHost) -> None:
        super().__init__(scheme, host)
        self.name = f"bare_{scheme}"

    def _play_class(self) -> type[Player] | type[BareStreams]:
        return BareStreams

    def _start(self, log: str, workload: Workload) -> None:
        port = self.targets.ask("serve_bare", self.scheme)
        self.player.ask("open", log, self.scheme, port, workload)
        self.player.ask("play")

    def _samples(
        self, workload: Workload, sent: array[int], dispatched: dict[int, int], applied: array[int]
    ) -> list[Sample]:
        _, asked, committed = split_sent(sent)
        return _joined(workload, triples(applied), dispatched, asked, committed)

    def flat_out(self, workload: Workload) -> FlatOut:
        return self._flat_out(workload, "play")

    def flat_out_from_memory(self, workload: Workload) -> FlatOut:
        """Without any log: nothing but the streams."""
        return self._flat_out(workload, "from_memory")

    def _flat_out(self, workload: Workload, how: str) -> FlatOut:
        log = self.host.fresh()
        try:
            _, total = self.fill(log, workload)
            port = self.targets.ask("serve_bare", self.scheme)
            self.player.ask("open", log, self.scheme, port, workload, seconds=120)
            used = self.player.ask("usage")
            self.player.ask(how)
            self.player.ask("reach", seconds=250)
            return self._flat_out_result(workload, total, used)
        finally:
            self._finish(log)


class Fdatasync:
    """Write and sync a transaction's bytes, one at a time: what durability costs with nothing around it."""

    name = "fdatasync"
    guarantee = "one disk, no delivery"

    def open(self) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="lp-bench-")  # noqa: SIM115 - until close.

    def run(self, workload: Workload) -> list[Sample]:
        samples = []
        for number in range(1, min(workload.count, workload.warm_up + 500) + 1):
            payload = payload_of(workload, number)
            asked = time.monotonic_ns()
            os.write(self._file.fileno(), payload)
            os.fdatasync(self._file.fileno())
            if number > workload.warm_up:
                samples.append(Sample(number, 0, asked, asked, time.monotonic_ns(), asked))
        return samples

    def close(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


def wait_applied(targets: Actor, count: int, seconds: float = APPLY_SECONDS) -> None:
    """Wait until the targets have applied so many; fail if they do not."""
    deadline = time.monotonic() + seconds
    while (have := targets.ask("count")) < count:
        if time.monotonic() > deadline:
            raise ActorFailed(f"only {have} of {count} were applied within {seconds:.0f} s after the last append")
        time.sleep(0.05)


def split_sent(sent: array[int]) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Number by index; asked and committed by number."""
    by_index, asked, committed = {}, {}, {}
    numbers = iter(sent)
    for number, index, asked_ns, committed_ns in zip(numbers, numbers, numbers, numbers, strict=True):
        by_index[index], asked[number], committed[number] = number, asked_ns, committed_ns
    return by_index, asked, committed


def _joined(
    workload: Workload,
    applied: Iterator[tuple[int, int, int]],
    dispatched: dict[int, int],
    asked: dict[int, int],
    committed: dict[int, int],
) -> list[Sample]:
    """A sample for every counted transaction and target. One that is missing or came twice is a failure."""
    at: dict[tuple[int, int], int] = {}
    for target, number, when in applied:
        if (number, target) in at:
            raise ActorFailed(f"transaction {number} was applied twice at target {target}")
        at[number, target] = when
    samples = []
    for number in workload.counted():
        for target in workload.parts(number):
            if (number, target) not in at:
                raise ActorFailed(f"transaction {number} was not applied at target {target}")
            samples.append(
                Sample(number, target, committed[number], dispatched[number], at[number, target], asked[number])
            )
    return samples
