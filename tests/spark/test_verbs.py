"""The verbs that are Spark jobs: archive, backfill and audit."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from spark_support import FileWal, KeptSession
from test_resident import NAMES, puts

from logplayer.cli import cli


@pytest.fixture
def verbs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setattr("logplayer.spark.session.make_session", lambda *_, **__: KeptSession(spark))
    return CliRunner()


def test_the_verbs_archive_backfill_and_audit(verbs: CliRunner, wal: FileWal, tmp_path: Path) -> None:
    puts(wal, 250)
    wal.close()
    log, where = ["--log", wal.address], str(tmp_path / "archive")
    said = verbs.invoke(cli, ["archive", *log, "--to", where, "--range-entries", "100"], catch_exceptions=False)
    assert "archived 200 entries in 2 files; the archive reaches to 200, the log to 250" in said.output
    stores = [word for name in NAMES for word in ("--store", f"{name}=sqlite:{tmp_path}/{name}.db")]
    new_map = ["--map", "hash:" + ",".join(NAMES)]
    said = verbs.invoke(cli, ["backfill", *log, *stores, *new_map, "--archive", where], catch_exceptions=False)
    assert said.output.count("handed over at index 251") == 4, said.output
    said = verbs.invoke(cli, ["audit", *log, *stores, "--archive", where, "--json"], catch_exceptions=False)
    assert said.exit_code == 0, said.output
    assert [json.loads(line)["right"] for line in said.output.splitlines()] == [True] * 4
    db = sqlite3.connect(tmp_path / "a.db")
    db.execute("DELETE FROM data WHERE key = (SELECT min(key) FROM data)")
    db.commit()
    said = verbs.invoke(cli, ["audit", *log, *stores, "--archive", where])
    assert said.exit_code == 1
    assert "a: WRONG at 251" in said.output
    assert "the first entry that differs is" in said.output
    assert "is missing" in said.output


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["audit", "--log", "file:///nowhere/at/all", "--store", "a=sqlite:/x"], "there is no log at"),
        (["audit", "--log", "nope"], "has no scheme"),
        (["backfill", "--log", "file:///x", "--target", "a"], "is not NAME=PLACE"),
        (["backfill", "--log", "file:///x", "--map", "hash:"], "no shard map"),
        (["archive", "--log", "file:///x", "--to", "/tmp/a", "--range-entries", "0"], "at least one entry"),
    ],
)
def test_mistakes_are_one_clear_line(verbs: CliRunner, words: list[str], what: str) -> None:
    result = verbs.invoke(cli, words)
    assert result.exit_code != 0
    assert what in str(result.exception)
