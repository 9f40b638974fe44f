"""core/membership.py and core/trim.py: what the log's records decide, and how much of the log must stay."""

from __future__ import annotations

from core_rig import control, entry, limits

from logplayer.core.entry import (
    Checkpoint,
    HashMap,
    MapChanged,
    Mutation,
    Quarantined,
    Takeover,
    TargetAdded,
    TargetRemoved,
)
from logplayer.core.queue import TargetQueue
from logplayer.core.trim import trim_point


def test_members_from_the_start_hold_the_log_from_its_start() -> None:
    assert {name: added.at for name, added in control("a", "b").members.items()} == {"a": 0, "b": 0}


def test_a_target_is_a_member_from_its_record_on() -> None:
    state = control("a")
    assert state.decide(entry(7, TargetAdded("b")))
    assert state.members["b"].at == 7
    assert state.decide(entry(8, TargetAdded("c", 5)))
    assert state.members["c"].at == 5


def test_adding_a_member_again_changes_its_address_only() -> None:
    """Moved on to the new record, its start would tell a lagging target to re-seed what the log still has."""
    state = control("a")
    state.decide(entry(9, TargetAdded("a", address="tcp://elsewhere")))
    assert state.members["a"] == TargetAdded("a", 0, "tcp://elsewhere")


def test_a_removed_target_takes_its_quarantine_along() -> None:
    state = control("a")
    state.decide(entry(4, Quarantined("a", 3)))
    assert state.quarantined == {"a": {3}}
    state.decide(entry(5, TargetRemoved("a")))
    assert state.members == {}
    assert state.quarantined == {}
    state.decide(entry(6, TargetRemoved("a")))  # Nobody to remove: nothing happens.
    state.decide(entry(8, TargetAdded("a")))
    assert state.members["a"].at == 8


def test_records_read_again_change_nothing() -> None:
    state = control("a")
    assert state.decide(entry(5, TargetRemoved("a")))
    assert state.through == 5
    assert not state.decide(entry(5, TargetAdded("a")))
    assert not state.decide(entry(4, TargetAdded("a")))
    assert state.members == {}


def test_a_map_record_reaches_the_router() -> None:
    state = control("a")
    state.decide(entry(5, MapChanged(HashMap(("a",)))))
    data = entry(6)
    data.mutations = (Mutation(b"k", b"x"),)
    assert state.router.split(data) == {"a": b"x"}


def test_takeovers_and_checkpoints_decide_nothing_here() -> None:
    state = control("a")
    assert state.decide(entry(5, Takeover()))
    assert state.decide(entry(6, Checkpoint()))
    assert set(state.members) == {"a"}


def queue(acked: int) -> TargetQueue:
    return TargetQueue(f"t{acked}", limits(), acked)


def test_the_trim_point_is_the_least_of_all() -> None:
    assert trim_point([queue(9), queue(4), queue(7)], 20, None) == 4


def test_the_trim_point_never_passes_the_main_stream() -> None:
    assert trim_point([queue(30)], 20, None) == 20
    assert trim_point([], 20, None) == 20


def test_the_archive_holds_the_trim_point() -> None:
    assert trim_point([queue(9)], 20, 5) == 5
    assert trim_point([queue(9)], 20, 0) == 0
    assert trim_point([queue(9)], 20, 15) == 9


def test_a_target_that_has_not_reported_counts_with_what_it_reserved() -> None:
    absent = TargetQueue("new", limits(), acked=3)
    assert not absent.known
    assert trim_point([queue(9), absent], 20, None) == 3
