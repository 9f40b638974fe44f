"""The examples run as they are, only on the session of this run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logplayer.wire.entries import decode_transaction
from tests.spark.spark_support import FileWal, KeptSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "words", "shown"),
    [
        ("spark_sql", ["--seconds", "1"], ["north", "delete"]),
        ("spark_files_to_shards", ["--rows", "400"], ["north: right", "south: right", "400 rows"]),
        ("spark_notebook", [], ["user:", "south"]),
    ],
)
def test_example(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    words: list[str],
    shown: list[str],
) -> None:
    monkeypatch.setattr("logplayer.spark.session.make_session", lambda *_, **__: KeptSession(spark))
    monkeypatch.setattr(sys, "argv", [name, *words])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    for word in shown:
        assert word in said


def test_the_batch_write_of_the_page_on_spark(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    """As it stands there, with an address and a path for the two names."""
    [block] = [text for text in PAGE.read_text().split("```text\n") if "rows.write." in text]
    code = block.partition("```")[0]
    exec(code, {"spark": spark, "ADDRESS": wal.serve(), "PATH": str(tmp_path / "staging")})
    changes = [change for record in wal.records() for change in decode_transaction(record.payload)]
    assert sorted(changes) == [(b"alice", b"90"), (b"bob", b"110")]
