"""How long the files of the members may get: etcd 3.6 says it with its status, servers before that in their metrics.

It changes when a member is started again with another quota, so what is known is asked again after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import urllib.request
from collections.abc import Sequence

from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd.link import EtcdMember
from logplayer.wire.security import Security, client_context

DEFAULT_QUOTA = 2 * 1024**3  # etcd's own, if it is started without one and does not say it.
KNOWN_SECONDS = 60.0
FAILED_SECONDS = 5.0  # What was known before is taken meanwhile.
_QUOTA = re.compile(r"^etcd_server_quota_backend_bytes ([0-9.e+]+)$", re.MULTILINE)
_log = logging.getLogger(__name__)


class EtcdQuotas:
    """What the members have said."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._known: dict[str, int] = {}
        self._until: dict[str, float] = {}
        self._silent: set[str] = set()

    async def of(self, found: Sequence[tuple[EtcdMember, pb.StatusResponse]]) -> list[int]:
        """The quota of each of these members. The others do not answer, so they may come back with another one."""
        hosts = {member.host for member, _ in found}
        self._until = {host: until for host, until in self._until.items() if host in hosts}
        return await asyncio.gather(*(self._one(member.host, status) for member, status in found))

    def forget(self) -> None:
        """Ask all members again."""
        self._until.clear()

    async def _one(self, host: str, status: pb.StatusResponse) -> int:
        if status.db_size_quota:
            return status.db_size_quota
        if time.monotonic() >= self._until.get(host, 0.0):
            said = await asyncio.to_thread(self._metric, host)
            self._until[host] = time.monotonic() + (KNOWN_SECONDS if said else FAILED_SECONDS)
            self._said(host, said)
        return self._known.get(host, DEFAULT_QUOTA)

    def _said(self, host: str, quota: int | None) -> None:
        if quota:
            self._known[host] = quota
            self._silent.discard(host)
        elif host not in self._silent:
            self._silent.add(host)
            assumed = self._known.get(host, DEFAULT_QUOTA)
            _log.warning(
                "the etcd server %s does not tell its quota; %d bytes are assumed until its /metrics can be read",
                host,
                assumed,
            )

    def _metric(self, host: str) -> int | None:
        context = client_context(self._security)
        url = f"{'https' if context else 'http'}://{host}/metrics"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2, context=context) as reply:
            if found := _QUOTA.search(reply.read().decode()):
                return int(float(found[1]))
        return None
