"""Kills on a standalone cluster, one after the other, while the log grows: run as a process of its own by the tests.

    python -m tests.spark.standalone_child FOLDER [--seconds N] KIND [KIND...]

Runs in a network namespace (tests/namespaces.py), with certificates and a token in FOLDER. Kinds: ``worker`` (a Python
worker), ``executor`` (its JVM), ``daemon`` (the Worker, which is started again a moment later), ``decommission`` (an
executor is asked to leave), ``retire`` (a Worker is), ``rest`` (nothing, for ten seconds, and nothing may move),
``driver`` (the whole application, beside a standby). Settings of Spark may be among the kinds, as NAME=VALUE. Prints a
line for each kill on stderr, and at the end one line of JSON: the seconds to recovery by kind, and the verdict. It ends
with an error if anything was lost, applied twice or out of order. SIGINT and SIGTERM end it and what it has started.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from logplayer.testing.orphans import end_with_this_process
from tests.spark.spark_support import until
from tests.spark.standalone import EXECUTOR, MASTER, Cluster, above, kill
from tests.spark.standalone_world import WAIT, Play, World, lives

Steps = dict[str, float]


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

    def run(self, kind: str) -> Steps:
        """Once everything is well, do it, and wait until every target is fed again."""
        self.world.all_play(self.active)
        if self.standby is not None:
            self.world.all_play(self.standby, state="")
        until(self.cluster.settled, WAIT, 0.3)
        playing = list(self.world.all_play(self.active).values())
        self.rng.shuffle(playing)
        steps: Steps = getattr(self, f"_{kind}")(*playing)
        self.seconds.setdefault(kind, []).append(steps["fed"])
        return steps

    def _worker(self, pid: int, _: int) -> Steps:
        return self.world.recover(lambda: kill(pid), [pid])

    def _on_executor(self, pids: Sequence[int], fault: Callable[[int], object]) -> Steps:
        """To the executor of the first one; all that it plays must be played elsewhere."""
        executor = above(pids[0], EXECUTOR)
        return self.world.recover(lambda: fault(executor), [pid for pid in pids if above(pid, EXECUTOR) == executor])

    def _executor(self, *pids: int) -> Steps:
        return self._on_executor(pids, kill)

    def _decommission(self, *pids: int) -> Steps:
        """The executor is asked to leave, as by a cluster that shrinks; needs spark.decommission.enabled."""
        return self._on_executor(pids, lambda executor: os.kill(executor, signal.SIGPWR))

    def _on_machine(self, pids: Sequence[int], fault: Callable[[str], object]) -> Steps:
        """To the Worker daemon of the first one; its supervisor starts it again afterwards."""
        address = self.cluster.address_of(pids[0])
        there = [pid for pid in pids if self.cluster.address_of(pid) == address]
        steps = self.world.recover(lambda: fault(address), there)
        self.cluster.kill_worker(address)
        self.cluster.start_worker(address)
        return steps

    def _daemon(self, *pids: int) -> Steps:
        return self._on_machine(pids, self.cluster.kill_worker)

    def _retire(self, *pids: int) -> Steps:
        """The Worker is asked to leave: its groups play on there until the machine ends, and then elsewhere."""
        address = self.cluster.address_of(pids[0])
        self.cluster.retire_worker(address)
        self.world.shards.wait(self.world.put(), WAIT)
        assert all(map(lives, pids)), "a group was moved for no reason"
        return self._daemon(*pids)

    def _rest(self, *pids: int) -> Steps:
        """No fault: whoever plays now still plays in ten seconds, on the same executors."""
        before = self.world.all_play(self.active)
        time.sleep(10)
        assert self.world.all_play(self.active) == before, "a group was moved for no reason"
        return {"fed": 0.0}

    def _driver(self, *pids: int) -> Steps:
        assert self.standby is not None
        steps = self.world.recover(self.active.kill, pids)
        self.active, self.standby = self.standby, None
        self.active.says("playing")
        self.standby = self._stand_by()
        return steps


def inject(faults: Faults, kinds: Sequence[str], began: float, seconds: float) -> None:
    """One fault after the other, with a line for each; none begins after ``seconds``."""
    for nth, kind in enumerate(kinds):
        took = time.monotonic() - began
        if took > seconds:
            break
        steps = faults.run(kind)
        told = ", ".join(f"{step} {after:.2f}" for step, after in steps.items())
        print(
            f"{nth + 1:4}/{len(kinds)} {kind:12} {told} s; load {os.getloadavg()[0]:.1f}, "
            f"{faults.world.count} entries, {time.monotonic() - began:.0f} s in all",
            file=sys.stderr,
            flush=True,
        )


def main(folder: Path, words: Sequence[str], seconds: float, seed: int) -> None:
    began = time.monotonic()
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    kinds = [word for word in words if "=" not in word]
    # As many cores as are wanted there: an executor that is lost with its machine is not started beside the other one.
    with Cluster(folder, cores=4 if "driver" in kinds else 2) as cluster:
        world = World(folder, MASTER, {"spark.decommission.enabled": "true", **settings})
        try:
            faults = Faults(cluster, world, "driver" in kinds, seed)
            print(f"playing after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
            inject(faults, kinds, began, seconds)
            verdict = world.end()
        finally:
            world.abandon()
    print(json.dumps({"seconds": faults.seconds, "entries": world.count, "verdict": asdict(verdict)}), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # By way of every `finally`.
    end_with_this_process()  # Daemons and players have sessions of their own.
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="+")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    main(chosen.folder, chosen.words, chosen.seconds, chosen.seed)
