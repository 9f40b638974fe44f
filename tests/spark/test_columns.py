"""Columns are what Arrow would make of the same values, and pandas stays out of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logplayer.spark.arrow import TRUE, column, columns

i64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): i64,
    pa.timestamp("us", "UTC"): i64,
    pa.float64(): st.floats(allow_nan=False),
    pa.binary(): st.binary(max_size=9),
    pa.string(): text,
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_it_is_what_arrow_makes(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | KINDS[kind], max_size=40) | st.lists(KINDS[kind], max_size=40))
    made = column(tuple(values), kind)
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))
    assert made.null_count == values.count(None)


def test_a_range_and_a_schema() -> None:
    assert column(range(3, 0, -1), pa.int64()).to_pylist() == [3, 2, 1]
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert pa.table(columns([[1], ["x"]], schema), schema=schema).to_pylist() == [{"a": 1, "b": "x"}]
    assert TRUE.to_pylist() == [True]
    with pytest.raises(TypeError, match="no column of bool"):
        column([True], pa.bool_())


OURS = """
from logplayer.log.protocol import Kind, Record
from logplayer.spark.source.batches import raw_batch
assert raw_batch([Record(1, Kind.DATA, "p", 1, 1, b"x", b"", 0)]).num_rows == 1
"""
ARROWS = """
import pyarrow
assert len(pyarrow.array([1])) == 1
"""


@pytest.mark.parametrize(("program", "loads"), [(OURS, False), (ARROWS, True)], ids=["ours", "arrow's"])
def test_pandas_is_not_imported(program: str, loads: bool, tmp_path: Path) -> None:
    """Where it is installed, it takes longer to load than everything else of a worker."""
    (tmp_path / "pandas.py").write_text('__version__ = "0.1"')
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{program}\nimport sys\nprint('pandas' in sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{loads}\n"
