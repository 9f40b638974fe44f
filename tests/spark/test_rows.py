"""Rows of a DataFrame become transactions, by columns as one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.errors import ConfigError, UserError
from logplayer.log.protocol import ENTRY_BYTES_MAX
from logplayer.spark.options import parse_options
from logplayer.spark.sinks.log import LogBatchWriter
from logplayer.spark.sinks.rows import encode_row, payloads_of

TEXT = pa.schema([("key", pa.string()), ("value", pa.string()), ("op", pa.string()), ("target", pa.string())])
BYTES = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("op", pa.string()), ("target", pa.string())])
SIZES = st.sampled_from([0, 1, 2, 127, 128, 129, 5000, 15_999, 16_000, 16_001, 17_000])


def rows(draw_value: Any) -> Any:
    return st.fixed_dictionaries(
        {
            "key": draw_value,
            "value": st.none() | draw_value,
            "op": st.sampled_from([None, "", "put", "delete"]),
            "target": st.sampled_from([None, "", "a", "t" * 200]),
        }
    )


@given(st.lists(rows(st.text(max_size=5) | SIZES.map(lambda n: "é" * n)), max_size=5), st.sampled_from([4, 3, 2]))
def test_columns_of_text_give_what_rows_give(found: list[dict[str, Any]], count: int) -> None:
    batch = pa.RecordBatch.from_pylist(found, schema=TEXT).select(TEXT.names[:count])
    assert payloads_of(batch).to_pylist() == [encode_row(row) for row in batch.to_pylist()]


@given(st.lists(rows(st.binary(max_size=5) | SIZES.map(bytes)), max_size=5))
def test_columns_of_bytes_give_what_rows_give(found: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(found, schema=BYTES)
    assert payloads_of(batch.slice(1)).to_pylist() == [encode_row(row) for row in found[1:]]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"key": None, "value": "v", "op": None, "target": None}, "is not a mutation"),
        ({"key": "k", "value": "v", "op": "upsert", "target": None}, "op is put or delete"),
        ({"key": "k", "value": "v" * (ENTRY_BYTES_MAX + 1), "op": None, "target": None}, "over the log's limit"),
    ],
)
def test_a_row_that_is_wrong_is_named(row: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        payloads_of(pa.RecordBatch.from_pylist([row], schema=TEXT))
    with pytest.raises(UserError, match="over the log's limit"):
        payloads_of(pa.RecordBatch.from_pydict({"payload": [bytes(ENTRY_BYTES_MAX + 1)]}))


def test_a_batch_write_to_targets_is_refused_and_not_taken_for_one_to_the_log() -> None:
    from pyspark.sql.types import StringType, StructType

    options = parse_options({"log": "grpc://h:1", "to": "targets", "addresses": "a=tcp://h:2", "staging": "/tmp"})
    with pytest.raises(ConfigError, match=r'lp\.spark\.once\(\.\.\., to="targets"\)'):
        LogBatchWriter(options, StructType().add("key", StringType()).add("value", StringType()), overwrite=False)
