"""One trace through real processes: a program, the log server, the player and two targets."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logplayer.demo.processes import Family
from logplayer.demo.world import World

SDK = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

spans = open(os.path.join(os.environ["SPANS"], str(os.getpid())), "a")
exporter = ConsoleSpanExporter(out=spans, formatter=lambda span: span.to_json(indent=None) + chr(10))
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
"""
PROGRAM = """
import sys
import logplayer as lp
from opentelemetry import trace

with lp.sync.open_log(sys.argv[1]) as log, trace.get_tracer("app").start_as_current_span("order"):
    print(log.producer("web").append(*(lp.put(f"k{number}", "v") for number in range(30))).index)
"""


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, "not every process has added its span"
        time.sleep(0.05)


def spans_of(folder: Path) -> list[dict[str, Any]]:
    """What every process has written, with its process id."""
    found = []
    for path in folder.iterdir():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # Else it is being written.
                found.append({**json.loads(line), "pid": path.name})
    return found


def test_every_process_adds_its_span_to_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = tmp_path / "spans"
    for folder in (spans, tmp_path / "sdk", tmp_path / "world"):
        folder.mkdir()
    (tmp_path / "sdk" / "sitecustomize.py").write_text(SDK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "sdk"))
    monkeypatch.setenv("SPANS", str(spans))
    with Family(tmp_path / "world") as family:
        world = World(family, "in-process")
        world.start_log("file")
        world.start_shards(2)
        targets = [word for name, at in world.addresses.items() for word in ("--target", f"{name}={at}")]
        player = family.add("player", "play", "--in-process", "--log", world.log, *targets, "--json")
        player.wait_for(r'"event": "playing"')
        command = [sys.executable, "-c", PROGRAM, world.log]
        index = int(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)
        until(lambda: len(spans_of(spans)) >= 6)
    [order] = [span for span in spans_of(spans) if span["name"] == "order"]
    found = [span for span in spans_of(spans) if span["name"] != "order"]
    names = [span["name"].removeprefix("logplayer ") for span in found]
    assert sorted(names) == ["append", "apply", "apply", "commit", "dispatch"]
    assert {span["context"]["trace_id"] for span in found} == {order["context"]["trace_id"]}
    [append] = [span for span in found if span["name"] == "logplayer append"]
    assert append["parent_id"] == order["context"]["span_id"]
    assert {span["parent_id"] for span in found if span is not append} == {append["context"]["span_id"]}
    assert {span["attributes"]["index"] for span in found} == {index}
    assert len({span["pid"] for span in found}) == 5, "one process each"
