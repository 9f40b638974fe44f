"""``logplayer target unfence``: a store that was opened with an unknown epoch is freed, and no other store changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from logplayer.cli import main
from logplayer.core.entry import Quarantined, Refusal, Session, Takeover
from logplayer.core.fence import NOBODY, Position
from logplayer.errors import TargetError, UserError
from logplayer.log.protocol import Info
from logplayer.target.protocol import Rejected, Store
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.target.unfence import FenceEvidence, Unfence, plan
from tests.target.store_places import Place, content, opening, playing, put, run_sql, written_for

SENSELESS = Session(2**63 - 1, 1)
LOG = Info("log", 3, 9, 9, 0)


def free(place: Place) -> Position:
    store = place.open()
    try:
        before, after, _ = plan(store, FenceEvidence(LOG), force=False)
        return store.apply(Unfence(before, after))
    finally:
        store.close()


def test_a_store_that_a_senseless_epoch_has_taken_is_freed(any_place: Place) -> None:
    place = any_place
    store = place.open()
    store.apply(opening(Session(4, 1)))
    stood = store.apply(playing(Session(4, 1), 0, 5, written_for(place, put(5, "k"))))
    store.apply(opening(SENSELESS))
    with pytest.raises(Rejected) as caught:
        store.apply(opening(Session(8, 1)))
    assert caught.value.refused.reason is Refusal.FENCED
    store.close()
    assert free(place) == stood._replace(session=NOBODY)
    store = place.open()
    with pytest.raises(Rejected):
        store.apply(playing(SENSELESS, 5, 6))  # Its stream may still be open.
    assert store.apply(opening(Session(8, 1))) == stood._replace(session=Session(8, 1))
    with pytest.raises(Rejected):
        store.apply(opening(Session(4, 2)))  # The older player is out again.
    assert content(store, place) == {"k": "v5"}
    store.close()


def test_a_new_store_that_another_log_has_opened_is_freed(any_place: Place) -> None:
    place = any_place
    store = place.open()
    store.apply(opening(Session(4, 1), "another"))
    store.close()
    if place.has_tables:  # The user's own rows are none that a log has delivered.
        run_sql(place, "INSERT INTO {table} VALUES ('mine', 'v')")
    assert free(place) == Position()
    store = place.open()
    assert store.apply(opening(Session(1, 1))).log_id == "log"
    store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = SqliteTarget(tmp_path / "a.db", "a")
    yield store
    store.close()


@pytest.mark.parametrize(
    ("epoch", "record", "wrong"),
    [
        (SENSELESS.epoch, None, "past the log's end, 9"),
        (10, None, "past the log's end, 9"),
        (9, None, "entry 9 of the log is not a takeover"),
        (9, Quarantined("a", 1), "entry 9 of the log is not a takeover"),
        (9, Takeover(), ""),
        (9, Takeover("another group"), ""),
        (2, None, ""),  # Trimmed: it may have been one.
    ],
)
def test_what_is_wrong_is_told_by_the_log(store: Store, epoch: int, record: object, wrong: str) -> None:
    store.apply(opening(Session(epoch, 1)))
    seen = FenceEvidence(LOG, record)  # type: ignore[arg-type]
    if wrong:
        assert wrong in plan(store, seen, False)[2]
    else:
        with pytest.raises(UserError, match="nothing is wrong with it"):
            plan(store, seen, False)
    assert plan(store, seen, True)[1].session == NOBODY


def test_a_store_with_entries_of_another_log_stays(store: Store) -> None:
    store.apply(opening(Session(4, 1), "another"))
    store.apply(playing(Session(4, 1), 0, 2))
    for force in (False, True):
        with pytest.raises(UserError, match="was filled from log 'another', not from 'log'"):
            plan(store, FenceEvidence(LOG), force)


def test_without_a_log_only_force_helps(store: Store) -> None:
    store.apply(opening(Session(4, 1)))
    with pytest.raises(UserError, match="give --log, or --force"):
        plan(store, None, False)
    assert plan(store, None, True)[1] == Position(0, NOBODY, 0, "log")


def test_a_free_store_is_left_alone(store: Store) -> None:
    for force in (False, True):
        with pytest.raises(UserError, match="nothing to free"):
            plan(store, FenceEvidence(LOG), force)


def test_somebody_who_opens_meanwhile_wins(store: Store) -> None:
    store.apply(opening(Session(10, 1)))
    before, after, _ = plan(store, FenceEvidence(LOG), False)
    store.apply(opening(Session(11, 1)))
    with pytest.raises(TargetError, match="has changed meanwhile"):
        store.apply(Unfence(before, after))
    assert store.position().session == Session(11, 1)


def test_the_command_shows_first_and_acts_with_yes(tmp_path: Path) -> None:
    log = ["--log", f"file://{tmp_path}/log"]
    where = ["--store", "sqlite", "--path", str(tmp_path / "a.db"), "--id", "a"]

    def run(*words: str) -> Result:
        return CliRunner().invoke(main.cli, [*words, *log])

    append = [sys.executable, "-m", "logplayer.cli", "log", "append", *log]
    subprocess.run(append, input=b'{"mutations": [{"key": "k", "value": "1"}]}', check=True, timeout=60)
    missing = run("target", "unfence", *where)
    assert isinstance(missing.exception, UserError)
    assert "is not there" in str(missing.exception)
    log_id = json.loads(run("log", "info", "--json").output)["log_id"]
    store = SqliteTarget(tmp_path / "a.db", "a")
    store.apply(opening(SENSELESS, log_id))
    shown = run("target", "unfence", *where)
    assert shown.exit_code == 0, shown.output
    assert "past the log's end, 1" in shown.output
    assert "would be: index 0, session 0.0" in shown.output
    assert store.position().session == SENSELESS
    done = json.loads(run("target", "unfence", *where, "--yes", "--json").output)
    assert (done["was"]["epoch"], done["is"]["epoch"], done["done"]) == (SENSELESS.epoch, 0, True)
    assert store.position() == Position(log_id=log_id)
    assert isinstance(run("target", "unfence", *where, "--yes").exception, UserError)
    store.close()
