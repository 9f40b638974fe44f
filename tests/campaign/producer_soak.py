"""``kill -9`` of producers at every step, in both APIs: ``python -m tests.campaign.producer_soak --kills 500``.

A child appends under a few names, each from several coroutines or from a thread, to a log server. It is killed, at any
moment or at a named step, and the next child goes on where the log says. Transaction n of a producer has bytes that
follow from its name and n, so whoever reads the log sees a transaction that is lost, doubled or out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import logplayer as lp
from logplayer import crashpoint
from logplayer.log.producer import Producer
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker, payload
from logplayer.testing.conformance.log_harness import ServerProcess
from logplayer.testing.orphans import end_with_this_process
from tests.campaign.outcome import Outcome, count_outcome

APIS = ("coroutines", "threads")
ANY_MOMENT = "any-moment"
STEPS = ("transaction-numbered", "group-started", "group-answered", "receipts-given")
NAMES = ("web-1", "web-2", "web-3")
WORKERS = 4
STEP_SECONDS = 60.0  # Only for a child that never comes to its step.


def say(producer: str, sequence: int, index: int) -> None:
    """One write for each line: a kill leaves whole lines."""
    os.write(1, f"{producer} {sequence} {index}\n".encode())


async def in_coroutines(address: str) -> None:
    """Several coroutines share each producer."""

    async def work(producer: Producer) -> None:
        while True:
            receipt = await producer.append_payload(payload(producer.name, producer.sequence + 1))
            say(receipt.producer, receipt.sequence, receipt.index)

    async with lp.open_log(address) as log:
        producers = [await log.producer(name) for name in NAMES]
        await asyncio.gather(*(work(producer) for producer in producers for _ in range(WORKERS)))


def in_threads(address: str) -> None:
    """A thread for each producer: the number must be known before the call."""
    log = lp.sync.open_log(address)

    def work(name: str) -> None:
        producer = log.producer(name)
        while True:
            receipt = producer.append_payload(payload(name, producer.sequence + 1))
            say(receipt.producer, receipt.sequence, receipt.index)

    threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def run_child(address: str, how: str, step: str, seconds: float) -> tuple[bool, list[AckedAppend]]:
    """Let it append until it dies, at its step or else after a while: whether it died at its step, and what it said."""
    command = (sys.executable, "-m", "tests.campaign.producer_soak", "--child", how, "--log", address, "--step", step)
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    first = await child.stdout.readline()  # It has begun, or died before.
    try:
        await asyncio.wait_for(child.wait(), STEP_SECONDS if step else seconds)
        at_step = True
    except TimeoutError:
        at_step = False
        with contextlib.suppress(ProcessLookupError):  # It died in this very moment.
            os.kill(child.pid, signal.SIGKILL)
    said = first + await child.stdout.read()
    assert await child.wait() == -signal.SIGKILL, "it ended by itself"
    lines = [line.split() for line in said.decode().split("\n")[:-1]]
    return at_step, [AckedAppend(name, int(sequence), int(index)) for name, sequence, index in lines]


async def campaign(folder: Path, kills: int, chance: random.Random) -> tuple[Outcome, Counter[str]]:
    """Each API dies at each step in turn, and at any moment; how often each did, by "API step"."""
    watcher, died = LogChecker(), Counter[str]()
    turns = itertools.cycle(itertools.product((*STEPS, ANY_MOMENT), APIS))
    server = ServerProcess(f"file://{folder}/log")
    await server.start()
    address = f"grpc://{server.where}"
    async with lp.open_log(address) as log:
        for done, (place, how) in zip(range(1, kills + 1), turns, strict=False):
            step = "" if place == ANY_MOMENT else f"{place}:{chance.randint(1, 40)}"
            at_step, acked = await run_child(address, how, step, chance.uniform(0, 0.3))
            died[f"{how} {place if at_step else ANY_MOMENT}"] += 1
            watcher.acknowledge(acked)
            await watcher.catch_up(log)
            if sys.stderr.isatty():
                print(f"\r{done}/{kills} kills, {watcher.count:,} entries ", end="", file=sys.stderr, flush=True)
        await watcher.prove_all(log)
        outcome = await count_outcome(log, watcher.acked)
    await server.stop()
    return outcome, died


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--child", choices=APIS)
    parser.add_argument("--log", default="")
    parser.add_argument("--step", default="")
    options = parser.parse_args()
    end_with_this_process()
    if options.child:
        crashpoint.armed = options.step or None
        if options.child == "threads":
            in_threads(options.log)
        asyncio.run(in_coroutines(options.log))
        return
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(json.dumps({"campaign": "producers", "kills": options.kills, "seed": seed}), flush=True)
    folder, started = Path(tempfile.mkdtemp(prefix="producer-soak-")), time.monotonic()
    outcome, died = asyncio.run(campaign(folder, options.kills, random.Random(seed)))
    shutil.rmtree(folder, ignore_errors=True)  # Kept when a promise was broken.
    seconds, killed = round(time.monotonic() - started), dict(sorted(died.items()))
    print(json.dumps(outcome._asdict() | {"kills": options.kills, "killed": killed, "seconds": seconds}))
    sys.exit(0 if outcome.holds else 1)


if __name__ == "__main__":
    main()
