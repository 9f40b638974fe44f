"""The connection to an etcd cluster: one channel to each member, and the one to ask first.

A call goes to one member. If that does not answer in time the next call goes to another; the caller decides whether
to try again. Writers ask the leader first: its death is then seen at once, as a broken connection. Through a follower
it would only show as an answer that does not come.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import grpc

from logplayer.errors import LogError, LogFormatError, LogFull, LogUnavailable
from logplayer.log.etcd import api
from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd.api import EtcdAway, EtcdNotAdmitted, Method, TokenExpired
from logplayer.log.etcd.keys import Keys, LogHead, decode_meta, encode_meta
from logplayer.log.etcd.version import refuse_old
from logplayer.log.pause import Pause
from logplayer.wire.addresses import parse_netloc
from logplayer.wire.grpc_credentials import channel_credentials
from logplayer.wire.security import NONE, Security, require_protection

CALL_SECONDS = 1.0
"""For the first try of a call. An election is over by then; the tries after it get longer, for a busy disk."""
CALL_SECONDS_MAX = 8.0
STATUS_SECONDS = 0.7
OPEN_SECONDS = 8.0
_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", -1),  # The member's limit counts.
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.keepalive_time_ms", 6_000),  # More often than every 5 s a member would take for an attack.
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),  # Another log in this process may have other certificates.
]
Q = TypeVar("Q")
R = TypeVar("R")
_log = logging.getLogger(__name__)


class EtcdMember:
    """One server of the cluster."""

    def __init__(self, host: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.host = host
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(host, options=_OPTIONS)
        else:
            self.channel = grpc.aio.secure_channel(host, credentials, options=_OPTIONS)
        self._calls: dict[str, Any] = {}

    async def call(
        self, method: Method[Q, R], request: Q, seconds: float, metadata: Sequence[tuple[str, str]] = ()
    ) -> R:
        """One try. Raises what ``api.error_of`` makes of a failure."""
        call = self._calls.get(method.path)
        if call is None:
            reply: Any = method.reply
            call = self._calls[method.path] = self.channel.unary_unary(method.path, api.serialize, reply.FromString)
        try:
            answer: R = await call(request, timeout=seconds, metadata=tuple(metadata))
        except grpc.aio.AioRpcError as error:
            raise api.error_of(error, self.host) from None
        return answer

    def watch(self, metadata: Sequence[tuple[str, str]]) -> Any:
        call: Any = self.channel.stream_stream(api.WATCH, api.serialize, pb.WatchResponse.FromString)
        return call(metadata=tuple(metadata))


class EtcdLink:
    """One log's connection. Members may come and go; it connects again by itself for as long as it is open."""

    def __init__(self, hosts: tuple[str, ...], name: str, patience_seconds: float, security: Security = NONE) -> None:
        for host in hosts:
            require_protection(security, parse_netloc(host)[0], server=False)
        self.hosts = hosts
        self.security = security
        self.patience_seconds = patience_seconds
        self.where = f"etcd://{','.join(hosts)}/{name}"
        self.keys = Keys(name)
        self.log_id = ""
        self.closed = False
        credentials = channel_credentials(security)
        self.members = [EtcdMember(host, credentials) for host in hosts]
        self.first_asked = 0  # The place of the member to ask first.
        self._token: tuple[tuple[str, str], ...] = ()

    async def open(self) -> None:
        """Connect, refuse versions that lose data, and make the log if it is new."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self._open()
        except (TimeoutError, EtcdAway):
            raise LogUnavailable(f"no server of {self.where} answers; is the cluster up?") from None

    async def _open(self) -> None:
        await self._authenticate()
        pause = Pause(OPEN_SECONDS)
        with self._as_a_stranger():
            while not (found := await self.statuses()):
                await pause.sleep()
        for member, status in found:
            refuse_old(f"the etcd server {member.host}", status.version)
        await self.find_leader()
        known = await self.patiently(api.MEMBERS, pb.MemberListRequest())
        if len(known.members) > len(self.members):
            _log.warning(
                "%s names %d of the cluster's %d members: the others are not read from, not defragmented and not "
                "watched for their quota; name them all",
                self.where,
                len(self.members),
                len(known.members),
            )
        self.log_id = await self._identity()

    async def _identity(self) -> str:
        keys = self.keys
        with self._as_a_stranger():
            found = await self.patiently(api.RANGE, pb.RangeRequest(key=keys.meta))
        if not found.kvs:
            new = pb.Compare(target=pb.Compare.VERSION, key=keys.meta, version=0)
            made = [keys.put(keys.meta, encode_meta(uuid.uuid4().hex)), keys.put(keys.head, LogHead.make().stored)]
            try:
                await self.patiently(api.TXN, pb.TxnRequest(compare=[new], success=made))
            except api.EtcdNoRoom as error:
                raise LogFull(f"a log cannot be made in {self.where}: {error}; clean up the cluster first") from None
            # Two that make it at once, and we ourselves if our answer got lost, read what the first has made.
            found = await self.patiently(api.RANGE, pb.RangeRequest(key=keys.meta))
        return decode_meta(found.kvs[0].value, self.where)

    @contextlib.contextmanager
    def _as_a_stranger(self) -> Iterator[None]:
        """A call that a cluster with users may refuse first: in etcd 3.7 the status, before that the first read."""
        try:
            yield
        except LogUnavailable:
            raise
        except LogError as error:
            if self.security.user:
                raise
            raise EtcdNotAdmitted(f"{error}; give a user with --user and --password-file") from None

    async def head(self) -> tuple[LogHead, int]:
        """The head as a majority knows it, and the cluster's revision at that time."""
        reply = await self.patiently(api.RANGE, pb.RangeRequest(key=self.keys.head))
        if not reply.kvs:
            raise LogFormatError(f"{self.where} has lost its head; restore the cluster from a snapshot")
        return LogHead.decode(reply.kvs[0].value, self.where), reply.header.revision

    async def statuses(self) -> list[tuple[EtcdMember, pb.StatusResponse]]:
        """What the members that answer say of themselves."""

        async def ask(member: EtcdMember) -> tuple[EtcdMember, pb.StatusResponse] | None:
            try:
                return member, await member.call(api.STATUS, pb.StatusRequest(), STATUS_SECONDS, self._token)
            except TokenExpired:
                await self._authenticate()
            except EtcdAway:
                pass
            return None

        found = await asyncio.gather(*map(ask, self.members))
        return [one for one in found if one is not None]

    async def find_leader(self) -> None:
        """Ask the leader first from now on, if anybody knows it."""
        for member, status in await self.statuses():
            if status.leader and status.header.member_id == status.leader:
                self.first_asked = self.members.index(member)

    async def once(self, method: Method[Q, R], request: Q, seconds: float, member: EtcdMember | None = None) -> R:
        """One try, with one member; after a failure another one is asked first."""
        if self.closed:
            raise LogUnavailable(f"the log {self.where} is closed")
        asked = member or self.members[self.first_asked]
        try:
            return await asked.call(method, request, seconds, self.metadata)
        except TokenExpired:
            await self._authenticate()
            raise
        except EtcdAway:
            if asked is self.members[self.first_asked]:
                self.first_asked = (self.first_asked + 1) % len(self.members)
            raise

    async def patiently(self, method: Method[Q, R], request: Q) -> R:
        """Try until the cluster answers. For reads, and for writes that may get in twice."""
        pause, seconds = Pause(self.patience_seconds), CALL_SECONDS
        while True:
            try:
                return await self.once(method, request, seconds)
            except EtcdAway as error:
                seconds = min(CALL_SECONDS_MAX, seconds * 1.5)
                if not await pause.wait():
                    raise LogUnavailable(f"{self.where} does not answer: {error}") from None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (*api.NEEDS_LEADER, *self._token)

    async def _authenticate(self) -> None:
        """Get a token, if there is a user; tokens end, so this may happen again at any time."""
        if not self.security.user:
            return
        request = pb.AuthenticateRequest(name=self.security.user, password=self.security.password)
        trouble: EtcdAway | None = None
        for nth in range(len(self.members)):
            member = self.members[(self.first_asked + nth) % len(self.members)]
            try:
                token = (await member.call(api.AUTHENTICATE, request, CALL_SECONDS_MAX / 2)).token
            except EtcdAway as error:
                trouble = error
                continue
            except LogError as error:
                raise EtcdNotAdmitted(
                    f"{self.where} refused user {self.security.user!r}: {error}; check the user, the password file, "
                    "and that authentication is enabled"
                ) from None
            self._token = (("token", token),)
            return
        raise trouble or EtcdAway(f"no server of {self.where} answers")

    async def close(self) -> None:
        self.closed = True
        await asyncio.gather(*(member.channel.close(None) for member in self.members))
