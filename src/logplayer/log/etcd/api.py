"""The calls of etcd that the log uses, and what their failures mean."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import grpc

from logplayer.errors import LogError, LogUnavailable, UserError
from logplayer.log.etcd import etcd_pb2 as pb

Q = TypeVar("Q")
R = TypeVar("R")


class Method(NamedTuple, Generic[Q, R]):
    """One unary call: its path, and the kind of its reply."""

    path: str
    reply: type[R]


RANGE: Method[pb.RangeRequest, pb.RangeResponse] = Method("/etcdserverpb.KV/Range", pb.RangeResponse)
TXN: Method[pb.TxnRequest, pb.TxnResponse] = Method("/etcdserverpb.KV/Txn", pb.TxnResponse)
COMPACT: Method[pb.CompactionRequest, pb.CompactionResponse] = Method("/etcdserverpb.KV/Compact", pb.CompactionResponse)
STATUS: Method[pb.StatusRequest, pb.StatusResponse] = Method("/etcdserverpb.Maintenance/Status", pb.StatusResponse)
DEFRAGMENT: Method[pb.DefragmentRequest, pb.DefragmentResponse] = Method(
    "/etcdserverpb.Maintenance/Defragment", pb.DefragmentResponse
)
ALARM: Method[pb.AlarmRequest, pb.AlarmResponse] = Method("/etcdserverpb.Maintenance/Alarm", pb.AlarmResponse)
AUTHENTICATE: Method[pb.AuthenticateRequest, pb.AuthenticateResponse] = Method(
    "/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse
)
MEMBERS: Method[pb.MemberListRequest, pb.MemberListResponse] = Method(
    "/etcdserverpb.Cluster/MemberList", pb.MemberListResponse
)
WATCH = "/etcdserverpb.Watch/Watch"

NEEDS_LEADER = (("hasleader", "true"),)
"""A member that knows no leader says so at once, instead of waiting for one."""
DENIED = "auth: permission denied"
"""Maintenance calls of etcd 3.4 say it by this text alone. Their code is UNKNOWN, which an expired token and a disk
error get there as well, and to those the answer is another. The product decides by this wording and the next only."""
OLD_TOKEN = "etcdserver: revision of auth store is old"
"""A signed token (``--auth-token jwt``) was made before users or roles changed. The code is INVALID_ARGUMENT, which
wrong requests get as well."""
_AWAY = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.ABORTED,
)


class EtcdAway(LogUnavailable):
    """A member does not answer, or the cluster elects a leader: whether a write got in is not known."""


class EtcdNoRoom(LogError):
    """A member refused a write because of its quota, or because the request is too large for it."""


class EtcdNotAdmitted(LogError, UserError):
    """The cluster wants a user, another password, or another certificate."""


class TokenExpired(EtcdAway):
    """The cluster asks who we are again."""


def error_of(error: grpc.aio.AioRpcError, where: str) -> LogError:
    """What a failed call means to the log."""
    code, details = error.code(), error.details() or "no details"
    if code is grpc.StatusCode.UNKNOWN and details == DENIED:
        code = grpc.StatusCode.PERMISSION_DENIED
    if code is grpc.StatusCode.INVALID_ARGUMENT and details == OLD_TOKEN:
        code = grpc.StatusCode.UNAUTHENTICATED
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return TokenExpired(f"the etcd server {where} does not know our token any more ({details})")
    if code in _AWAY:
        return EtcdAway(f"the etcd server {where} does not answer ({details})")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return EtcdNoRoom(f"the etcd server {where} has no room ({details})")
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return EtcdNotAdmitted(
            f"the etcd server {where} refused us: {details}; give the user a role that may read and write "
            "the keys below 'logplayer/'"
        )
    return LogError(f"the etcd server {where} failed: {code.name} {details}")


def serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
