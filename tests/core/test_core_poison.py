"""A poisoned entry blocks its target until there is progress; a quarantined entry stays quarantined in every stream."""

from __future__ import annotations

from logplayer.core.effects import OpenSession, ReadCatchUp, SendBatch
from logplayer.core.entry import Refusal, Session
from logplayer.core.events import Lost, Opened, Refused, Ticked
from logplayer.core.target_queue import State
from tests.core.core_rig import acked, answer_read, entry, fetch, live_player, make_player, of, one


def test_a_quarantined_entry_in_the_main_stream_is_kept_aside() -> None:
    """After a restart the main stream itself may come past an entry that was quarantined before."""
    player = make_player("a", epoch=5, current=2)
    player.control.quarantined["a"] = {4}
    [asked] = of(player.step(Ticked(0)), OpenSession)
    player.step(Opened("a", asked.session, 2))
    sent = one(fetch(player, entry(3, a="x"), entry(4, a="bad")), SendBatch)
    assert [(message.index, message.quarantine) for message in sent.messages] == [(3, False), (4, True)]


def test_a_quarantined_entry_alone_is_kept_aside() -> None:
    player = make_player("a", epoch=5, current=2)
    player.control.quarantined["a"] = {3}
    [asked] = of(player.step(Ticked(0)), OpenSession)
    player.step(Opened("a", asked.session, 2))
    [message] = one(fetch(player, entry(3, a="bad")), SendBatch).messages
    assert message.quarantine


def test_progress_ends_a_block_and_a_later_loss_does_not_show_it_again() -> None:
    """The store was mended: the entry that it refused is applied, and nobody should read of it any more."""
    player = live_player("a")
    refused = entry(2, a="bad")
    fetch(player, refused)
    player.step(Refused("a", Session(1, 1), Refusal.POISON, "no", 2))
    queue = player.queues["a"]
    asked = [open_ for now in range(0, 300, 50) for open_ in of(player.step(Ticked(now)), OpenSession)]
    read = one(player.step(Opened("a", asked[0].session, 1)), ReadCatchUp)
    assert queue.reconnect.blocked is not None  # The entry is still ahead.
    acked(player, one(answer_read(player, read, [refused]), SendBatch))
    assert queue.reconnect.blocked is None
    player.step(Lost("a", asked[0].session, "gone"))
    assert queue.state is State.SUSPENDED
    assert queue.reconnect.blocked is None
