"""Kills on a standalone cluster, one after the other, while the log grows: run as a process of its own by the tests.

    python -m tests.spark.standalone_child FOLDER KIND [KIND...]

Runs in a network namespace (tests/namespaces.py), with certificates and a token in FOLDER. Kinds: ``worker`` (a Python
worker), ``executor`` (its JVM), ``daemon`` (the Worker, which is started again a moment later), ``decommission`` (an
executor is asked to leave), ``rest`` (nothing, for ten seconds, and nothing may move), ``driver`` (the whole
application, beside a standby). Settings of Spark may be among the kinds, as NAME=VALUE. Prints a line for each kill,
and at the end one line of JSON: the seconds to recovery by kind. It ends with an error if anything was lost, applied
twice or out of order.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from logplayer.testing.orphans import end_with_this_process
from tests.spark.standalone import EXECUTOR, MASTER, Cluster, above, kill
from tests.spark.standalone_world import Play, World


class Faults:
    """The kills, of whatever plays now."""

    def __init__(self, cluster: Cluster, world: World, standby: bool, seed: int = 1) -> None:
        self.cluster, self.world = cluster, world
        self.rng = random.Random(seed)
        self.seconds: dict[str, list[float]] = {}
        self.active: Play = world.play()
        self.active.says("playing")
        self.standby: Play | None = self._stand_by() if standby else None

    def _stand_by(self) -> Play:
        play = self.world.play("--standby")
        play.says("standby")
        return play

    def run(self, kind: str) -> float:
        playing = list(self.world.all_play(self.active).values())
        self.rng.shuffle(playing)
        seconds: float = getattr(self, f"_{kind}")(*playing)
        self.seconds.setdefault(kind, []).append(seconds)
        return seconds

    def _worker(self, pid: int, _: int) -> float:
        return self.world.recover(lambda: kill(pid), [pid])

    def _executor(self, pid: int, _: int) -> float:
        return self.world.recover(lambda: kill(above(pid, EXECUTOR)), [pid])

    def _daemon(self, pid: int, _: int) -> float:
        killed: list[str] = []
        seconds = self.world.recover(lambda: killed.append(self.cluster.kill_worker(pid)), [pid])
        self.cluster.start_worker(killed[0])  # As its supervisor would.
        return seconds

    def _decommission(self, pid: int, _: int) -> float:
        """The executor is asked to leave, as by a cluster that shrinks; needs spark.decommission.enabled."""
        return self.world.recover(lambda: os.kill(above(pid, EXECUTOR), signal.SIGPWR), [pid])

    def _rest(self, *pids: int) -> float:
        """No fault: whoever plays now still plays in ten seconds, on the same executors."""
        before = self.world.all_play(self.active)
        time.sleep(10)
        assert self.world.all_play(self.active) == before, "a group was moved for no reason"
        return 0.0

    def _driver(self, *pids: int) -> float:
        assert self.standby is not None
        seconds = self.world.recover(self.active.kill, pids)
        self.active, self.standby = self.standby, None
        self.active.says("playing")
        self.standby = self._stand_by()
        return seconds


def main(folder: Path, words: Sequence[str], seed: int = 1) -> None:
    began = time.monotonic()
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    kinds = [word for word in words if "=" not in word]
    with Cluster(folder) as cluster:
        world = World(folder, MASTER, {"spark.decommission.enabled": "true", **settings})
        try:
            faults = Faults(cluster, world, "driver" in kinds, seed)
            print(f"playing after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
            for nth, kind in enumerate(kinds):
                seconds = faults.run(kind)
                took = time.monotonic() - began
                print(f"{nth + 1:4} {kind:8} {seconds:6.2f} s, {took:.0f} s in all", file=sys.stderr, flush=True)
        finally:
            world.end()
        entries = world.count
    print(json.dumps({"seconds": faults.seconds, "entries": entries}), flush=True)


if __name__ == "__main__":
    end_with_this_process()  # Daemons and players have sessions of their own.
    main(Path(sys.argv[1]), sys.argv[2:])
