"""Queries in real time under kills, on a standalone cluster: ``python -m tests.campaign.realtime --kills 100``.

A master, two workers with addresses of their own (tests/spark/standalone.py), a log server, four targets, two by each
transport, and a driver whose query filters, renames and explodes. Something is killed with -9: executors, the driver,
targets, the log server; or a target is frozen with SIGSTOP until its session must have been given up, and continued.
After each, progress is demanded. At the end every store is compared with what the log says, and what triggers in it
noted of every write with the order of the log, by code that knows nothing of the product but the encoding
(tests/spark/real_time_judge.py). A line of JSON has the kills by kind, the entries, the seconds to recovery, what
is wrong, and what was asked for and not done. Either of the last two is a failure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import logplayer as lp
from logplayer.errors import LogPlayerError
from logplayer.log.file.log import FileLog
from logplayer.spark import event_loop
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.testing.orphans import end_with_this_process
from tests.namespaces import HOST, inside
from tests.spark.real_time_judge import differences, query
from tests.spark.spark_support import until
from tests.spark.standalone import EXECUTOR, MASTER, Cluster, kill, words_of
from tests.spark.written import note_writes

NAMES = ("a", "b", "c", "d")
LOG_PORT, FIRST_PORT = 7100, 7201
LOG = f"grpc://{HOST}:{LOG_PORT}"
OPEN = lp.Security(insecure=True)  # The machines are namespaces of this one.
KINDS = {"executor": 4, "driver": 1, "target": 4, "log": 3, "freeze": 3}
BATCH_SECONDS = 30
RECOVERY_SECONDS = 600
NONE = lp.Position()
LIMITS = lp.Limits(progress_ms_max=4000, blocked_ms=5000)
FROZEN_SECONDS = 3 * (LIMITS.heartbeat_ms + LIMITS.progress_ms_max) / 1000


def address_of(name: str) -> str:
    scheme = "tcp" if name in "ab" else "grpc"
    return f"{scheme}://{HOST}:{FIRST_PORT + NAMES.index(name)}"


class Processes:
    """Everything that can be killed, but for the executors, which Spark starts again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._commands: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        serve = ["-m", "logplayer.cli"]
        self._commands["log"] = [
            *(*serve, "log", "serve", "--log", f"file://{folder}/wal", "--listen", f"{HOST}:{LOG_PORT}", "--insecure")
        ]
        for name in NAMES:
            listen = "--listen-tcp" if address_of(name).startswith("tcp") else "--listen"
            where = [listen, address_of(name).partition("://")[2], "--insecure"]
            store = ["--store", "sqlite", "--path", str(folder / f"{name}.db"), "--id", name]
            self._commands[name] = [*serve, "target", "serve", *store, *where]
        self._commands["driver"] = ["-m", "tests.campaign.realtime", "--drive", str(folder)]

    def start(self, name: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, *self._commands[name]], stdout=output, stderr=output, start_new_session=True
            )

    def alive(self, name: str) -> bool:
        return self._running[name].poll() is None

    def kill(self, name: str) -> None:
        """The process and what it has started: a driver's JVM, too."""
        process = self._running[name]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def signal(self, name: str, number: int) -> None:
        self._running[name].send_signal(number)

    def end(self) -> None:
        for name in self._running:
            self.kill(name)


class Load:
    """A producer that never stops, on a thread of its own."""

    def __init__(self, rate: int, seed: int) -> None:
        self.last = 0  # The newest index that was answered.
        self._rate = rate
        self._rng = random.Random(f"load {seed}")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        log = await self._open()
        producer = await log.producer("load")
        nth = 0
        while not self._stop.is_set():
            receipt = await producer.append(*self._mutations(nth))
            self.last = receipt.index
            nth += 1
            await asyncio.sleep(1 / self._rate)
        await log.close()

    async def _open(self) -> Any:
        while True:
            try:
                return await lp.open_log(LOG, security=OPEN)
            except LogPlayerError:
                await asyncio.sleep(0.1)

    def _mutations(self, nth: int) -> list[lp.Mutation]:
        """Rows on several shards, some dropped by the query, some made several; a delete; a named target."""
        made = [lp.put(f"n{nth}-{k}", ",".join([str(nth)] * self._rng.randint(1, 4))) for k in range(4)]
        made.append(lp.put(f"shared{nth % 5}", f"{nth},{nth}"))
        made.append(lp.put(f"drop{nth}", "never"))
        if nth % 4 == 0:
            made.append(lp.delete(f"shared{(nth + 1) % 5}/0"))
        if nth % 6 == 0:
            made.append(lp.put(f"named{nth % 50}", str(nth), target=self._rng.choice(NAMES)))
        return made


class RealtimeCampaign:
    """One run."""

    def __init__(self, folder: Path, cluster: Cluster, seed: int, rate: int) -> None:
        self.folder = folder
        self.cluster = cluster
        self.processes = Processes(folder)
        self.rng = random.Random(seed)
        self.kills: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        for name in NAMES:
            SqliteTarget(folder / f"{name}.db", name).close()
            note_writes(folder / f"{name}.db")
        for name in ("log", *NAMES, "driver"):
            self.processes.start(name)
        self.load = Load(rate, seed)

    def run(self, kills: int, seconds: float, kinds: Sequence[str] = tuple(KINDS)) -> None:
        self._progress()
        end = time.monotonic() + seconds
        while sum(self.kills.values()) < kills and time.monotonic() < end:
            time.sleep(self.rng.uniform(0.1, 1.5))
            kind = next_kind(self.rng, kinds, self.kills, kills)
            began = time.monotonic()
            if not getattr(self, f"_{kind}")():
                continue
            self._progress()
            self.kills[kind] += 1
            self.seconds[kind].append(time.monotonic() - began)
            done = sum(self.kills.values())
            print(f"{done}/{kills} {kind}, {self.seconds[kind][-1]:.1f} s, entry {self.load.last}", flush=True)

    def _executor(self) -> bool:
        running = [int(name) for name in os.listdir("/proc") if name.isdigit() and EXECUTOR in words_of(int(name))]
        return bool(running) and kill(self.rng.choice(running))

    def _driver(self) -> bool:
        """Its tasks go on for a moment, until they see that they are alone; so a new epoch is waited for."""
        before = max((position.session.epoch for position in self._positions()), default=0)
        self._again("driver")
        until(lambda: all(one.session.epoch > before for one in self._positions() or [NONE]), RECOVERY_SECONDS, 0.05)
        return True

    def _target(self) -> bool:
        return self._again(self.rng.choice(NAMES))

    def _freeze(self) -> bool:
        """A target hangs: its machine still takes connections, and nobody answers. It gets a new session."""
        name = self.rng.choice(NAMES)
        before = self._session(name)
        self.processes.signal(name, signal.SIGSTOP)
        time.sleep(FROZEN_SECONDS)
        self.processes.signal(name, signal.SIGCONT)
        until(lambda: self._session(name) > before, RECOVERY_SECONDS, 0.05)
        return True

    def _session(self, name: str) -> tuple[int, int]:
        """The newest one that the target knows."""
        try:
            session = event_loop.run(lp.position(address_of(name), name, security=OPEN)).session
        except LogPlayerError:
            return 0, 0
        return session.epoch, session.term

    def _log(self) -> bool:
        return self._again("log")

    def _again(self, name: str) -> bool:
        self.processes.kill(name)
        time.sleep(self.rng.uniform(0, 0.5))
        self.processes.start(name)
        return True

    def _progress(self) -> None:
        """What is appended from now on arrives at every target."""
        wanted = self.load.last + 5
        until(lambda: self._reached(wanted), RECOVERY_SECONDS, 0.05)

    def _reached(self, index: int) -> bool:
        positions = self._positions()
        return bool(positions) and all(position.index >= index for position in positions)

    def _positions(self) -> list[lp.Position]:
        """Of all targets; none if one of them does not answer."""
        if not self.processes.alive("driver"):
            self.processes.start("driver")  # Its query has ended, by its own word.
        try:
            return [event_loop.run(lp.position(address_of(name), name, security=OPEN)) for name in NAMES]
        except LogPlayerError:
            return []

    def end(self) -> dict[str, Any]:
        """Stop the producer, wait for everything, end everything, and compare."""
        self.load.stop()
        until(lambda: self._reached(self.load.last), RECOVERY_SECONDS, 0.05)
        self.processes.end()
        log = event_loop.run(FileLog.open(self.folder / "wal", readonly=True))
        info = event_loop.run(log.info())
        records = [record for some in event_loop.iterate(lambda: log.read(1, info.last)) for record in some]
        event_loop.run(log.close())
        return {
            "kills": dict(self.kills),
            "entries": len(records),
            "recovery_s": {kind: {"median": round(statistics.median(some), 1), "max": round(max(some), 1)}
                           for kind, some in self.seconds.items()},
            "problems": differences(records, {name: self.folder / f"{name}.db" for name in NAMES}, NAMES),
        }  # fmt: skip


def next_kind(rng: random.Random, kinds: Sequence[str], kills: Mapping[str, int], wanted: int) -> str:
    """By weight; at the end, one that had no turn yet."""
    missing = [kind for kind in kinds if not kills.get(kind)]
    chosen = missing if wanted - sum(kills.values()) <= len(missing) else kinds
    return rng.choices(chosen, [KINDS[kind] for kind in chosen])[0]


def shortfall(kills: Mapping[str, int], wanted: int, kinds: Sequence[str]) -> list[str]:
    """What was asked for and not done."""
    done = sum(kills.values())
    missing = [f"no kill of {kind}" for kind in kinds if not kills.get(kind)] if wanted >= len(kinds) else []
    return [*([f"{done} of {wanted} kills"] if done < wanted else []), *missing]


def drive(folder: Path) -> None:
    """The driver: one query, until it is killed."""
    settings = {
        "spark.driver.host": HOST,
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "2",
        "spark.locality.wait": "0s",
        "spark.local.dir": str(folder / "spark"),
        "spark.standalone.executorRemoveDelayOnDisconnection": "1s",
    }
    spark = lp.make_session("realtime", MASTER, settings)
    targets = {name: address_of(name) for name in NAMES}
    config = lp.Config(log=LOG, targets=targets, security=OPEN, limits=LIMITS)
    running = lp.spark.realtime(spark, config=config, transform=query, groups=2, batch_seconds=BATCH_SECONDS).start()
    last = ""
    while running.status["state"] not in ("failed", "stopped", "superseded"):
        status = running.status
        said = f"{status['state']} {status['reason']}"
        if said != last:
            print(time.strftime("%H:%M:%S"), json.dumps(status), flush=True)
            last = said
        time.sleep(0.5)
    print(running.wait(1), flush=True)


def campaign(chosen: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="realtime-") as made:
        folder = Path(chosen.folder or made)
        with Cluster(folder, workers=2, cores=2) as cluster:
            run = RealtimeCampaign(folder, cluster, chosen.seed, chosen.rate)
            try:
                kinds = chosen.kinds.split(",")
                run.run(chosen.kills, chosen.seconds, kinds)
                report = {**run.end(), "missing": shortfall(run.kills, chosen.kills, kinds)}
            finally:
                run.processes.end()
    print(json.dumps(report))
    return 1 if report["problems"] or report["missing"] else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=7200, help="kill nothing more after this long, and fail")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=50)
    parser.add_argument("--folder", default="", help="keep everything here")
    parser.add_argument("--drive", default="", help=argparse.SUPPRESS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    end_with_this_process()
    if chosen.drive:
        drive(Path(chosen.drive))
        return 0
    if chosen.inside:
        return campaign(chosen)
    command = [sys.executable, "-m", "tests.campaign.realtime", *sys.argv[1:], "--inside"]
    return subprocess.run(inside(command), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
