"""Does one frozen target cost the others anything? Undisturbed and frozen phases alternate under one player.

    python benchmarks/frozen_bench.py [--json] [--targets 20] [--rate 200] [--seconds 6] [--rounds 4] [--scheme tcp]

A transaction is ten key-values of 1 KB, spread over the targets by hash; the delay is from dispatch to arrival at a
target, over the targets that are not frozen. The frozen one is a process of its own, stopped by SIGSTOP for the whole
phase: the player finds it silent, gives it up and tries again and again meanwhile.
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

from logplayer.core.entry import HashMap
from logplayer.log.address import open_log
from logplayer.log.protocol import NewEntry, Record
from logplayer.player.config import PlayerConfig
from logplayer.player.shell import Shell
from logplayer.target import stream as target_stream
from logplayer.target.memory import MemoryTarget
from logplayer.target.server import TargetServer
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


async def phase(log: Any, shell: Shell, others: Targets, options: argparse.Namespace, sequence: int) -> list[float]:
    """Append at the rate for a while; the others' delays in milliseconds."""
    dispatched: dict[int, int] = {}

    def note(records: list[Record]) -> None:
        at = now()
        dispatched.update((record.index, at) for record in records)

    shell.on_dispatch = note
    others.take()
    pending: set[asyncio.Task[Any]] = set()
    began = time.perf_counter()
    for number in range(int(options.rate * options.seconds)):
        wait = began + number / options.rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        keys = [b"%09d/%d" % (sequence + number, k) for k in range(PER_TRANSACTION)]
        payload = b"".join(encode_mutation(key, VALUE).encoded for key in keys)
        task = asyncio.create_task(log.append([NewEntry("bench", sequence + number + 1, payload)]))
        pending.add(task)
        task.add_done_callback(pending.discard)
    await asyncio.gather(*pending)
    await asyncio.sleep(0.3)
    shell.on_dispatch = None
    return [(at - dispatched[index]) / 1e6 for index, at in others.take() if index in dispatched]


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    names = [f"t{number}" for number in range(options.targets)]
    others, victim = Targets(names[1:], options.scheme), Targets(names[:1], options.scheme)
    addresses = dict.fromkeys(names[1:], others.address) | {names[0]: victim.address}
    found: dict[str, list[list[float]]] = {"undisturbed": [], "frozen": []}
    sequence = 0
    with tempfile.TemporaryDirectory() as folder:
        log = await open_log(f"file://{folder}/log")
        shell = Shell(log, PlayerConfig(targets=addresses, map=HashMap(tuple(names))))
        task = asyncio.create_task(shell.run())
        await _live(shell)
        gc.collect()
        gc.freeze()
        for turn in range(2 * options.rounds + 1):
            kind = ("undisturbed", "frozen")[turn % 2]
            if kind == "frozen":
                victim.signal(signal.SIGSTOP)
            samples = await phase(log, shell, others, options, sequence)
            sequence += int(options.rate * options.seconds)
            if kind == "frozen":
                victim.signal(signal.SIGCONT)
                await _live(shell)
            if turn:  # The first phase warms everything up.
                found[kind].append(samples)
        shell.request_stop()
        await task
        await log.close()
    others.stop()
    victim.stop()
    return _result(found, options)


async def _live(shell: Shell) -> None:
    while True:
        await asyncio.sleep(0.5)
        if shell.running and all(target.state == "LIVE" for target in shell.status().targets):
            return


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
    result["p99_ratio"] = round(result["frozen"]["p99_ms"] / result["undisturbed"]["p99_ms"], 3)
    result["p50_ratio"] = round(result["frozen"]["p50_ms"] / result["undisturbed"]["p50_ms"], 3)
    result["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--targets", type=int, default=20)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--scheme", choices=["tcp", "grpc"], default="tcp")
    options = parser.parse_args()
    result = uvloop.run(measure(options))
    print(json.dumps(result) if options.as_json else json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
