"""Power failures under load: ``python -m tests.campaign.power --log etcd --cuts 30``.

The log is on disks whose power can be cut (tests/volatile_disk.py): what was not synced is gone. After each cut the
log is opened again, and whatever was acknowledged must be in it, once, in order and unchanged; at the end all of it is
read once more. Of a file log, what counts is what was told before the cut: a sync that is under way while ext4 shuts
down may succeed without having done its work, and nobody outside of a machine without power would hear of it.

file        the disk of the process that holds the log
etcd, nats  in turn: the leader's disk, and those of all three members at once

``--lazy`` leaves the syncs out (file: an LD_PRELOAD answers them; nats: the server's own default): it must fail.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from logplayer.log.etcd.local_cluster import EtcdCluster, free_etcd_port
from logplayer.log.local_cluster import NODES, LocalCluster, NodeStatus
from logplayer.log.nats.local_cluster import Cluster, free_cluster_port
from logplayer.log.open import open_log
from logplayer.testing.conformance.log_check import LogChecker
from logplayer.testing.conformance.log_cluster import ClusterHarness
from logplayer.testing.conformance.log_etcd import EtcdHarness
from logplayer.testing.conformance.log_harness import LogChild, parse_acks
from logplayer.testing.conformance.log_nats import NatsHarness
from logplayer.testing.orphans import end_with_this_process
from tests.campaign.failover import Load
from tests.campaign.outcome import Outcome, count_outcome
from tests.volatile_disk import VolatileDisk, own_mounts

LAZY = """
int fsync(int fd) { return 0; }
int fdatasync(int fd) { return 0; }
int sync_file_range(int fd, long from, long count, unsigned int flags) { return 0; }
int msync(void *at, unsigned long length, int flags) { return 0; }
"""


class LazyCluster(Cluster):
    """NATS as it comes: it syncs every two minutes."""

    def command(self, node: int, server: str) -> list[str]:
        command = super().command(node, server)
        config = Path(command[-1])
        config.write_text(config.read_text().replace("sync_interval: always", "sync_interval: 2m"))
        return command

    def refuse(self, found: list[NodeStatus]) -> None:
        """It would not run at all."""


@contextlib.contextmanager
def lazy_syncs(folder: Path) -> Iterator[None]:
    """Processes that start meanwhile are told that their syncs succeed."""
    source, library = folder / "lazy.c", folder / "lazy.so"
    source.write_text(LAZY)
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    os.environ["LD_PRELOAD"] = str(library)
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"]


async def file_campaign(folder: Path, cuts: int, chance: random.Random) -> Outcome:
    watcher, disk = LogChecker(), VolatileDisk(folder / "disk")
    address = f"file://{disk.path}/log"
    try:
        for _ in range(cuts):
            options = ["--segment-bytes", str(chance.choice([20_000, 200_000, 2_000_000]))]
            options += ["--producers", str(chance.randint(1, 16))]
            child = await LogChild.start(address, *options, newest=watcher.newest)
            await child.read_acks(chance.randint(1, 400))
            told = parse_acks(child.lines)
            disk.cut()
            await child.kill()
            disk.restore()
            watcher.acknowledge(told)
            log = await open_log(address)
            await watcher.catch_up(log)
            await log.close()
        log = await open_log(address)
        await watcher.prove_all(log)
        outcome = await count_outcome(log, watcher.acked)
        await log.close()
    finally:
        disk.remove()
    return outcome


def cut_power(cluster: LocalCluster, disks: list[VolatileDisk], nodes: list[int]) -> None:
    """Of these members at once; their servers end, and the power comes back."""
    pids = [cluster.pid(node) for node in nodes]
    for node in nodes:
        disks[node].cut()
    for pid in filter(None, pids):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    for node in nodes:
        disks[node].restore()


async def cluster_campaign(harness: ClusterHarness, disks: list[VolatileDisk], cuts: int) -> Outcome:
    watcher = LogChecker()
    for number in range(cuts):
        log = await harness.connect()
        load = Load(log, watcher)
        await load.acked.more(200)
        nodes = list(range(NODES)) if number % 2 else [await harness.leader(log)]
        await asyncio.to_thread(cut_power, harness.cluster, disks, nodes)
        await asyncio.to_thread(harness.cluster.up)
        await load.acked.more(200)
        await load.check()
        await log.close()
    log = await harness.open()
    await watcher.prove_all(log)
    outcome = await count_outcome(log, watcher.acked)
    await log.close()
    return outcome


async def replicated_campaign(engine: str, folder: Path, cuts: int, lazy: bool) -> Outcome:
    port = free_etcd_port(2) if engine == "etcd" else free_cluster_port(1)
    kind = EtcdCluster if engine == "etcd" else LazyCluster if lazy else Cluster
    cluster = kind(folder / "cluster", port)
    disks = [VolatileDisk(cluster.folder(node)) for node in range(NODES)]
    try:
        await asyncio.to_thread(cluster.up)
        harness = (EtcdHarness if engine == "etcd" else NatsHarness)(cluster, "power")
        return await cluster_campaign(harness, disks, cuts)
    finally:
        await asyncio.to_thread(cluster.down)
        for disk in disks:
            disk.remove()


async def campaign(log: str, folder: Path, cuts: int, seed: int, lazy: bool = False) -> Outcome:
    """Cut the power so many times; raises AssertionError, or what the log raises, when a promise is broken."""
    if log != "file":
        return await replicated_campaign(log, folder, cuts, lazy)
    with lazy_syncs(folder) if lazy else contextlib.nullcontext():
        return await file_campaign(folder, cuts, random.Random(seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", choices=["file", "etcd", "nats"], required=True)
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--lazy", action="store_true", help="without syncs: it must fail")
    options = parser.parse_args()
    end_with_this_process()
    own_mounts()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(json.dumps({"campaign": "power", "log": options.log, "cuts": options.cuts, "seed": seed}), flush=True)
    folder, started = Path(tempfile.mkdtemp(prefix="power-")), time.monotonic()
    outcome = asyncio.run(campaign(options.log, folder, options.cuts, seed, options.lazy))
    shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.monotonic() - started)
    print(json.dumps(outcome._asdict() | {"cuts": options.cuts, "seconds": seconds}))
    sys.exit(0 if outcome.holds else 1)


if __name__ == "__main__":
    main()
