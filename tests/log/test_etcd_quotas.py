"""The quota of a member, which changes when the member is started again, and which it may fail to tell."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd import quotas
from logplayer.log.etcd.link import EtcdMember
from logplayer.log.etcd.log import EtcdLog
from logplayer.log.etcd.quotas import DEFAULT_QUOTA, EtcdQuotas
from logplayer.testing.conformance.logs import in_time
from logplayer.wire.security import NONE
from tests.log.etcd_servers import one_etcd
from tests.log.test_etcd_full import append_soon, fill_up


class Metrics(ThreadingHTTPServer):
    """Tells the quota, or fails."""

    quota: int | None = 1000
    asked = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Metrics

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(200 if self.server.quota else 503)
        self.end_headers()
        self.wfile.write(f"etcd_server_quota_backend_bytes {self.server.quota}\n".encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    with Metrics() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


Found = list[tuple[EtcdMember, pb.StatusResponse]]


@pytest.fixture
async def found(metrics: Metrics) -> Found:
    return [(EtcdMember(metrics.host, None), pb.StatusResponse())]


async def test_a_quota_is_asked_now_and_then(metrics: Metrics, found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    known = EtcdQuotas(NONE)
    for _ in range(3):
        assert await known.of(found) == [1000]
    assert metrics.asked == 1
    monkeypatch.setattr(quotas, "KNOWN_SECONDS", 0.0)
    known.forget()
    metrics.quota = 2000
    assert await known.of(found) == [2000]
    metrics.quota = 3000
    assert await known.of(found) == [3000]


async def test_a_member_that_was_away_is_asked_again(metrics: Metrics, found: Found) -> None:
    known = EtcdQuotas(NONE)
    assert await known.of(found) == [1000]
    metrics.quota = 2000
    assert await known.of(found) == [1000]
    assert await known.of([]) == []
    assert await known.of(found) == [2000]


async def test_a_failure_is_not_kept(
    metrics: Metrics, found: Found, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was known before counts, etcd's default if nothing was; it is said once."""
    caplog.set_level(logging.WARNING, "logplayer")
    known, metrics.quota = EtcdQuotas(NONE), None
    assert await known.of(found) == [DEFAULT_QUOTA]
    assert await known.of(found) == [DEFAULT_QUOTA]
    assert metrics.asked == 1
    monkeypatch.setattr(quotas, "FAILED_SECONDS", 0.0)
    known.forget()
    assert await known.of(found) == [DEFAULT_QUOTA]
    assert len(caplog.records) == 1
    metrics.quota = 1000
    assert await known.of(found) == [1000]
    metrics.quota = None
    known.forget()
    assert await known.of(found) == [1000]
    assert "1000 bytes are assumed" in caplog.records[-1].getMessage()


async def test_a_full_log_goes_on_with_a_larger_quota(tmp_path: Path) -> None:
    """The server is started again under an open log, which nobody trims."""
    with one_etcd(tmp_path, quota_backend_bytes=str(16 * 1024**2)) as port:
        log = await in_time(EtcdLog.open([f"127.0.0.1:{port}"], "full"))
        last = await fill_up(log)
    urls = dict.fromkeys(("listen_client_urls", "advertise_client_urls"), f"http://127.0.0.1:{port}")
    with one_etcd(tmp_path, quota_backend_bytes=str(64 * 1024**2), **urls):
        await append_soon(log, last)
        await log.close()
