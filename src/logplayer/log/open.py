"""A log is named by an address, so that every command and every option takes any kind of log.

file:///var/lib/shop/wal            a directory on this machine
grpc://host:7100                    a log server
grpc://host:7100,host:7100          two log servers of one replicated log: the second when the first is away
nats://host:4222,host:4222/shop     the replicated log "shop" on a NATS cluster
etcd://host:2379,host:2379/shop     the replicated log "shop" in an etcd cluster
kafka://host:9092,host:9092/shop    the topic "shop" of a Kafka cluster
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from typing import NamedTuple
from urllib.parse import unquote

from logplayer.errors import AddressError
from logplayer.log.protocol import Log
from logplayer.wire.addresses import parse_netloc
from logplayer.wire.security import NONE, Security, require_protection

EXAMPLES = {
    "file": "file:///var/lib/wal",
    "grpc": "grpc://host:7100",
    "nats": "nats://host:4222,host:4222,host:4222/name",
    "etcd": "etcd://host:2379,host:2379,host:2379/name",
    "kafka": "kafka://host:9092,host:9092,host:9092/topic",
}
_MEANT = {"tcp": "grpc", "http": "grpc", "https": "grpc"}  # A target's transport, and other words for a server.
_PORTS = {"nats": 4222, "etcd": 2379, "kafka": 9092}
_HOST = re.compile(r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})$")
_NAME = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


class LogAddress(NamedTuple):
    """A parsed address: ``path`` for file, ``hosts`` for all others, ``name`` for nats, etcd and kafka."""

    scheme: str
    path: str = ""
    hosts: tuple[str, ...] = ()
    name: str = ""


class LogPlace(NamedTuple):
    """Where a log is, and how it is reached: all that a task on another machine needs to open it."""

    address: str
    security: Security = NONE


def parse(address: str) -> LogAddress:
    """Understand an address or say what to write instead."""
    scheme, found, rest = address.partition("://")
    if not found:
        hint = f"file://{address}" if address.startswith("/") else EXAMPLES["file"]
        raise AddressError(f"log address {address!r} has no scheme; write for example {hint}")
    if scheme == "file":
        if not rest.startswith("/") or rest == "/":
            raise AddressError(
                f"log address {address!r} needs an absolute path after three slashes, as in {EXAMPLES['file']}"
            )
        return LogAddress("file", path=unquote(rest))
    if scheme == "grpc":
        return LogAddress("grpc", hosts=tuple(_host(address, host, "grpc") for host in rest.rstrip("/").split(",")))
    if scheme in _PORTS:
        hosts, _, name = rest.partition("/")
        if not _NAME.match(name):
            raise AddressError(
                f"log address {address!r} must end with the log's name (letters, digits, - and _), "
                f"as in {EXAMPLES[scheme]}"
            )
        return LogAddress(scheme, hosts=tuple(_host(address, host, scheme) for host in hosts.split(",")), name=name)
    near = difflib.get_close_matches(_MEANT.get(scheme, scheme), EXAMPLES, n=1, cutoff=0.5)
    known = f"did you mean {near[0]}://, as in {EXAMPLES[near[0]]}?" if near else f"use one of {', '.join(EXAMPLES)}"
    raise AddressError(f"log address {address!r} has the unknown scheme {scheme!r}; {known}")


def _host(address: str, host: str, scheme: str) -> str:
    match = _HOST.match(host if ":" in host or scheme not in _PORTS else f"{host}:{_PORTS[scheme]}")
    if not match or not 0 < int(match[2]) < 65536:
        raise AddressError(f"log address {address!r} needs host:port, not {host!r}, as in {EXAMPLES[scheme]}")
    return match[0]


def check_protection(address: str, security: Security) -> None:
    """Raise what :func:`open_log` would raise if a server were to be reached in plain text beyond loopback."""
    parsed = parse(address)
    if parsed.scheme in ("grpc", "etcd", "nats"):
        for host in parsed.hosts:
            require_protection(security, parse_netloc(host)[0], server=False)


async def open_log(
    address: str,
    security: Security = NONE,
    *,
    readonly: bool = False,
    segment_bytes: int | None = None,
    open_seconds: float | None = None,
) -> Log:
    """Open the log at ``address``. For a file log, ``readonly`` takes no lock and makes nothing.

    ``security`` protects the connection to a log server, an etcd or a NATS cluster; without it that is plain text,
    which only loopback allows. A log server that is not there is waited for, ``open_seconds`` at most.
    """
    parsed = parse(address)
    if parsed.scheme == "file":
        from logplayer.log.file.log import FileLog
        from logplayer.log.file.writer import SEGMENT_BYTES

        return await FileLog.open(parsed.path, readonly=readonly, segment_bytes=segment_bytes or SEGMENT_BYTES)
    if parsed.scheme == "grpc":
        from logplayer.log.client import OPEN_SECONDS, LogClient

        patience = OPEN_SECONDS if open_seconds is None else open_seconds
        return await LogClient.open(parsed.hosts, security=security, open_seconds=patience)
    if parsed.scheme == "etcd":
        from logplayer.log.etcd.log import EtcdLog

        return await EtcdLog.open(parsed.hosts, parsed.name, security=security)
    if parsed.scheme == "kafka":
        _require("confluent_kafka", "Kafka", "kafka", address)
        from logplayer.log.kafka.log import KafkaLog

        return await KafkaLog.open(parsed.hosts, parsed.name)
    _require("nats", "NATS", "nats", address)
    from logplayer.log.nats.log import NatsLog

    return await NatsLog.open(parsed.hosts, parsed.name, security=security)


def _require(module: str, system: str, extra: str, address: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise AddressError(
            f"log address {address!r} needs the {system} client; install it with: pip install 'logplayer[{extra}]'"
        )
