"""Seconds without an acknowledged append when servers die: ``python -m tests.campaign.failover --kills 50``.

Four producers append without a pause: whatever is acknowledged must be in the log once and in
order, whatever dies. Two campaigns for each engine, in one run on one machine:

members   the leader, a follower, the leader and all three members are killed in turn; the producers use the log itself
servers   the log server that the producers use is killed, and another one on the same log goes on

For each kill the longest time between two acknowledgements from the kill until the load runs again is one sample.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from logplayer.log import local_cluster
from logplayer.log.client import LogClient
from logplayer.log.etcd.local_cluster import EtcdCluster, free_etcd_port
from logplayer.log.local_cluster import NODES
from logplayer.log.nats.local_cluster import Cluster, free_cluster_port
from logplayer.log.protocol import Log
from logplayer.testing.conformance.log_check import LogChecker
from logplayer.testing.conformance.log_cluster import ClusterHarness, TimedAcks
from logplayer.testing.conformance.log_etcd import EtcdHarness
from logplayer.testing.conformance.log_harness import ServerProcess, produce
from logplayer.testing.conformance.log_nats import NatsHarness
from logplayer.testing.orphans import end_with_this_process

PRODUCERS = 4
KINDS = ("leader", "follower", "leader", "all")
Samples = dict[str, list[float]]


class Load:
    """Producers that append without a pause, and the check of all that they were told."""

    def __init__(self, log: Log, watcher: LogChecker) -> None:
        self.acked = TimedAcks()
        self._log = log
        self._watcher = watcher
        names = [f"p{i}" for i in range(PRODUCERS)]
        self._tasks = [asyncio.create_task(produce(log, n, watcher.newest.get(n, 0), self.acked)) for n in names]

    async def check(self) -> None:
        """Stop, and read everything that is new."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
        self._watcher.acknowledge(self.acked)
        await self._watcher.catch_up(self._log)


async def kill_members(harness: ClusterHarness, kills: int, watcher: LogChecker) -> Samples:
    samples: Samples = defaultdict(list)
    for number in range(kills):
        kind = KINDS[number % len(KINDS)]
        log = await harness.connect()
        load = Load(log, watcher)
        await load.acked.more(200)
        leader = await harness.leader(log)
        victims = {"leader": [leader], "follower": [(leader + 1) % NODES], "all": list(range(NODES))}[kind]
        killed = time.monotonic()
        for node in victims:
            await asyncio.to_thread(harness.cluster.kill, node)
        if kind == "all":
            await asyncio.to_thread(harness.cluster.up)
        await load.acked.more(200)
        samples[kind].append(load.acked.longest_gap(killed))
        await asyncio.to_thread(harness.cluster.up)
        await load.check()
        await log.close()
    return samples


async def kill_servers(harness: ClusterHarness, kills: int, watcher: LogChecker) -> Samples:
    samples: Samples = defaultdict(list)
    servers = [ServerProcess(harness.address), ServerProcess(harness.address)]
    for server in servers:
        await server.start()
    log = await LogClient.open([server.where for server in servers], patience_seconds=60)
    for _ in range(kills):
        load = Load(log, watcher)
        await load.acked.more(200)
        [victim] = [server for server in servers if server.where == log._servers.current.where]
        killed = time.monotonic()
        await victim.stop(signal.SIGKILL)
        await load.acked.more(200)
        samples["log server"].append(load.acked.longest_gap(killed))
        await victim.start()
        await load.check()
    await log.close()
    for server in servers:
        await server.stop()
    return samples


async def campaign(engine: str, folder: Path, kills: int) -> None:
    cluster = EtcdCluster(folder, free_etcd_port(2)) if engine == "etcd" else Cluster(folder, free_cluster_port(1))
    versions = {status.version for status in await asyncio.to_thread(cluster.up)}
    try:
        for name, run in (("members", kill_members), ("servers", kill_servers)):
            harness = (EtcdHarness if engine == "etcd" else NatsHarness)(cluster, name)
            watcher, began = LogChecker(), time.monotonic()
            samples = await run(harness, kills, watcher)
            log = await harness.open()
            await watcher.prove_all(log)
            await log.close()
            facts = {"engine": engine, "version": sorted(versions), "killed": name, "kills": kills}
            counts = {"entries": watcher.count, "acknowledged": len(watcher.acked)}
            outcome = {"lost": 0, "twice": 0, "out_of_order": 0, "seconds": round(time.monotonic() - began)}
            print(json.dumps(facts | counts | outcome | {"without_acks_seconds": _figures(samples)}), flush=True)
    finally:
        await asyncio.to_thread(cluster.down)


def _figures(samples: Samples) -> dict[str, dict[str, float]]:
    return {
        kind: {"kills": len(found), "median": round(statistics.median(found), 2), "worst": round(max(found), 2)}
        for kind, found in samples.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--engine", action="append", choices=["etcd", "nats"])
    options = parser.parse_args()
    end_with_this_process()
    local_cluster.START_SECONDS = 300.0  # After many kills NATS takes its time.
    for engine in options.engine or ["etcd", "nats"]:
        folder = Path(tempfile.mkdtemp(prefix=f"failover-{engine}-"))
        asyncio.run(campaign(engine, folder, options.kills))
        shutil.rmtree(folder, ignore_errors=True)  # Kept when a promise was broken.


if __name__ == "__main__":
    main()
