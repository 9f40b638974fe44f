"""The examples run as they are, only on the session of this run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_support import KeptSession

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
