"""Long campaigns of ``kill -9`` against a log: ``python -m tests.campaign.log_soak file --kills 500``.

After each kill the log is opened again and everything new is read; at the end the whole log is read once more. The
first broken promise ends the campaign with the facts; the seed is printed first, so that it can be run again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from logplayer.log.open import open_log
from logplayer.testing.conformance.log_check import LogChecker
from logplayer.testing.conformance.log_harness import LogChild
from logplayer.testing.orphans import end_with_this_process
from tests.campaign.outcome import Outcome, count_outcome

STEPS = (
    *("before-begin", "rows-written", "committed", "answered", "segment-written", "segment-renamed"),
    *("spare-held", "spare-moved", "spare-kept", "spare-placed"),
)


def show(done: int, kills: int, watcher: LogChecker) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{kills} kills, {watcher.count:,} entries ", end="", file=sys.stderr, flush=True)


async def file_campaign(folder: Path, kills: int, chance: random.Random) -> Outcome:
    """Kills of the process that holds a file log, under load: at any moment, or at a named step of the commit."""
    watcher = LogChecker()
    address = f"file://{folder}/log"
    for done in range(1, kills + 1):
        options = ["--segment-bytes", str(chance.choice([20_000, 200_000, 2_000_000]))]
        options += ["--producers", str(chance.randint(1, 16)), "--group", str(chance.choice([1, 1, 1, 3]))]
        if chance.random() < 0.3:
            options += ["--crash-at", f"{chance.choice(STEPS)}:{chance.randint(1, 5)}"]
        child = await LogChild.start(address, *options, newest=watcher.newest)
        try:
            async with asyncio.timeout(20):
                await child.read_acks(chance.randint(0, 400))
        finally:
            acked = await child.kill()
        watcher.acknowledge(acked)
        log = await open_log(address)
        await watcher.catch_up(log)
        await log.close()
        show(done, kills, watcher)
    log = await open_log(address)
    await watcher.prove_all(log)
    outcome = await count_outcome(log, watcher.acked)
    await log.close()
    return outcome


async def nats_campaign(folder: Path, kills: int) -> Outcome:
    """Kills of the leader and of all nodes of a replicated log, in turn, under load."""
    from logplayer.log.nats.local_cluster import Cluster, free_cluster_port
    from logplayer.testing.conformance.log_nats import NatsHarness

    cluster = Cluster(folder / "cluster", free_cluster_port(1))
    await asyncio.to_thread(cluster.up)
    watcher = LogChecker()
    try:
        async with NatsHarness(cluster, "soak") as harness:
            for done in range(1, kills + 1):
                watcher.acknowledge(await harness.crash_under_load(dict(watcher.newest)))
                log = await harness.open()
                await watcher.catch_up(log)
                await log.close()
                show(done, kills, watcher)
            log = await harness.open()
            await watcher.prove_all(log)
            outcome = await count_outcome(log, watcher.acked)
            await log.close()
    finally:
        await asyncio.to_thread(cluster.down)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", choices=["file", "nats"])
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    end_with_this_process()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(json.dumps({"campaign": options.log, "kills": options.kills, "seed": seed}), flush=True)
    folder, started = Path(tempfile.mkdtemp(prefix="log-soak-")), time.monotonic()
    if options.log == "file":
        outcome = asyncio.run(file_campaign(folder, options.kills, random.Random(seed)))
    else:
        outcome = asyncio.run(nats_campaign(folder, options.kills))
    shutil.rmtree(folder, ignore_errors=True)  # Kept when a promise was broken.
    seconds = round(time.monotonic() - started)
    print(json.dumps(outcome._asdict() | {"kills": options.kills, "seconds": seconds}))
    sys.exit(0 if outcome.holds else 1)


if __name__ == "__main__":
    main()
