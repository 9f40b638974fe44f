"""Cuts the leader of an etcd cluster off from its peers, under load: run by ``test_partition`` in a network of its own.

Three members, each in a network namespace of its own on one bridge. The leader still reaches its clients, so it goes on
taking calls that it cannot commit; that is worse for a client than a leader that is gone.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from logplayer.log.etcd.local_cluster import EtcdCluster
from logplayer.log.etcd.log import EtcdLog
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker
from logplayer.testing.conformance.log_cluster import wait_for_acks
from logplayer.testing.conformance.log_etcd import etcd_leader
from logplayer.testing.conformance.log_harness import produce
from logplayer.wire.security import Security

NODES = 3


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def address(node: int) -> str:
    return f"10.78.0.{node + 1}"


class World:
    """The namespaces and the servers in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tag = f"lp{os.getpid()}"
        self.servers: list[subprocess.Popen[bytes]] = []

    def make(self) -> None:
        ip("link", "add", "br0", "type", "bridge")
        ip("addr", "add", "10.78.0.254/24", "dev", "br0")
        ip("link", "set", "br0", "up")
        server = EtcdCluster.find_server()
        for node in range(NODES):
            space = self.space(node)
            ip("netns", "add", space)
            ip("link", "add", f"v{node}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", f"v{node}", "master", "br0", "up")
            ip("-n", space, "addr", "add", f"{address(node)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            self.servers.append(subprocess.Popen(["ip", "netns", "exec", space, *self.command(server, node)]))

    def space(self, node: int) -> str:
        return f"{self.tag}n{node}"

    def command(self, server: str, node: int) -> list[str]:
        client, peer = f"http://{address(node)}:2379", f"http://{address(node)}:2380"
        options = {
            "name": f"n{node}",
            "data-dir": str(self.folder / f"n{node}"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(f"n{i}=http://{address(i)}:2380" for i in range(NODES)),
            "heartbeat-interval": "50",
            "election-timeout": "500",
            "pre-vote": "true",
            "logger": "zap",
            "log-level": "error",
        }
        return [server, *(f"--{name}={value}" for name, value in options.items())]

    def cut(self, node: int, verb: str) -> None:
        """``add``: the node and its peers do not reach each other; ``del``: they do again."""
        for other in range(NODES):
            if other != node:
                ip("-n", self.space(node), "route", verb, "blackhole", f"{address(other)}/32")
                ip("-n", self.space(other), "route", verb, "blackhole", f"{address(node)}/32")

    def end(self) -> None:
        for server in self.servers:
            server.kill()
            server.wait()
        for node in range(NODES):
            subprocess.run(["ip", "netns", "del", self.space(node)], capture_output=True)


async def another_leads(log: EtcdLog, old: int) -> None:
    """Until another member says that it leads; a minute without any is a failure. The old one may say so, too."""
    for _ in range(1200):
        for member, status in await log.link.statuses():
            if status.leader == status.header.member_id and log.link.members.index(member) != old:
                return
        await asyncio.sleep(0.05)
    raise AssertionError(f"no member has taken over from {log.link.members[old].host}, which was cut off")


async def run(world: World) -> None:
    hosts = [f"{address(node)}:2379" for node in range(NODES)]
    log = await EtcdLog.open(hosts, "cut", security=Security(insecure=True))
    acked: list[AckedAppend] = []
    seen = LogChecker()

    async def follow() -> None:
        async for records in log.read(1):
            seen.see(records)

    tasks = [asyncio.create_task(produce(log, f"p{i}", 0, acked)) for i in range(3)]
    reader = asyncio.create_task(follow())
    for _ in range(3):
        await wait_for_acks(acked, len(acked) + 100)
        leader = await etcd_leader(log)
        world.cut(leader, "add")
        await another_leads(log, leader)
        await wait_for_acks(acked, len(acked) + 100)
        world.cut(leader, "del")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    last = (await log.info()).last
    while seen.index < last and not reader.done():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    reader.cancel()
    seen.acknowledge(acked)
    await seen.catch_up(log)
    await seen.prove_all(log)
    for host in hosts:
        alone = await EtcdLog.open([host], "cut", security=Security(insecure=True))
        await seen.prove_all(alone)
        await alone.close()
    await log.close()
    print(f"{seen.count} entries, {len(acked)} acknowledged")


def main() -> None:
    world = World(Path(sys.argv[1]))
    try:
        world.make()
        asyncio.run(run(world))
    finally:
        world.end()


if __name__ == "__main__":
    main()
