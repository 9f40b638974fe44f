"""Unroutable entries are counted, and hold the trim point until they are resolved."""

from __future__ import annotations

from typing import Any

from logplayer.core.effects import LookUp, OpenSession, ReadCatchUp, Report, SendBatch, TrimLog
from logplayer.core.entry import Entry, Mutation, TargetAdded, TargetRemoved
from logplayer.core.events import CaughtUp, LookedUp, Lost, Opened, Surveyed, Ticked
from logplayer.core.player import Player
from logplayer.core.routing import Owner
from logplayer.core.unroutable import NAMES_MAX, Unroutable
from logplayer.errors import Malformed
from tests.core.core_rig import acked, control, cut, entry, fetch, limits, new_player, of, one, open_all, payload


def trimming(surveyed: bool = True, **more: Any) -> Player:
    player = new_player(1, 0, control("a"), limits(), trims=True, **more)
    if surveyed:
        player.step(Surveyed(1, ()))
    open_all(player)
    return player


def deliver(player: Player, *entries: Entry) -> None:
    for batch in of(fetch(player, *entries), SendBatch):
        acked(player, batch)


def test_an_entry_for_nobody_holds_the_trim_point() -> None:
    player = trimming()
    deliver(player, entry(2, a="x"), entry(3, a="x", ghost="y"), entry(4, a="x"))
    assert player.trim_point() == 2
    assert one(player.step(Ticked(1)), TrimLog).up_to == 2
    assert player.unroutable == 1


def test_an_operator_may_let_it_go() -> None:
    player = trimming(trims_unroutable=True, surveyed=False)
    deliver(player, entry(2, a="x"), entry(3, a="x", ghost="y"), entry(4, a="x"))
    assert player.trim_point() == 4


def test_a_name_that_becomes_a_member_holds_the_trim_point_by_itself() -> None:
    player = trimming()
    deliver(player, entry(2, ghost="y"), entry(3, a="x"))
    assert player.trim_point() == 1
    fetch(player, Entry(4, record=TargetAdded("ghost", 1)))
    assert player.trim_point() == 1  # It has reserved what comes after 1.
    assert not player._unroutable.first()


def test_entries_are_counted_and_not_mutations() -> None:
    player = trimming()
    mutations = (Mutation(b"k", b"1"), Mutation(b"l", b"2"), Mutation(b"m", b"3", "ghost"))
    reports = of(fetch(player, Entry(2, payload(*mutations))), Report)
    assert player.unroutable == 1
    assert [report.target for report in reports] == ["ghost", ""]


def test_an_entry_that_cannot_be_split_is_reported_once_and_passed_over() -> None:
    def refuse(payload: bytes, owner: Owner) -> tuple[dict[str, bytes], int]:
        if payload == b"?":
            raise Malformed("no transaction")
        return cut(payload, owner)

    player = Player(1, 0, control("a"), limits(), cut=refuse, trims=True)
    player.step(Surveyed(1, ()))
    session = open_all(player)["a"]
    effects = fetch(player, entry(2, a="x"), Entry(3, b"?"), entry(4, a="x"))
    assert of(effects, Report)[0].what == "entry 3 is unroutable: no transaction"
    assert [m.index for batch in of(effects, SendBatch) for m in batch.messages] == [2, 4]
    assert (player.unroutable, player._kept()) == (1, 3)
    player.step(Lost("a", session))
    [again] = of(player.step(Ticked(100)), OpenSession)
    assert of(player.step(Opened("a", again.session, 1)), LookUp)
    [read] = of(player.step(LookedUp("a", 1, 1, 4, None, b"")), ReadCatchUp)
    caught = CaughtUp("a", again.session, 1, 4, [entry(2, a="x"), Entry(3, b"?"), entry(4, a="x")])
    assert read.first == 2
    assert of(player.step(caught), Report) == []


def test_nothing_is_trimmed_before_the_survey_has_passed_it() -> None:
    player = new_player(9, 8, control("a"), limits(), trims=True)
    open_all(player, at=8)
    deliver(player, entry(10, a="x"))
    assert player.trim_point() == 0
    player.step(Surveyed(5, [entry(4, a="x"), entry(5, a="x")]))
    assert player.trim_point() == 5
    player.step(Surveyed(9, [entry(7, ghost="x")]))
    assert player.trim_point() == 6
    assert player.unroutable == 1


def test_the_survey_excuses_who_was_a_member_then() -> None:
    player = new_player(9, 8, control("a"), limits(), trims=True)
    open_all(player, at=8)
    deliver(player, entry(10, a="x"))
    player.step(Surveyed(9, [entry(4, gone="x"), Entry(5, record=TargetRemoved("gone")), entry(6, gone="x")]))
    assert player.trim_point() == 5


def test_many_names_cost_no_memory() -> None:
    seen = Unroutable()
    assert [seen.note(f"n{number}", number) for number in range(1, NAMES_MAX + 50)].count(True) == NAMES_MAX
    for number in range(1, NAMES_MAX + 1):
        seen.forgive(f"n{number}")
    assert seen.first() == NAMES_MAX + 1
    assert seen.entries == NAMES_MAX + 49
