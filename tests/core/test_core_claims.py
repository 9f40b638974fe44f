"""Claims of a target about the log: the log decides, and a false claim blocks only its own target."""

from __future__ import annotations

import pytest

from logplayer.core.effects import (
    CloseSession,
    Effect,
    LookUp,
    OpenSession,
    ReadCatchUp,
    Report,
    SendBatch,
    StepDown,
    TrimLog,
)
from logplayer.core.entry import Entry, Quarantined, Refusal, Session, Takeover
from logplayer.core.events import (
    Acked,
    CatchUpDiverged,
    CaughtUp,
    LookedUp,
    LookUpFailed,
    Lost,
    MainTrimmed,
    Opened,
    Refused,
    RetryRequested,
    StopRequested,
    Surveyed,
    Ticked,
)
from logplayer.core.player import Player
from logplayer.core.tail_buffer import TailBuffer
from logplayer.core.target_queue import State
from tests.core.core_rig import control, entry, fetch, limits, make_player, new_player, of, one, open_all

FAR = 2**63 - 1


def two(epoch: int = 5) -> Player:
    """A player at its own takeover, with two LIVE targets."""
    player = make_player("a", "b", epoch=epoch, current=epoch, confirmed=False)
    open_all(player, at=epoch)
    return player


def fenced(player: Player, epoch: int, target: str = "a") -> list[Effect]:
    session = player.queues[target].session
    assert session is not None
    return list(player.step(Refused(target, session, Refusal.FENCED, "fenced", 5, epoch)))


def is_of_this_log(player: Player, effects: list[Effect], chain: bytes | None = b"") -> list[Effect]:
    """Nobody has the epoch, so the log is asked about the target's index; it confirms it, or has another value."""
    assert one(effects, LookUp) == LookUp("a", 5)
    assert of(effects, Report) == []
    return player.step(LookedUp("a", 5, 1, 8, None, chain))


def wait(player: Player, span: int) -> list[OpenSession | CloseSession]:
    """What time alone does to the target a, within so many milliseconds."""
    effects: list[Effect] = []
    for at in range(0, span + 1, 50):
        effects += player.step(Ticked(player.now + 50 if at else player.now))
    return [effect for effect in effects if isinstance(effect, OpenSession | CloseSession) and effect.target == "a"]


# --- FENCED -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epoch", "record"), [(7, Takeover("", "p2")), (9, Takeover("", ""))])
def test_a_takeover_that_the_log_shows_ends_the_player(epoch: int, record: Takeover) -> None:
    """The main stream has not come to it: a zombie learns of it by FENCED, and looks."""
    player = two()
    effects = fenced(player, epoch)
    assert one(effects, LookUp) == LookUp("a", epoch)
    assert of(effects, CloseSession)
    assert not of(effects, StepDown)
    assert player.queues["a"].state is State.SUSPENDED
    down = one(player.step(LookedUp("a", epoch, 1, 9, record)), StepDown)
    assert down.epoch == epoch
    assert down.reason.startswith(f"epoch {epoch} has taken over (")
    assert player.stopped
    assert player.step(Ticked(1)) == []


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (FAR, LookedUp("a", FAR, 1, 8)),
        (8, LookedUp("a", 8, 1, 8)),
        (8, LookedUp("a", 8, 1, 8, Quarantined("a", 1))),
        (8, LookedUp("a", 8, 1, 8, Takeover("others", "q"))),
    ],
    ids=["beyond-the-end", "data", "another-record", "another-group"],
)
def test_an_epoch_that_the_log_does_not_show_blocks_that_target_alone(epoch: int, answer: LookedUp) -> None:
    player = two()
    fenced(player, epoch)
    told = one(is_of_this_log(player, player.step(answer)), Report)
    assert told.target == "a"
    assert told.what.startswith(f"FENCED: the target says that epoch {epoch} has taken over")
    assert ("another group, 'others'" in told.what) == isinstance(answer.record, Takeover)
    blocked = player.queues["a"].reconnect.blocked
    assert blocked is not None
    assert (blocked.kind, blocked.index) == ("FENCED", epoch)
    sent = one(fetch(player, entry(6, a="x", b="y")), SendBatch)
    assert sent.target == "b"
    assert not player.stopped


@pytest.mark.parametrize("epoch", [0, 4, 5, 6, 7])
def test_what_the_main_stream_has_read_needs_no_look(epoch: int) -> None:
    """A takeover up to its place would have ended it; one that is not newer ends nobody."""
    player = two()
    fetch(player, entry(6, a="x"), entry(7, b="y"))
    effects = is_of_this_log(player, fenced(player, epoch))
    assert of(effects, StepDown) == []
    blocked = player.queues["a"].reconnect.blocked
    assert blocked is not None
    assert blocked.kind == "FENCED"


def test_a_target_waits_until_the_log_has_answered() -> None:
    player = two()
    fenced(player, 8)
    assert wait(player, 1000) == []
    effects = player.step(LookUpFailed("a", 8, "the log is away"))
    assert of(effects, StepDown) == []
    assert "the log is away" in player.queues["a"].reconnect.last_error
    assert wait(player, 100)
    assert one(fenced(player, 8), LookUp) == LookUp("a", 8)


def test_a_blocked_liar_is_tried_again_and_admitted_when_it_is_honest() -> None:
    player = two()
    fenced(player, FAR)
    is_of_this_log(player, player.step(LookedUp("a", FAR, 1, 8)))
    assert wait(player, 100) == []
    again = one(wait(player, 100), OpenSession)
    player.step(Opened("a", again.session, 5))
    assert player.queues["a"].reconnect.blocked is None
    assert player.queues["a"].state is State.LIVE


def test_a_trimmed_epoch_that_we_have_not_read_is_a_newer_player() -> None:
    player = two()
    fenced(player, 8)
    assert one(player.step(LookedUp("a", 8, 20, 30)), StepDown).epoch == 8


def test_a_trimmed_epoch_that_we_have_read_meanwhile_is_a_lie() -> None:
    player = two()
    fenced(player, 8)
    fetch(player, *(entry(index, b="y") for index in range(6, 25)))
    effects = player.step(LookedUp("a", 8, 20, 30))
    assert of(effects, StepDown) == []
    assert of(is_of_this_log(player, effects), Report)
    assert player.queues["a"].reconnect.blocked is not None


def test_an_epoch_that_the_main_stream_jumped_over_is_looked_up() -> None:
    player = two()
    player.step(MainTrimmed(20, player.control))
    assert one(fenced(player, 8), LookUp) == LookUp("a", 8)
    assert one(player.step(LookedUp("a", 8, 20, 30)), StepDown).epoch == 8


def test_the_log_is_believed_whoever_asked_and_however_late() -> None:
    player = two()
    fenced(player, 8)
    player.step(RetryRequested("a"))
    assert player.step(LookedUp("a", 8, 1, 9)) == []
    assert one(player.step(LookedUp("a", 8, 1, 9, Takeover("", "p2"))), StepDown).epoch == 8


def test_a_fenced_target_does_not_hold_up_the_end() -> None:
    player = two()
    fetch(player, entry(6, a="x"))
    player.step(StopRequested())
    assert not player.stopped
    player.queues["b"].window.clear()  # The empty batch that moves it on is acked.
    effects = fenced(player, 8)
    assert player.stopped
    assert of(effects, LookUp) == []


# --- Ahead of the log ---------------------------------------------------------------------------------------


def claims_ahead(index: int) -> tuple[Player, Session]:
    player = make_player("a", "b", epoch=5, current=5, confirmed=False)
    sessions = {asked.target: asked.session for asked in of(player.step(Ticked(0)), OpenSession)}
    player.step(Opened("b", sessions["b"], 5))
    assert one(player.step(Opened("a", sessions["a"], index)), LookUp) == LookUp("a", index)
    assert player.queues["a"].state is State.SUSPENDED
    return player, sessions["a"]


def test_a_target_with_more_than_we_have_read_is_admitted_if_the_log_has_it() -> None:
    player, session = claims_ahead(9)
    assert of(player.step(LookedUp("a", 9, 1, 9, None, b"")), Report) == []
    assert player.queues["a"].state is State.LIVE
    assert player.queues["a"].session == session
    assert player.queues["a"].acked == 9


def test_a_target_ahead_of_the_log_is_blocked_and_holds_the_trim_point() -> None:
    player, _ = claims_ahead(1_000_000)
    told = one(player.step(LookedUp("a", 1_000_000, 1, 8)), Report)
    assert told.what.startswith("DIVERGED: it has index 1000000, the log ends at 8. ")
    queue = player.queues["a"]
    assert queue.state is State.SUSPENDED
    assert queue.session is None
    assert queue.acked == 0
    assert not queue.known
    assert player.trim_point() == 0


def test_a_target_that_was_ahead_is_tried_again_and_judged_by_its_chain() -> None:
    """Once the log has grown past it, the index alone would not tell that what it has are other entries."""
    player, _ = claims_ahead(9)
    player.step(LookedUp("a", 9, 1, 8))
    fetch(player, *(entry(index, b="y") for index in range(6, 20)))
    asked = one(wait(player, 200), OpenSession)
    assert of(player.step(Opened("a", asked.session, 9, chain=b"lost-one")), LookUp)
    told = one(player.step(LookedUp("a", 9, 1, 19, None, b"new-one.")), CloseSession)
    assert told.target == "a"
    blocked = player.queues["a"].reconnect.blocked
    assert blocked is not None
    assert blocked.detail.startswith("what it has up to index 9 is not what the log has up to there. ")
    asked = one(wait(player, 200), OpenSession)
    player.step(Opened("a", asked.session, 9, chain=b"new-one."))
    player.step(LookedUp("a", 9, 1, 19, None, b"new-one."))
    assert player.queues["a"].reconnect.blocked is None


def test_an_opened_target_waits_for_the_log_but_not_for_ever() -> None:
    player, session = claims_ahead(9)
    assert player.step(Opened("a", session, 9)) == []  # It has said so.
    player.step(LookUpFailed("a", 9, "the log is away"))
    assert player.queues["a"].session is None
    assert player.queues["a"].reconnect.blocked is None
    assert of(wait(player, 100), OpenSession)
    player, session = claims_ahead(9)
    assert of(wait(player, 500), CloseSession)
    assert player.step(LookedUp("a", 9, 1, 9)) == []  # The answer comes too late for that session.


def test_the_answer_for_one_index_does_not_judge_another() -> None:
    player, _ = claims_ahead(9)
    assert player.step(LookedUp("a", 8, 1, 20)) == []
    assert player.queues["a"].state is State.SUSPENDED


def test_a_target_in_the_middle_of_the_log_is_looked_up_too() -> None:
    """Its index says nothing about which history filled it."""
    player = make_player("a", epoch=5, current=5, confirmed=False)
    [asked] = of(player.step(Ticked(0)), OpenSession)
    assert one(player.step(Opened("a", asked.session, 2, chain=b"value..2")), LookUp) == LookUp("a", 2)
    read = one(player.step(LookedUp("a", 2, 1, 5, None, b"value..2")), ReadCatchUp)
    assert read.chain == b"value..2"
    player.step(CaughtUp("a", asked.session, 2, read.last, []))
    assert player.queues["a"].state is State.LIVE


def test_an_empty_target_and_one_at_the_main_stream_need_no_look() -> None:
    player = make_player("a", "b", epoch=5, current=5, confirmed=False, chain=b"value..5")
    asked = {effect.target: effect.session for effect in of(player.step(Ticked(0)), OpenSession)}
    assert of(player.step(Opened("a", asked["a"], 0)), LookUp) == []
    assert of(player.step(Opened("b", asked["b"], 5, chain=b"value..5")), LookUp) == []
    assert player.queues["b"].state is State.LIVE


# --- Diverged -----------------------------------------------------------------------------------------------


def value(index: int, history: str = "old") -> bytes:
    return f"{history}{index:05}".encode()


def at(index: int, history: str = "old", **parts: str) -> Entry:
    made = entry(index, **parts)
    made.chain = value(index, history)
    return made


def ahead(confirmed_by: str = "old") -> Player:
    """A player at 5 whose target a has index 8 of the old history, as the log has confirmed; b is LIVE."""
    player = make_player("a", "b", epoch=5, current=5, confirmed=False, chain=value(5))
    asked = {effect.target: effect.session for effect in of(player.step(Ticked(0)), OpenSession)}
    player.step(Opened("b", asked["b"], 5, chain=value(5)))
    player.step(Opened("a", asked["a"], 8, chain=value(8)))
    player.step(LookedUp("a", 8, 1, 9, None, value(8, confirmed_by)))
    return player


def test_a_target_of_another_history_is_blocked_alone_and_holds_the_trim_point() -> None:
    player = ahead(confirmed_by="new")
    queue = player.queues["a"]
    assert queue.reconnect.blocked is not None
    assert queue.reconnect.blocked.kind == "DIVERGED"
    assert queue.acked == 0
    assert player.trim_point() == 0
    assert one(fetch(player, at(6, a="x", b="y")), SendBatch).target == "b"


def test_a_target_ahead_is_compared_again_when_the_main_stream_gets_there() -> None:
    """The log that confirmed it may have been replaced before the main stream has come past the fork."""
    player = ahead()
    assert player.queues["a"].state is State.LIVE
    fetch(player, at(6, "new", b="y"), at(7, "new", b="y"))
    told = one(fetch(player, at(8, "new", a="x", b="y")), Report)
    assert told.what.startswith("DIVERGED: what it has up to index 8 is not")
    assert "up to 5 they have the same" in told.what
    assert player.queues["a"].acked == 0


def test_a_target_ahead_in_a_gap_is_compared_with_the_value_before_it() -> None:
    player = ahead()
    fetch(player, at(6, b="y"))
    assert player.queues["a"].ahead is not None
    assert of(fetch(player, at(9, b="y")), Report)  # The value at 8 is that of entry 6, and the target has another.


def test_a_target_ahead_that_agrees_goes_on() -> None:
    player = ahead()
    fetch(player, at(6, b="y"), at(7, b="y"), at(8, b="y"))
    assert player.queues["a"].ahead is None
    batch = one(fetch(player, at(9, a="x")), SendBatch)
    assert (batch.prev, batch.prev_chain, batch.to, batch.to_chain) == (8, value(8), 9, value(9))


def test_what_a_target_ahead_has_does_not_let_the_log_be_trimmed() -> None:
    player = ahead()
    player.step(Surveyed(5, ()))
    player.queues["b"].acked = 9
    fetch(player, at(6, b="y"), at(7, b="y"))
    assert player.trim_point() == 5
    fetch(player, at(8, b="y"))
    assert player.trim_point() == 8


def test_a_session_that_is_lost_does_not_forget_that_the_target_was_ahead() -> None:
    player = ahead()
    session = player.queues["a"].session
    assert session is not None
    player.step(Lost("a", session, "cut"))
    player.step(Surveyed(5, ()))
    player.queues["b"].acked = 9
    fetch(player, at(6, "new", b="y"), at(7, "new", b="y"), at(8, "new", b="y"))
    assert player.queues["a"].acked == 5  # What was known to be the same.
    assert player.trim_point() == 5


def test_a_trim_says_which_history_was_read() -> None:
    player = new_player(5, 5, control("a"), limits(), trims=True, trimmed=0, chain=value(5))
    [asked] = of(player.step(Ticked(0)), OpenSession)
    player.step(Opened("a", asked.session, 5, chain=value(5)))
    player.step(Surveyed(5, ()))
    batch = one(fetch(player, at(6, a="x")), SendBatch)
    player.step(Acked("a", batch.session, 6))
    trim = one(player.step(Ticked(1)), TrimLog)
    assert (trim.up_to, trim.index, trim.chain) == (6, 6, value(6))


def test_a_batch_that_the_target_refuses_as_diverged_blocks_it() -> None:
    player = two()
    session = player.queues["a"].session
    assert session is not None
    told = one(player.step(Refused("a", session, Refusal.DIVERGED, "other history", 5, 5, value(5))), Report)
    assert told.what.startswith("DIVERGED: other history. The log has lost entries or was restored")
    assert player.queues["a"].acked == 0


def test_a_read_that_does_not_continue_ends_the_session_and_the_log_is_asked() -> None:
    player = make_player("a", epoch=5, current=5, confirmed=False, chain=value(5))
    [asked] = of(player.step(Ticked(0)), OpenSession)
    player.step(Opened("a", asked.session, 2, chain=value(2)))
    read = one(player.step(LookedUp("a", 2, 1, 5, None, value(2))), ReadCatchUp)
    effects = player.step(CatchUpDiverged("a", read.session, "entry 3 does not continue"))
    assert of(effects, CloseSession)
    assert player.queues["a"].reconnect.last_error == "entry 3 does not continue"
    again = one(wait(player, 100), OpenSession)
    assert of(player.step(Opened("a", again.session, 2, chain=value(2))), LookUp)


def test_what_was_read_of_another_history_than_the_main_stream_is_not_joined() -> None:
    player = make_player("a", epoch=5, current=5, confirmed=False, chain=value(5))
    [asked] = of(player.step(Ticked(0)), OpenSession)
    player.step(Opened("a", asked.session, 2, chain=value(2)))
    read = one(player.step(LookedUp("a", 2, 1, 5, None, value(2))), ReadCatchUp)
    player.step(CaughtUp("a", read.session, 2, 5, [], value(5, "new")))
    assert player.queues["a"].state is State.SUSPENDED


def test_the_newest_entries_in_memory_are_not_given_to_another_history() -> None:
    recent = TailBuffer(10, 1000)
    recent.keep(5, value(5))
    recent.add(at(6))
    assert recent.since(5, value(5, "new")) is None
    assert recent.since(6, value(6, "new")) is None
    assert [one.index for one in recent.since(5, value(5)) or ()] == [6]


def test_a_fenced_target_that_is_of_another_history_is_said_to_be_diverged() -> None:
    """Its epoch was taken from a log that is lost: to free its fence would not help."""
    player = two()
    effects = player.step(LookedUp("a", 8, 1, 8)) if fenced(player, 8) else []
    told = one(is_of_this_log(player, effects, value(5, "new")), Report)
    assert told.what.startswith("DIVERGED: ")
