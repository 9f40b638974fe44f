"""A player under a steady load that goes on while things are done to it: its targets, its log, the player itself."""

from __future__ import annotations

import time
from array import array
from types import TracebackType
from typing import Any

from bench.actor import Actor
from bench.contest import Sample, Workload
from bench.logs import make_host
from bench.ours import pairs, split_sent, triples
from bench.play import Player
from bench.producer import Producer
from bench.targets import Targets


class Live:
    """``groups`` says which targets share a process. With a folder the targets are SQLite files and survive a kill."""

    def __init__(self, scheme: str, log: str, groups: list[list[int]], workload: Workload, folder: str = "") -> None:
        self.scheme = scheme
        self.groups = groups
        self.workload = workload
        self.folder = folder
        self.host = make_host(log)
        self.log = ""
        self.producer: Actor
        self.player: Actor
        self.spares: list[Actor] = []  # Players that wait.
        self.targets: list[Actor] = []
        self.addresses: list[str] = []
        self.numbers: dict[int, tuple[int, int]] = {}  # Index to number and the moment of asking.
        self.committed: dict[int, int] = {}
        self.dispatched: dict[int, int] = {}

    def __enter__(self) -> Live:
        try:
            self.host.open()
            self.log = self.host.fresh()
            self.producer, self.player = Actor(Producer), Actor(Player)
            for numbers in self.groups:
                self.targets.append(Actor(Targets))
                self.addresses.append(self.targets[-1].ask("serve", numbers, self.scheme, self.folder))
            self.producer.ask("open", self.log)
            self.play()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in ("player", "producer"):
            if hasattr(self, name):
                getattr(self, name).stop()
        for actor in (*self.targets, *self.spares):
            actor.stop()
        self.host.close()

    def where(self) -> dict[str, str]:
        """The targets' addresses, in the order of the map."""
        found = {}
        for numbers, address in zip(self.groups, self.addresses, strict=True):
            found.update(dict.fromkeys(numbers, address))
        return {f"t{number}": found[number] for number in sorted(found)}

    def play(self) -> float:
        """Start the player; the seconds until every target is LIVE."""
        return float(self.player.ask("play", self.log, self.where())["seconds"])

    def begin(self) -> None:
        """Start the load."""
        self.producer.ask("begin", self.workload)

    def restart_targets(self, group: int) -> None:
        """A new process for a group whose process was killed, at the same address and with the same files."""
        self.targets[group] = Actor(Targets)
        port = int(self.addresses[group].rpartition(":")[2])
        self.targets[group].ask("serve", self.groups[group], self.scheme, self.folder, port)

    def forget(self) -> None:
        """What was noted so far does not count."""
        self._learn()
        for actor in self.targets:
            actor.ask("take")

    def _learn(self) -> None:
        by_index, asked, committed = split_sent(self.producer.ask("take"))
        self.numbers |= {index: (number, asked[number]) for index, number in by_index.items()}
        self.committed |= committed
        self.dispatched |= pairs(self.player.ask("dispatched"))

    def applied(self, group: int) -> list[tuple[int, int, int]]:
        """Target, index and time of what a group's process has applied since the last time."""
        stamps: array[int] = self.targets[group].ask("take")
        return list(triples(stamps))

    def samples(self, group: int) -> list[Sample]:
        """What a group has applied since the last time, as far as all its moments are known."""
        applied = self.applied(group)
        self._learn()
        known = [entry for entry in applied if entry[1] in self.numbers and entry[1] in self.dispatched]
        first = min((self.numbers[index][0] for _, index, _ in known), default=1)
        samples = []
        for target, index, at in known:
            number, asked = self.numbers[index]
            samples.append(
                Sample(number - first + 1, target, self.committed[number], self.dispatched[index], at, asked)
            )
        return samples

    def next_delivery(self, killed_ns: int, gone_ns: int, seconds: float = 60.0) -> float:
        """Seconds from a kill until every target has applied an entry that was asked for when the process was gone."""
        waiting = {number for numbers in self.groups for number in numbers}
        first: dict[int, int] = {}
        seen: list[tuple[int, int, int]] = []
        deadline = time.monotonic() + seconds
        while waiting - first.keys() and time.monotonic() < deadline:
            time.sleep(0.1)
            for group in range(len(self.groups)):
                seen += self.applied(group)
            self._learn()
            for target, index, at in seen:
                if index in self.numbers and self.numbers[index][1] > gone_ns:
                    first[target] = min(at, first.get(target, at))
        if waiting - first.keys():
            raise TimeoutError(f"targets {sorted(waiting - first.keys())} got nothing within {seconds:.0f} s")
        return (max(first.values()) - killed_ns) / 1e9

    def usage(self) -> dict[str, dict[str, Any]]:
        """What each process has used so far; the targets' as one."""
        used = {"producer": self.producer.ask("usage"), "player": self.player.ask("usage")}
        used["targets"] = {
            key: sum(part[key] for part in [actor.ask("usage") for actor in self.targets])
            for key in ("cpu_s", "memory_mb")
        }
        return used
