"""What the documentation says is streamed is not held: the memory for a batch does not grow with the batch."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from logplayer.log.open import LogPlace
from logplayer.log.protocol import NewEntry
from logplayer.spark import event_loop
from logplayer.spark.sinks import log as log_sink
from logplayer.spark.sinks.parts import messages_of, stage_parts
from logplayer.spark.sinks.rows import PAYLOADS
from logplayer.spark.sinks.staging import Intent, Staging
from logplayer.wire.security import NONE

BATCHES, ROWS, BYTES = 64, 500, 1000  # 32 MB in all.
HELD_BYTES_MAX = 8 << 20  # Groups on their way, and the batch that is being read.


class Nothing:
    """A log that keeps nothing of what it is given."""

    def __init__(self) -> None:
        self.count = 0

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        self.count += len(entries)
        return list(range(len(entries)))


@contextmanager
def bounded() -> Iterator[None]:
    """Fails if Python or Arrow held more than the bound at any moment."""
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    tracemalloc.start()
    pa.set_memory_pool(pool)
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < HELD_BYTES_MAX
        assert pool.max_memory() < HELD_BYTES_MAX
    finally:
        pa.set_memory_pool(before)
        tracemalloc.stop()


def test_the_log_sink_appends_rows_while_it_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Nothing()

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[Any]:
        yield log

    monkeypatch.setattr(event_loop, "opened", opened)
    staging = Staging(str(tmp_path))
    batches = (pa.record_batch([pa.array([bytes(BYTES)] * ROWS, pa.binary())], PAYLOADS) for _ in range(BATCHES))
    staged = staging.write(0, batches, PAYLOADS)
    intent = Intent(0, (staged.file,), staged.rows, {"producer": "p", "sequence": 0})
    with bounded():
        log_sink.append_all(LogPlace("grpc://127.0.0.1:1", NONE), staging, intent)
    assert log.count == BATCHES * ROWS


def test_a_targets_deliveries_are_read_while_they_are_sent(tmp_path: Path) -> None:
    """Also where the parts of several tasks must be merged."""
    folder = Staging(str(tmp_path)).folder
    parts = []
    for task in range(2):
        indexes = range(task + 1, BATCHES * ROWS + 1, 2)
        batches = (
            pa.record_batch(
                {
                    "target": ["a"] * (ROWS // 2),
                    "log_index": list(indexes[at : at + ROWS // 2]),
                    "payload": [bytes(BYTES)] * (ROWS // 2),
                }
            )
            for at in range(0, len(indexes), ROWS // 2)
        )
        parts += stage_parts(folder, task, cast("Iterator[pa.RecordBatch]", batches)).parts
    with bounded():
        last = 0
        for message in messages_of(folder, "a", parts):
            assert message.index == last + 1
            last = message.index
    assert last == BATCHES * ROWS
