"""What all rivals share: the pieces of a transaction, the targets' work, and the samples at the end."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Mapping
from zlib import crc32

from bench.actor import Actor, ActorFailed
from bench.contest import Sample, Workload
from logplayer.wire.codec import decode_transaction
from logplayer.wire.entries import encode_mutation, split_transaction

APPLY_SECONDS = 120.0  # How long the last transactions may take after the last one was asked for.


def pieces(workload: Workload, number: int) -> dict[int, bytes]:
    """What each target gets of a transaction, encoded as our own entries are."""
    return {
        target: b"".join(encode_mutation(key, value).encoded for key, value in pairs)
        for target, pairs in workload.parts(number).items()
    }


def cut(payload: bytes, targets: int) -> dict[int, bytes]:
    """The same, from the encoded transaction as a player finds it in its log."""
    found: dict[int, list[bytes]] = {}
    for mutation in split_transaction(payload):
        found.setdefault(crc32(mutation.key) % targets, []).append(mutation.encoded)
    return {target: b"".join(parts) for target, parts in found.items()}


class Store:
    """One target: a dict, and a stamp for every transaction that is in it. The same work as our memory target's."""

    def __init__(self, number: int, stamps: array[int]) -> None:
        self._number = number
        self._stamps = stamps
        self._data: dict[bytes, bytes | None] = {}

    def apply(self, transaction: int, payload: bytes) -> None:
        """Decode, store, and note the time."""
        self._data.update(decode_transaction(payload))
        self._stamps.extend((self._number, transaction, time.monotonic_ns()))


def paced(workload: Workload) -> Iterator[int]:
    """The transactions' numbers, each when it is due; what is late is made up for at once."""
    start = time.perf_counter()
    for number in range(1, workload.count + 1):
        wait = start + (number - 1) / workload.rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        yield number


def expected(workload: Workload) -> int:
    """How many (transaction, target) there are, warm-up included."""
    return sum(len(workload.parts(number)) for number in range(1, workload.count + 1))


def wait_applied(targets: Actor, count: int, seconds: float = APPLY_SECONDS) -> None:
    """Wait until the targets have applied so many; fail if they do not."""
    deadline = time.monotonic() + seconds
    while (have := targets.ask("count")) < count:
        if time.monotonic() > deadline:
            raise ActorFailed(f"only {have} of {count} were applied within {seconds:.0f} s")
        time.sleep(0.05)


def samples(
    workload: Workload,
    applied: array[int],
    asked: Mapping[int, int],
    committed: Mapping[int, int] | None = None,
    dispatched: Mapping[int, int] | None = None,
    *,
    once: bool = True,
) -> list[Sample]:
    """A sample for every counted transaction and target; one that is missing is a failure, and so is a repeated one.

    With ``once`` false a repetition is allowed, as the guarantee of the rival allows it: the first time counts.
    """
    committed = asked if committed is None else committed
    dispatched = committed if dispatched is None else dispatched
    at: dict[tuple[int, int], int] = {}
    numbers = iter(applied)
    for target, number, when in zip(numbers, numbers, numbers, strict=True):
        if at.setdefault((number, target), when) != when and once:
            raise ActorFailed(f"transaction {number} was applied twice at target {target}")
    found = []
    for number in workload.counted():
        for target in workload.parts(number):
            when = at.get((number, target), 0)
            if not when:
                raise ActorFailed(f"transaction {number} was not applied at target {target}")
            found.append(Sample(number, target, committed[number], dispatched[number], when, asked[number]))
    return found


def by_number(stamps: array[int]) -> dict[int, int]:
    """Number and time, as a process noted them in turn."""
    numbers = iter(stamps)
    return dict(zip(numbers, numbers, strict=True))
