"""Does one frozen target cost the others anything? Two players run side by side; one of them has the frozen target.

    python bench/parts/frozen_bench.py [--json] [--targets 20] [--rate 100] [--seconds 6] [--rounds 4] [--scheme tcp]

A transaction is ten key-values of 1 KB, spread over the targets by hash; the delay is from dispatch to arrival at a
target, over the targets that are not frozen. The frozen one is a process of its own, stopped by SIGSTOP for the whole
phase: its player finds it silent, gives it up and tries again and again meanwhile. The two players, each with a log and
targets of its own, carry the same load at the same time and change roles each round, so noise of the machine meets
both: on a busy machine look at the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing as mp
import os
import platform
import signal
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from logplayer.config import Config
from logplayer.core.entry import HashMap
from logplayer.log.open import open_log
from logplayer.log.protocol import NewEntry, Record
from logplayer.player.shell import Shell
from logplayer.target import stream as target_stream
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.wire.entries import encode_mutation

VALUE = bytes(1000)
PER_TRANSACTION = 10
now = time.monotonic_ns


def serve(names: list[str], scheme: str, pipe: Connection) -> None:
    """A process with some targets; each word on the pipe is answered with the arrivals since the last one."""
    uvloop.run(_serve(names, scheme, pipe))


async def _serve(names: list[str], scheme: str, pipe: Connection) -> None:
    arrivals: list[tuple[int, int]] = []
    original = target_stream.Stream._batch

    def note(self: Any, batch: Any, length: int) -> None:
        at = now()
        arrivals.extend((message.index, at) for message in batch.messages)
        original(self, batch, length)

    target_stream.Stream._batch = note  # type: ignore[method-assign]
    server = TargetServer({name: MemoryTarget() for name in names})
    pipe.send((await server.start(**{scheme: "127.0.0.1:0"}))[0])
    gc.freeze()
    while await asyncio.get_running_loop().run_in_executor(None, pipe.recv) != "stop":
        taken = arrivals.copy()
        arrivals.clear()
        pipe.send(taken)
    await server.stop()


class Targets:
    """Some targets in a process of their own."""

    def __init__(self, names: list[str], scheme: str) -> None:
        context = mp.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(names, scheme, theirs))
        self.process.start()
        self.address = self.pipe.recv()

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def take(self) -> list[tuple[int, int]]:
        self.pipe.send("take")
        return self.pipe.recv()  # type: ignore[no-any-return]

    def stop(self) -> None:
        self.pipe.send("stop")
        self.process.join(10)


def play(addresses: dict[str, str], rate: float, pipe: Connection) -> None:
    """A process with a log, a player and a steady producer; "take" answers with what was dispatched, and all LIVE."""
    uvloop.run(_play(addresses, rate, pipe))


async def _play(addresses: dict[str, str], rate: float, pipe: Connection) -> None:
    dispatched: dict[int, int] = {}

    def note(records: list[Record]) -> None:
        at = now()
        dispatched.update((record.index, at) for record in records)

    with tempfile.TemporaryDirectory() as folder:
        log = await open_log(f"file://{folder}/log")
        shell = Shell(log, Config(targets=addresses, map=HashMap(tuple(addresses))))
        task = asyncio.create_task(shell.run())
        producing = asyncio.create_task(_produce(log, rate))
        shell.on_dispatch = note
        gc.collect()
        gc.freeze()
        while await asyncio.get_running_loop().run_in_executor(None, pipe.recv) != "stop":
            live = shell.running and all(target.state == "LIVE" for target in shell.status().targets)
            pipe.send((dispatched.copy(), live))
            dispatched.clear()
        producing.cancel()
        shell.request_stop()
        await task
        await log.close()


async def _produce(log: Any, rate: float) -> None:
    pending: set[asyncio.Task[Any]] = set()
    began, number = time.perf_counter(), 0
    while True:
        number += 1
        wait = began + number / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        keys = [b"%09d/%d" % (number, k) for k in range(PER_TRANSACTION)]
        payload = b"".join(encode_mutation(key, VALUE).encoded for key in keys)
        task = asyncio.create_task(log.append([NewEntry("bench", number, payload)]))
        pending.add(task)
        task.add_done_callback(pending.discard)


class Group:
    """One player with its targets: all but one in one process, the victim in another."""

    def __init__(self, options: argparse.Namespace) -> None:
        names = [f"t{number}" for number in range(options.targets)]
        self.others, self.victim = Targets(names[1:], options.scheme), Targets(names[:1], options.scheme)
        addresses = dict.fromkeys(names[1:], self.others.address) | {names[0]: self.victim.address}
        context = mp.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=play, args=(addresses, options.rate, theirs))
        self.process.start()

    def take(self) -> tuple[list[float], bool]:
        """The others' delays in milliseconds since the last time, and whether all targets are LIVE."""
        self.pipe.send("take")
        dispatched, live = self.pipe.recv()
        arrived = self.others.take()
        return [(at - dispatched[index]) / 1e6 for index, at in arrived if index in dispatched], live

    def settle(self) -> None:
        while not self.take()[1]:
            time.sleep(0.2)

    def stop(self) -> None:
        self.pipe.send("stop")
        self.process.join(20)
        self.others.stop()
        self.victim.stop()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    groups = [Group(options), Group(options)]
    found: dict[str, list[list[float]]] = {"undisturbed": [], "frozen": []}
    for group in groups:
        group.settle()
    time.sleep(2)
    for turn in range(2 * options.rounds):
        disturbed, quiet = groups[turn % 2], groups[1 - turn % 2]
        disturbed.victim.signal(signal.SIGSTOP)
        for group in groups:
            group.take()
        time.sleep(options.seconds)
        found["frozen"].append(disturbed.take()[0])
        found["undisturbed"].append(quiet.take()[0])
        disturbed.victim.signal(signal.SIGCONT)
        disturbed.settle()
    for group in groups:
        group.stop()
    return _result(found, options)


def _result(found: dict[str, list[list[float]]], options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"targets": options.targets, "rate": options.rate, "scheme": options.scheme}
    for kind, phases in found.items():
        samples = [sample for samples in phases for sample in samples]
        cut = statistics.quantiles(samples, n=100, method="inclusive")
        result[kind] = {
            "p50_ms": round(cut[49], 3),
            "p99_ms": round(cut[98], 3),
            "p99_ms_of_phases": [round(statistics.quantiles(s, n=100)[98], 3) for s in phases],
            "samples": len(samples),
        }
    pairs = zip(result["frozen"]["p99_ms_of_phases"], result["undisturbed"]["p99_ms_of_phases"], strict=True)
    result["p99_ratio_median_of_rounds"] = round(statistics.median(frozen / quiet for frozen, quiet in pairs), 3)
    result["p99_ratio"] = round(result["frozen"]["p99_ms"] / result["undisturbed"]["p99_ms"], 3)
    result["p50_ratio"] = round(result["frozen"]["p50_ms"] / result["undisturbed"]["p50_ms"], 3)
    result["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--targets", type=int, default=20)
    parser.add_argument("--rate", type=float, default=100, help="transactions per second, of each player")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--scheme", choices=["tcp", "grpc"], default="tcp")
    options = parser.parse_args()
    result = measure(options)
    print(json.dumps(result) if options.as_json else json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
