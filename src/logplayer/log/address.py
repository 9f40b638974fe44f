"""A log is named by an address, so that every command and every option takes any kind of log.

file:///var/lib/shop/wal            a directory on this machine
grpc://host:7100                    a log server
nats://host:4222,host:4222/shop     the replicated log "shop" on a NATS cluster
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
from logplayer.wire.security import Security, from_environment

EXAMPLES = {
    "file": "file:///var/lib/wal",
    "grpc": "grpc://host:7100",
    "nats": "nats://host:4222,host:4222,host:4222/name",
    "kafka": "kafka://host:9092,host:9092,host:9092/topic",
}
_PORTS = {"nats": 4222, "kafka": 9092}
_HOST = re.compile(r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})$")
_NAME = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


class Address(NamedTuple):
    """A parsed address: ``path`` for file, ``hosts`` for all others, ``name`` for nats and kafka."""

    scheme: str
    path: str = ""
    hosts: tuple[str, ...] = ()
    name: str = ""


def parse(address: str) -> Address:
    """Understand an address or say what to write instead."""
    scheme, found, rest = address.partition("://")
    if not found:
        hint = f"file://{address}" if address.startswith("/") else EXAMPLES["file"]
        raise AddressError(f"log address {address!r} has no scheme; write for example {hint}")
    if scheme == "file":
        if not rest.startswith("/") or rest == "/":
            raise AddressError(
                f"log address {address!r} needs an absolute path behind three slashes, as in {EXAMPLES['file']}"
            )
        return Address("file", path=unquote(rest))
    if scheme == "grpc":
        return Address("grpc", hosts=(_host(address, rest.rstrip("/"), "grpc"),))
    if scheme in _PORTS:
        hosts, _, name = rest.partition("/")
        if not _NAME.match(name):
            raise AddressError(
                f"log address {address!r} must end with the log's name (letters, digits, - and _), "
                f"as in {EXAMPLES[scheme]}"
            )
        return Address(scheme, hosts=tuple(_host(address, host, scheme) for host in hosts.split(",")), name=name)
    near = difflib.get_close_matches(scheme, EXAMPLES, n=1, cutoff=0.5)
    known = f"did you mean {near[0]}://, as in {EXAMPLES[near[0]]}?" if near else f"use one of {', '.join(EXAMPLES)}"
    raise AddressError(f"log address {address!r} has the unknown scheme {scheme!r}; {known}")


def _host(address: str, host: str, scheme: str) -> str:
    match = _HOST.match(host if ":" in host or scheme not in _PORTS else f"{host}:{_PORTS[scheme]}")
    if not match or not 0 < int(match[2]) < 65536:
        raise AddressError(f"log address {address!r} needs host:port, not {host!r}, as in {EXAMPLES[scheme]}")
    return match[0]


async def open_log(
    address: str, *, readonly: bool = False, segment_bytes: int | None = None, security: Security | None = None
) -> Log:
    """Open the log at ``address``. For a file log, ``readonly`` takes no lock and makes nothing.

    Without ``security`` the connection to a log server is protected as the environment says.
    """
    parsed = parse(address)
    if parsed.scheme == "file":
        from logplayer.log.file import FileLog
        from logplayer.log.writer import SEGMENT_BYTES

        return await FileLog.open(parsed.path, readonly=readonly, segment_bytes=segment_bytes or SEGMENT_BYTES)
    if parsed.scheme == "grpc":
        from logplayer.log.client import LogClient

        return await LogClient.open(parsed.hosts[0], security=security or from_environment())
    if parsed.scheme == "kafka":
        _require("confluent_kafka", "Kafka", "kafka", address)
        from logplayer.log.kafka_log import KafkaLog

        return await KafkaLog.open(parsed.hosts, parsed.name)
    _require("nats", "NATS", "nats", address)
    from logplayer.log.nats_log import NatsLog

    return await NatsLog.open(parsed.hosts, parsed.name)


def _require(module: str, system: str, extra: str, address: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise AddressError(
            f"log address {address!r} needs the {system} client; install it with: pip install 'logplayer[{extra}]'"
        )
