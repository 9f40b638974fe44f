"""core/control_state.py and core/trim.py: what the log's records decide, and how much of the log must stay."""

from __future__ import annotations

from logplayer.core.effects import OpenSession, ReadCatchUp, Report, SendBatch
from logplayer.core.entry import (
    Checkpoint,
    Entry,
    HashMap,
    MapChanged,
    Mutation,
    Quarantined,
    QuarantineRevoked,
    Repaired,
    Takeover,
    TargetAdded,
    TargetRemoved,
)
from logplayer.core.events import Opened, Ticked
from logplayer.core.target_queue import TargetQueue
from logplayer.core.trim import trim_point
from tests.core.core_rig import (
    acked,
    answer_read,
    control,
    cut,
    entry,
    fetch,
    limits,
    live_player,
    make_player,
    of,
    one,
    payload,
)


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
    data.payload = payload(Mutation(b"k", b"x"))
    assert state.router.split(data, cut) == {"a": b"x"}


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


def test_a_revoked_quarantine_leaves_nothing_behind() -> None:
    state = control("a")
    state.decide(entry(4, Quarantined("a", 9)))
    state.decide(entry(5, Quarantined("a", 10)))
    state.decide(entry(6, QuarantineRevoked("a", 9)))
    assert state.quarantined == {"a": {10}}
    state.decide(entry(7, QuarantineRevoked("a", 10)))
    state.decide(entry(8, QuarantineRevoked("a", 10)))  # Nothing to revoke: nothing happens.
    assert state.quarantined == {}


def test_a_quarantine_is_asked_for_when_an_entry_is_queued() -> None:
    """By the main stream and by catch-up alike: what was revoked before that is delivered as any other entry."""
    player = live_player("a")
    fetch(player, entry(1, Quarantined("a", 4)), entry(2, Quarantined("a", 5)), entry(3, QuarantineRevoked("a", 4)))
    batch = one(fetch(player, entry(4, a="x"), entry(5, a="y")), SendBatch)
    assert [(m.index, m.quarantine) for m in batch.messages] == [(4, False), (5, True)]
    player = make_player("a")
    log = [entry(1, Quarantined("a", 2)), entry(2, a="x"), entry(3, QuarantineRevoked("a", 2))]
    fetch(player, *log)
    [asked] = of(player.step(Ticked(0)), OpenSession)
    read = one(player.step(Opened("a", asked.session, 0)), ReadCatchUp)
    batch = one(answer_read(player, read, log), SendBatch)
    assert [(m.index, m.quarantine) for m in batch.messages] == [(2, False)]


def test_a_revocation_that_comes_too_late_is_told() -> None:
    player = live_player("a")
    [batch] = of(fetch(player, entry(1, Quarantined("a", 2)), entry(2, a="x")), SendBatch)
    acked(player, batch)
    told = one(fetch(player, entry(3, QuarantineRevoked("a", 2))), Report)
    assert "entry 2 was revoked too late" in told.what
    assert of(fetch(player, entry(4, QuarantineRevoked("a", 9))), Report) == []


def test_a_repair_replaces_all_decisions() -> None:
    state = control("a", "b")
    state.decide(Entry(5, record=MapChanged(HashMap(("b",)))))
    state.decide(Entry(6, record=Quarantined("a", 2)))
    maps = ((0, HashMap(("c",))), (4, HashMap(("d",))))
    state.decide(Entry(9, record=Repaired((TargetAdded("c", 3, "tcp://h:1"),), maps, (("c", 7),))))
    assert state.members == {"c": TargetAdded("c", 3, "tcp://h:1")}
    assert state.router.versions() == list(maps)
    assert [state.router.owner_at(index)(b"k") for index in (4, 5)] == ["c", "d"]
    assert state.quarantined == {"c": {7}}


def test_a_users_own_function_outlives_a_repair() -> None:
    state = control("a")
    state.router.replace_first(lambda key: "mine")
    state.decide(Entry(9, record=Repaired((), ((0, HashMap(("c",))), (4, HashMap(("d",)))))))
    assert [state.router.owner_at(index)(b"k") for index in (4, 5)] == ["mine", "d"]
    state = control("a")
    state.decide(Entry(9, record=Repaired((), ())))
    assert state.router.owner_at(1)(b"k") == ""
