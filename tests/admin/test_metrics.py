"""Metrics: what is exposed is declared, parses, and says what the status says."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from logplayer.admin.app import serve
from logplayer.admin.exposition import Samples, add_capture, add_player, exposition
from logplayer.admin.http_client import ask
from logplayer.admin.log_face import log_face
from logplayer.admin.target_face import target_face
from logplayer.capture.settings import STOP_REASONS
from logplayer.log.protocol import NewEntry
from logplayer.observe.instruments import BOUNDS, CaptureCounts, Delays, RecentDelays, percentiles
from logplayer.observe.metrics import METRICS, PROCESS, UNITS, MetricKind, series_of
from tests import ROOT
from tests.admin.test_deployed import alerts
from tests.admin.test_http import get, send
from tests.player.player_support import House, until

Scraped = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
async def house(tmp_path: Path) -> Any:
    async with House(tmp_path) as made:
        yield made


async def scrape(where: str) -> Scraped:
    """Every sample, as the client library's own parser reads it; each family is declared as we declare it."""
    said = (await send(where, get("/metrics"))).split(b"\r\n\r\n", 1)[1].decode()
    found: Scraped = {}
    for family in text_string_to_metric_families(said):
        if family.name.startswith("logplayer_"):
            spec = METRICS[family.name]
            assert (family.type, family.documentation) == (spec.kind.value, spec.help)
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
            if family.name.startswith("logplayer_"):
                assert sample.name in series_of(spec)
                assert set(sample.labels) - {"le"} == set(spec.labels)
            else:
                assert sample.name in PROCESS
    return found


def value(found: Scraped, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def test_every_metric_is_named_as_prometheus_wants() -> None:
    for spec in METRICS.values():
        assert spec.name.startswith("logplayer_")
        assert not spec.name.endswith(("_total", "_count", "_sum", "_bucket", "_created"))
        assert spec.help.endswith(".")
        if spec.kind is MetricKind.HISTOGRAM:
            assert spec.unit == "seconds"


def test_every_metric_names_its_unit_last() -> None:
    """And declares the one that its name says; a number of events, an index and a flag have none."""
    assert {spec.unit for spec in METRICS.values()} == {"", *UNITS}
    for spec in METRICS.values():
        said = next((unit for unit in UNITS if spec.name.endswith(f"_{unit}")), "")
        assert spec.unit == said, spec.name


def test_a_metric_that_is_not_declared_cannot_be_added() -> None:
    with pytest.raises(KeyError):
        Samples().add("logplayer_surprise", 1)


async def test_a_player_exposes_what_its_status_says(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    where = await player.answering()
    await house.delivered(await house.append(300))
    await until(lambda: player.shell.observed.counts.delivery.count > 0, "a delivery was timed")
    await until(lambda: len({queue.acked for queue in player.shell.core.queues.values()}) == 1, "idle targets moved on")
    status, found = await ask(where, "/status"), await scrape(where)
    assert value(found, "logplayer_player_current_index") == status["current"] == status["log_last"]
    assert value(found, "logplayer_player_dispatched_entries_total") >= 300
    assert value(found, "logplayer_player_delivery_seconds_count") > 0
    assert value(found, "logplayer_player_delivery_seconds_bucket", le="+Inf") == value(
        found, "logplayer_player_delivery_seconds_count"
    )
    for target in status["targets"]:
        assert value(found, "logplayer_target_index", target=target["target"]) == target["index"]
        assert value(found, "logplayer_target_state", target=target["target"], state="LIVE") == 1
        assert value(found, "logplayer_target_sessions_total", target=target["target"]) == 1
    assert value(found, "process_resident_memory_bytes") > 1e6


async def test_a_target_that_is_away_shows_in_the_metrics(house: House) -> None:
    [seat, _] = await house.targets("ab")
    player = await house.play()
    where = await player.answering()
    await house.delivered(await house.append(10))
    await seat.down()
    await until(lambda: player.state("a") == "SUSPENDED", "a is away")
    index = await house.append(10)
    await house.delivered(index, "b")
    found = await scrape(where)
    assert value(found, "logplayer_target_state", target="a", state="SUSPENDED") == 1
    assert value(found, "logplayer_target_lag_entries", target="a") > 0
    assert value(found, "logplayer_target_lost_sessions_total", target="a") >= 1
    assert math.isnan(value(found, "logplayer_target_catch_up_seconds", target="a"))


async def test_a_log_server_and_a_target_expose_their_own(house: House) -> None:
    [seat] = await house.targets("a")
    assert seat.server is not None
    assert house._log_server is not None
    servers = [serve(target_face(seat.server)), serve(log_face("file://x", house.file, house._log_server))]
    target_at, log_at = [await server.start("127.0.0.1:0") for server in servers]
    await house.play()
    client = await house.client()
    index = await house.append(50)
    await house.delivered(index)
    with pytest.raises(Exception, match="sequence"):
        await client.append([NewEntry("q", 7, b"")])
    found, status = await scrape(log_at), await ask(log_at, "/status")
    assert (status["kind"], status["last"]) == ("log", value(found, "logplayer_log_last_index"))
    assert value(found, "logplayer_log_refusals_total", error="SequenceGap") == 1
    assert value(found, "logplayer_log_commit_seconds_count") > 0
    assert value(found, "logplayer_log_append_seconds_count") > 0  # The player's takeover came over the wire.
    found, status = await scrape(target_at), await ask(target_at, "/status")
    assert (status["kind"], status["targets"][0]["index"]) == ("target", index)
    assert value(found, "logplayer_store_index", target="a") == index
    assert value(found, "logplayer_store_applied_entries_total", target="a") == 50
    assert value(found, "logplayer_store_connected", target="a") == 1
    assert value(found, "logplayer_store_sessions_total", target="a") == 1
    assert (await send(target_at, get("/readyz"))).startswith(b"HTTP/1.1 200")
    for server in servers:
        await server.stop()


async def test_what_an_alert_counts_is_there_before_it_happens(house: House) -> None:
    """increase() of a series that begins with its first event says 0, so the alert would miss it."""
    [seat] = await house.targets("a")
    assert seat.server is not None
    assert house._log_server is not None
    servers = [serve(target_face(seat.server)), serve(log_face("file://x", house.file, house._log_server))]
    player = await house.play()
    await until(lambda: player.state("a") == "LIVE", "a is live")
    found: Scraped = {}
    for where in (await player.answering(), *[await server.start("127.0.0.1:0") for server in servers]):
        found |= await scrape(where)
    counted = re.findall(r"increase\((\w+)(?:\{(\w+)(!?=)\"(\w+)\"\})?\[", " ".join(rule["expr"] for rule in alerts()))
    assert len(counted) >= 3
    for name, label, how, wanted in counted:
        series = [dict(labels) for series, labels in found if series == name]
        assert [one for one in series if not label or (one[label] == wanted) is (how == "=")], name
    assert value(found, "logplayer_target_refusals_total", target="a", reason="POISON") == 0
    assert value(found, "logplayer_target_lost_sessions_total", target="a") == 0
    assert value(found, "logplayer_store_refusals_total", target="a", reason="FENCED") == 0
    assert value(found, "logplayer_log_refusals_total", error="SequenceGap") == 0
    for server in servers:
        await server.stop()


def test_every_reason_of_a_stop_is_known() -> None:
    """The reasons are words in the calls; the list beside them must have them all."""
    source = " ".join(path.read_text() for path in (ROOT / "src/logplayer/capture").glob("*.py"))
    assert set(re.findall(r"CaptureStopped\(\s*\"(\w+)\"", source)) <= set(STOP_REASONS)
    samples = Samples()
    counts = CaptureCounts()
    add_capture(samples, {"slot": "s", **capture_status(counts)}, counts)
    text = exposition(samples).decode()
    for reason in STOP_REASONS:
        assert f'logplayer_capture_stops_total{{reason="{reason}",slot="s"}} 0.0' in text
    assert 'logplayer_capture_log_waits_total{error="LogUnavailable",slot="s"} 0.0' in text


def capture_status(counts: CaptureCounts) -> dict[str, Any]:
    names = ("transactions", "rows", "entries", "lag_bytes", "unanswered_bytes", "reconnects")
    return {**{name: getattr(counts, name) for name in names}, "lag_seconds": 0.0, "state": "x", "snapshot": []}


def test_spark_groups_are_exposed() -> None:
    from logplayer.player.start import Waiting

    status = Waiting("spark", "g", "grpc://x").status()
    status["groups"] = [
        {"group": 0, "worker": 'w "1"\n', "starts": 2, "seconds_since_heard": 0.5, "state": "playing"},
        {"group": 1, "worker": "w", "starts": 1, "seconds_since_heard": 9.0, "state": "silent"},
    ]
    samples = Samples()
    add_player(samples, status)
    families = {family.name: family for family in text_string_to_metric_families(exposition(samples).decode())}
    [heard, _] = families["logplayer_group_heard_seconds"].samples
    assert (heard.value, heard.labels) == (0.5, {"group": "0", "worker": 'w "1"\n'})
    assert families["logplayer_group_starts"].samples[0].value == 2
    assert [sample.value for sample in families["logplayer_group_playing"].samples] == [1, 0]


def test_a_histogram_counts_each_delay_once() -> None:
    delays = Delays()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1], 1e9):
        delays.note(seconds)
    assert (delays.count, delays.counts[0], delays.counts[1], delays.counts[-2], delays.counts[-1]) == (5, 2, 1, 1, 1)


def test_percentiles_are_those_of_the_last_window() -> None:
    assert percentiles([i / 1000 for i in range(1, 101)]) == (50.0, 90.0, 99.0)
    recent = RecentDelays()
    for _ in range(10_000):
        recent.note(0.005)
    recent.roll(1e9)
    assert recent.recent == (5.0, 5.0, 5.0)
    recent.roll(2e9)
    assert recent.recent == (0.0, 0.0, 0.0)


async def test_a_store_that_does_not_answer_is_not_ready(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    from logplayer.admin import target_face as module

    [seat] = await house.targets("a")
    assert seat.server is not None
    server = serve(target_face(seat.server))
    where = await server.start("127.0.0.1:0")
    busy = asyncio.Event()
    host = seat.server.hosts["a"]
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    gate = threading.Event()
    host._thread.submit(lambda: (loop.call_soon_threadsafe(busy.set), gate.wait(60)))
    await busy.wait()
    said = await send(where, get("/readyz"))
    gate.set()
    assert said.startswith(b"HTTP/1.1 503")
    assert b"the store of a does not answer" in said
    assert (await send(where, get("/healthz"))).startswith(b"HTTP/1.1 200")
    await server.stop()
