"""The verbs that are Spark jobs: archive, backfill and audit."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from logplayer.cli.main import cli
from logplayer.core.entry import HashMap, Takeover, TargetAdded
from logplayer.log import control_chain as chain
from logplayer.spark import event_loop
from tests.spark.spark_support import FileWal, KeptSession
from tests.spark.test_resident import NAMES, puts


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
    assert "a: WRONG: it has index 251" in said.output
    assert "the first entry that differs is" in said.output
    assert "is missing" in said.output


def test_a_trim_after_an_archive_passes_the_newest_decision(verbs: CliRunner, wal: FileWal, tmp_path: Path) -> None:
    """The decision is repeated at the end: players start from it, and what is archived is forgotten."""
    wal.decide(Takeover(""), HashMap(NAMES), [(name, "") for name in NAMES])
    puts(wal, 250)
    wal.close()
    words = ["archive", "--log", wal.address, "--to", str(tmp_path / "archive"), "--range-entries", "100", "--trim"]
    said = verbs.invoke(cli, [*words, "--force"], catch_exceptions=False)
    assert "the archive reaches to 200" in said.output
    after = FileWal(wal.path)
    info = event_loop.run(after.log.info())
    assert (info.first, info.control) == (201, 252)
    assert list(event_loop.run(chain.load(after.log)).control(None).members) == list(NAMES)
    after.close()


def test_a_trim_after_an_archive_leaves_what_a_target_does_not_have(
    verbs: CliRunner, wal: FileWal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive is no shard: a target that lags would be blocked, and filled again from it by hand."""
    wal.decide(Takeover(""), HashMap(NAMES), [(name, "tcp://127.0.0.1:1") for name in NAMES])
    puts(wal, 250)
    wal.close()
    words = ["archive", "--log", wal.address, "--to", str(tmp_path / "archive"), "--range-entries", "100", "--trim"]

    def trimmed(*more: str) -> tuple[int, str]:
        said = verbs.invoke(cli, [*words, *more], catch_exceptions=False)
        assert said.exit_code == 0, said.output
        after = FileWal(wal.path)
        first = event_loop.run(after.log.info()).first
        after.close()
        return first, said.output

    first, said = trimmed()
    assert (first, f"nothing was trimmed: {NAMES[0]} cannot be asked" in said) == (1, True), said

    async def lags(member: TargetAdded, _: object) -> tuple[str, int]:
        return member.target, 70 if member.target == NAMES[0] else 250

    monkeypatch.setattr("logplayer.player.trim_check._index_of", lags)
    first, said = trimmed()
    assert (first, f"trimmed up to 70 only: {NAMES[0]} has index 70" in said) == (71, True), said
    assert trimmed("--force")[0] == 201


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["audit", "--log", "file:///nowhere/at/all", "--store", "a=sqlite:/x"], "there is no log at"),
        (["audit", "--log", "nope"], "has no scheme"),
        (["backfill", "--log", "file:///x", "--target", "a"], "is not NAME=PLACE"),
        (["backfill", "--log", "file:///x", "--map", "hash:"], "is not a shard map"),
        (["archive", "--log", "file:///x", "--to", "/tmp/a", "--range-entries", "0"], "at least one entry"),
    ],
)
def test_mistakes_are_one_clear_line(verbs: CliRunner, words: list[str], what: str) -> None:
    result = verbs.invoke(cli, words)
    assert result.exit_code != 0
    assert what in str(result.exception)
