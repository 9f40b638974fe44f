"""What every contestant of a benchmark agrees on: the workload, the raw samples, and how it is run.

All time-stamps are nanoseconds of ``time.monotonic_ns``, which all processes of one machine share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from zlib import crc32

VALUE_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Workload:
    """Transactions at a steady rate, each of ``keys`` key-values of 1 KB that are spread over the targets by hash."""

    targets: int = 10
    keys: int = 10
    rate: float = 100.0
    count: int = 1000
    warm_up: int = 100  # Of ``count``: the first ones are run and not counted.

    def names(self) -> list[str]:
        """The targets' names."""
        return [f"t{number}" for number in range(self.targets)]

    def transaction(self, number: int) -> list[tuple[bytes, bytes]]:
        """The key-values of transaction ``number``, which counts from 1."""
        value = b"%08d" % number * (VALUE_BYTES // 8)
        return [(b"%08d/%02d" % (number, key), value) for key in range(self.keys)]

    def owner(self, key: bytes) -> int:
        """The number of the target that owns the key, as ``HashMap`` has it."""
        return crc32(key) % self.targets

    def parts(self, number: int) -> dict[int, list[tuple[bytes, bytes]]]:
        """What each target gets of a transaction."""
        found: dict[int, list[tuple[bytes, bytes]]] = {}
        for key, value in self.transaction(number):
            found.setdefault(self.owner(key), []).append((key, value))
        return found

    def counted(self) -> Iterator[int]:
        """The transactions whose samples count."""
        return iter(range(self.warm_up + 1, self.count + 1))


class Sample(NamedTuple):
    """One transaction at one target.

    The *player delay* is apply - dispatch. The *apply delay*, which contestants are compared by, is apply - asked: it
    begins before the request leaves the application, so that nobody's way to durability is left out.
    """

    transaction: int
    target: int
    commit_ns: int  # Durable in the log; without a log of its own: when the application asked for the commit.
    dispatch_ns: int  # The player has it from the log; without a player: the same as commit_ns.
    apply_ns: int  # The target has applied it and may show it to readers.
    asked_ns: int = 0  # Just before the application asked for the append or the commit; 0: the same as commit_ns.


class Contestant(Protocol):
    """One system under test. ``open`` starts it, ``run`` may be called several times, ``close`` ends it all."""

    name: str  # A short identifier: ours_grpc, kafka_eos, ...
    guarantee: str  # "exactly once", "at least once": what the figures stand for.

    def open(self) -> None:
        """Start servers and processes. Raises ``UserError`` with what to do if something is missing."""

    def run(self, workload: Workload) -> list[Sample]:
        """Play the workload and return a sample for every counted transaction and target; raise if one is missing."""

    def close(self) -> None:
        """Stop everything that ``open`` started; safe to call twice."""
