"""Traces: one from the append to every shard, found again by what the entry itself carries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from logplayer.core.entry import Quarantined
from logplayer.log.mutations import put
from logplayer.log.producer import Producer
from logplayer.log.protocol import NewEntry
from logplayer.observe import tracing
from logplayer.wire.entries import encode_control, encode_headers
from tests.player.player_support import House, until

EXPORTER = InMemorySpanExporter()
CONTEXT = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with House(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one test. What OpenTelemetry offers is for good, and every later test of this process would be traced."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(EXPORTER))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made)
    EXPORTER.clear()


async def test_one_trace_from_the_append_to_every_shard(house: House) -> None:
    await house.targets("abc")
    await house.play()
    producer = await Producer.open(house.log, "web")
    with trace.get_tracer("app").start_as_current_span("order") as order:
        keys = [put(f"k{number}", "v") for number in range(30)]  # On every shard.
        receipt = await producer.append(*keys)
    await house.delivered(receipt.index)
    names = ["logplayer append", "logplayer apply", "logplayer apply", "logplayer apply", "logplayer commit"]
    names.append("logplayer dispatch")
    await until(lambda: len(EXPORTER.get_finished_spans()) >= len(names) + 1, "every part has added its span")
    spans = [span for span in EXPORTER.get_finished_spans() if span.name != "order"]
    assert sorted(span.name for span in spans) == names
    assert {span.context.trace_id for span in spans if span.context} == {order.get_span_context().trace_id}
    [append] = [span for span in spans if span.name == "logplayer append"]
    assert append.parent is not None
    assert append.parent.span_id == order.get_span_context().span_id
    assert append.context is not None
    below = [span for span in spans if span is not append]
    assert {span.parent.span_id for span in below if span.parent} == {append.context.span_id}
    assert {span.attributes["index"] for span in spans if span.attributes} == {receipt.index}
    applied = [span for span in spans if span.name == "logplayer apply"]
    assert sorted(str(span.attributes["target"]) for span in applied if span.attributes) == ["a", "b", "c"]
    for span in spans:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


async def test_an_entry_without_a_context_is_not_traced(house: House) -> None:
    await house.targets("a")
    await house.play()
    await house.delivered(await house.append(20))
    assert EXPORTER.get_finished_spans() == ()


@pytest.mark.parametrize("value", ["", "nonsense", "00-" + "1" * 32 + "-" + "2" * 16 + "-00", "00-zz-01", "\udcff-01"])
def test_a_context_that_is_odd_or_not_sampled_costs_nothing(value: str) -> None:
    raw = value.encode("utf-8", "surrogateescape")
    payload = put("k", "v").encoded + encode_headers({"traceparent": raw})
    tracing.note("apply", payload, 1)
    assert all(span.parent is None for span in EXPORTER.get_finished_spans())


@pytest.mark.parametrize(
    "payload",
    [
        b"traceparent",
        encode_control(Quarantined("b", 4, "no traceparent")),
        put("k", "v").encoded + encode_headers({"traceparent": CONTEXT})[:-1],
    ],
    ids=["raw", "control", "cut"],
)
def test_what_has_the_word_and_is_no_transaction_is_not_traced(payload: bytes) -> None:
    tracing.note("dispatch", payload, 1)
    assert EXPORTER.get_finished_spans() == ()


async def test_no_entry_ends_a_player_that_is_traced(house: House) -> None:
    """What no target can read, too: it reaches nobody, and the entries after it go on."""
    await house.targets("ab")
    player = await house.play()
    client = await house.client()
    await client.append([NewEntry("q", 1, b"traceparent")])  # Through the log server, which traces its commits.
    after = await house.append(5)
    await until(lambda: player.task.done() or all(seat.index >= after for seat in house.seats.values()), "it went on")
    assert not player.task.done()


def test_without_an_sdk_nothing_is_imported(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, logplayer as lp\n"
        "async def main():\n"
        "    async with lp.open_log('file://' + sys.argv[1]) as log:\n"
        "        producer = await log.producer('p')\n"
        "        await producer.append(lp.put('a', 'b'))\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
