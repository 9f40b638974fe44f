"""The connection to a NATS cluster and the two streams of one replicated log.

logplayer-NAME       the entries: one message each, so that an entry's index is its position in the stream
logplayer-NAME-map   (producer, sequence) -> index and mark, a block of it every few thousand entries, for ever
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo

from logplayer.errors import LogError, LogFormatError, LogFull, LogUnavailable
from logplayer.log.nats.admission import connect_options, not_admitted
from logplayer.log.nats.local_cluster import JETSTREAM, lazy_message, monitor, syncs_always
from logplayer.wire.addresses import parse_netloc
from logplayer.wire.security import NONE, Security, require_protection

FORMAT_VERSION = 3  # Since 2 the map has the entries' marks, since 3 entries have chain values.
REPLICAS = 3
API_SECONDS = 3.0
CONNECT_SECONDS = 8.0
ONE_SERVER_SECONDS = 2.0
PENDING_BYTES = 32 * 1024 * 1024
ID_KEY, VERSION_KEY = "logplayer-id", "logplayer-version"
T = TypeVar("T")
_STORED_HEADERS = (b"NATS/1.0\r\nNats-Expected-", b"NATS/1.0\r\nNats-Batch-")
_log = logging.getLogger(__name__)

TROUBLE = (nats.errors.Error, nats.js.errors.ServiceUnavailableError, OSError, asyncio.TimeoutError)
"""What a cluster in the middle of an election, or a lost connection, looks like: try again."""


class LeanClient(Client):
    """Leaves the headers of our own stored entries undecoded: a third of a reader's time, for what it does not need.

    Should the client library rename this method, everything goes on, only slower.
    """

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        if headers and headers.startswith(_STORED_HEADERS):
            return None
        return await super()._process_headers(headers)


class Unsynced(LogFormatError):
    """A server would lose what it acknowledged."""


class NatsLink:
    """One log's connection. Servers may come and go; it connects again by itself for as long as it is open."""

    def __init__(self, hosts: tuple[str, ...], name: str, patience_seconds: float, security: Security = NONE) -> None:
        for host in hosts:
            require_protection(security, parse_netloc(host)[0], server=False)
        self._admission = connect_options(security)
        self.hosts = hosts
        self.name = name
        self.patience_seconds = patience_seconds
        self.stream = f"logplayer-{name}"
        self.map_stream = f"logplayer-{name}-map"
        self.data_subject = f"logplayer.{name}.data"
        self.control_subject = f"logplayer.{name}.control"
        self.all_subjects = f"logplayer.{name}.*"
        self.map_subject = f"logplayer-map.{name}"
        self.where = f"nats://{','.join(hosts)}/{name}"
        self.log_id = ""
        self.sync_known = True
        self.nc: Client = LeanClient()
        self.js: Any = None

    async def open(self) -> None:
        """Connect, refuse servers that sync lazily, and make the streams if the log is new."""
        there = [host for host in self.hosts if await _reachable(host)]
        if not there:
            raise LogUnavailable(f"no server of {self.where} can be reached; is the cluster up?")
        await self._require_admission(there)
        try:
            connecting = self.nc.connect(
                servers=[f"nats://{host}" for host in self.hosts],
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,  # type: ignore[arg-type]
                connect_timeout=2,
                ping_interval=5,
                pending_size=PENDING_BYTES,
                error_cb=quiet,
                **self._admission,
            )
            await asyncio.wait_for(connecting, CONNECT_SECONDS)
        except (nats.errors.Error, OSError):
            raise LogUnavailable(f"no server of {self.where} can be reached; is the cluster up?") from None
        self.js = self.nc.jetstream(timeout=API_SECONDS)
        await self._require_sync()
        info = await self.patiently(self._make_streams)
        metadata = info.config.metadata or {}
        if VERSION_KEY not in metadata:
            raise LogFormatError(f"stream {self.stream} at {self.where} is not a log of ours; choose another name")
        version = int(metadata[VERSION_KEY])
        if version != FORMAT_VERSION:
            what = "upgrade it" if version > FORMAT_VERSION else "choose another name"
            raise LogFormatError(f"{self.where} has format {version}; this program knows {FORMAT_VERSION}: {what}")
        self.log_id = metadata[ID_KEY]

    async def _require_admission(self, hosts: list[str]) -> None:
        """The connection that is made for good would try again and again, and not say that it was refused."""
        refused: nats.errors.Error | None = None
        for host in hosts:
            try:
                await (await self.connect_to(host)).close()
                return
            except (nats.errors.AuthorizationError, ssl.SSLError) as error:
                raise not_admitted(self.where, error) from None
            except nats.errors.Error as error:
                # The bare class is a server's own "no". TLS and signatures that fail have others, without the reason.
                if self._admission or type(error) is nats.errors.Error:
                    refused = error
            except TROUBLE:
                pass  # It went away in this moment; the others are tried.
        if refused is not None:
            raise not_admitted(self.where, refused)

    async def connect_to(self, host: str) -> Client:
        """A connection to this one server, or an error within seconds: the library itself would try for minutes."""
        if not await _reachable(host):
            raise ConnectionError(f"nobody listens at {host}")
        connection = Client()
        server = [f"nats://{host}"]
        async with asyncio.timeout(ONE_SERVER_SECONDS):
            await connection.connect(
                servers=server, allow_reconnect=False, connect_timeout=1, error_cb=quiet, **self._admission
            )
        return connection

    async def _require_sync(self) -> None:
        """Ask every server's monitor. A monitor that cannot be reached leaves it unknown, and that is said."""
        for host in self.hosts:
            name, _, port = host.rpartition(":")
            facts = await asyncio.to_thread(monitor, name, int(port), JETSTREAM)
            syncs = syncs_always(facts) if facts else None
            if syncs is False:
                raise Unsynced(lazy_message(f"the NATS server {host}", "its configuration"))
            if syncs is None:
                self.sync_known = False
                _log.warning(
                    "%s: the monitor of %s (client port + 4000) does not answer, so it is not known whether this "
                    "server syncs before it answers; make sure of `sync_interval: always`",
                    self.where,
                    host,
                )

    async def _make_streams(self) -> StreamInfo:
        try:
            info: StreamInfo = await self.js.stream_info(self.stream)
            await self.js.stream_info(self.map_stream)
            return info
        except nats.js.errors.NotFoundError:
            pass
        metadata = {ID_KEY: uuid.uuid4().hex, VERSION_KEY: str(FORMAT_VERSION)}
        for stream, subjects in ((self.map_stream, [self.map_subject]), (self.stream, [self.all_subjects])):
            try:
                await self.js.add_stream(self._config(stream, subjects, metadata))
            except nats.js.errors.BadRequestError as error:
                if error.err_code != 10058:  # In use: somebody else made it in this moment.
                    raise LogUnavailable(f"{self.where} cannot make stream {stream}: {error.description}") from None
            except nats.js.errors.APIError as error:
                if error.err_code == 10074:
                    raise LogUnavailable(f"{self.where} is not a cluster of {REPLICAS}: {error.description}") from None
                raise
        made: StreamInfo = await self.js.stream_info(self.stream)
        return made

    @staticmethod
    def _config(stream: str, subjects: list[str], metadata: dict[str, str]) -> StreamConfig:
        return StreamConfig(
            name=stream,
            subjects=subjects,
            num_replicas=REPLICAS,
            storage=StorageType.FILE,
            retention=RetentionPolicy.LIMITS,
            discard=DiscardPolicy.NEW,
            allow_direct=True,
            deny_delete=True,
            allow_atomic=True,
            metadata=metadata,
        )

    async def info(self) -> StreamInfo:
        """The stream's state, from its leader."""
        found: StreamInfo = await self.patiently(lambda: self.js.stream_info(self.stream))
        return found

    async def patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Try until the cluster answers; an election takes some seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.patience_seconds
        while True:
            try:
                return await call()
            except nats.js.errors.NotFoundError:
                raise
            except TROUBLE as error:
                if self.nc.is_closed:
                    raise LogUnavailable(f"the connection to {self.where} is closed") from None
                if loop.time() >= deadline:
                    raise LogUnavailable(f"{self.where} does not answer ({error or type(error).__name__})") from None
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        if self.js is not None:  # The library cannot close what it never connected.
            await self.nc.close()


async def _reachable(host: str) -> bool:
    """Whether anybody listens: the client library would go on trying for ever."""
    name, _, port = host.rpartition(":")
    try:
        connecting = asyncio.open_connection(name.strip("[]"), int(port))
        _, writer = await asyncio.wait_for(connecting, ONE_SERVER_SECONDS)
    except OSError:
        return False
    writer.close()
    return True


async def quiet(error: Exception) -> None:
    """Lost connections are expected and handled; the client's own report of them is noise."""
    _log.debug("nats: %r", error)


def error_of(reply: dict[str, Any], where: str) -> LogError | None:
    """The error in a publish acknowledgement that no retry would mend; None for one that a retry may."""
    found = reply.get("error") or {}
    if found.get("err_code") in (10077, 10047, 10023, 10028, 10054):
        text = f"{where} has no room ({found.get('description')}); trim the log or raise the limit, then append again"
        return LogFull(text)
    return None


def decode_json(data: bytes) -> dict[str, Any]:
    """A server's JSON reply."""
    value = json.loads(data) if data else {}
    return value if isinstance(value, dict) else {}
