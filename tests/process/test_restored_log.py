"""A log that was restored from an older backup, or lost its tail, gives indexes that targets have to other entries.

No new entry may be skipped in silence: the targets that have what the log lost are BLOCKED as DIVERGED, and get
everything once the operator has chosen what to do. Real processes: the log server, two shards on SQLite, a player.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import logplayer as lp
from logplayer.api.applied import Shards
from tests.process.restored_story import Story, diverged

pytestmark = pytest.mark.slow
OLD, LOST = 20, 20


async def begin(story: Story) -> int:
    """20 entries are played and backed up, 20 more are played. Returns the last index of the backup."""
    await story.play()
    backed_up = await story.append("old", OLD)
    await story.reach(backed_up)
    await story.back_up()
    for name in story.shards:
        story.back_up_shard(name)
    await story.reach(await story.append("lost", LOST))
    return backed_up


async def nothing_is_applied(story: Story) -> None:
    """Both targets have the index of the first new transaction, and neither has it."""
    log = await lp.open_log(story.log)
    try:
        shards = Shards(log, lp.Security())
        newest = await log.newest("new")
        index = newest.index - newest.sequence + 1  # Of the first: all came in one piece.
        for name in story.shards:
            with pytest.raises(lp.TargetError, match=f"{name} has diverged from the log"):
                await shards.wait(index, lp.put("new-0", "new", name).encoded, 30)
        with pytest.raises(lp.TargetError, match="has diverged from the log"):
            await lp.consistent_cut(story.shards, log=log)
    finally:
        await log.close()


async def refill(story: Story, name: str) -> None:
    """The remedy: remove the target, give it an empty store, add it again."""
    await story.run("target", "remove", name, "--force", "--log", story.log)
    await story.end(name)
    story.empty_shard(name)
    await story.serve_shard(name)
    await story.run("target", "add", name, story.shards[name], "--at", "0", "--log", story.log)


async def use_backup(story: Story, name: str) -> None:
    """The other remedy: the target's own backup, from before the histories parted."""
    await story.end(name)
    story.restore_shard(name)
    await story.serve_shard(name)
    await story.run("target", "retry", name, "--player", story.player)


async def unfence(story: Story) -> None:
    for name in story.shards:
        store = ("--store", "sqlite", "--path", str(story.store(name)), "--id", name)
        await story.run("target", "unfence", "--log", story.log, *store, "--yes")
        await story.run("target", "retry", name, "--player", story.player)


@pytest.mark.parametrize("new", [LOST // 2, LOST * 2])
async def test_a_restored_log_and_a_new_player(tmp_path: Path, new: int) -> None:
    """Whether or not the log has outgrown the targets by the time the player starts."""
    async with Story(tmp_path) as story:
        backed_up = await begin(story)
        assert await story.end("player") == 0
        await story.end("log")
        found = await story.restore()
        assert found["last"] == backed_up
        assert {one["target"]: one["verdict"] for one in found["targets"]} == {"a": "DIVERGED", "b": "DIVERGED"}
        assert {one["index"] for one in found["targets"]} == {backed_up + LOST}
        assert f"the log ends at {backed_up}" in found["targets"][0]["detail"]
        await story.serve_log()
        await story.append("new", new)
        await story.play()
        seen = await story.both_blocked()
        assert {one["blocked"]["index"] for one in seen.values()} == {backed_up + LOST}
        assert "restored from an older backup" in seen["a"]["error"]
        assert await story.first() == 1  # Nothing is trimmed by what blocked targets have.
        assert story.rows() == {"old": OLD, "lost": LOST}
        await nothing_is_applied(story)
        await refill(story, "a")
        await story.status(lambda now: now["a"]["state"] == "LIVE" and diverged(now["b"]))
        await use_backup(story, "b")
        last = await story.append("end", 1)
        await story.reach(last)
        assert story.rows() == {"old": OLD, "new": new, "end": 1}


@pytest.mark.parametrize("new", [LOST // 2, LOST * 2])
async def test_a_log_that_is_exchanged_under_a_player(tmp_path: Path, new: int) -> None:
    """It ends with exit code 1: by the entry that does not continue what it read, or because the log is shorter."""
    async with Story(tmp_path) as story:
        await begin(story)
        await story.end("log", signal.SIGKILL)
        await story.restore()
        await story.serve_log()
        await story.append("new", new)
        assert await story.ended("player") == 1
        [message] = [line for line in story.errors("player").splitlines() if line.startswith("logplayer: ")]
        assert "restored from an older backup" in message
        assert "Traceback" not in story.errors("player")
        assert story.rows() == {"old": OLD, "lost": LOST}
        await story.play()
        await story.both_blocked()
        assert story.rows() == {"old": OLD, "lost": LOST}
        # The remedy that keeps everything: the newer log. What only the restored one had is appended again.
        assert await story.end("player") == 0
        await story.end("log")
        (tmp_path / "log").rename(tmp_path / "older")
        (tmp_path / "newer").rename(tmp_path / "log")
        await story.serve_log()
        await story.play()
        last = await story.append("new", new)
        if new > LOST:  # The takeover on the restored log had a larger index than any player of this one has.
            await story.status(lambda now: all(one["error"].startswith("FENCED") for one in now.values()))
            await unfence(story)
        await story.reach(last)
        await story.status(lambda now: all(one["state"] == "LIVE" for one in now.values()))
        assert story.rows() == {"old": OLD, "lost": LOST, "new": new}


@pytest.mark.parametrize("player_first", [True, False])
async def test_a_takeover_that_the_log_lost(tmp_path: Path, player_first: bool) -> None:
    """With the player first, its epoch is the same number as the lost player's: what it sends must not fit either."""
    async with Story(tmp_path) as story:
        await story.play()
        backed_up = await story.append("old", OLD)
        await story.reach(backed_up)
        await story.back_up()
        assert await story.end("player") == 0
        await story.play()  # Its takeover is the first entry after the backup.
        await story.reach(await story.append("lost", LOST))
        assert await story.end("player") == 0
        await story.end("log")
        await story.restore()
        await story.serve_log()
        if player_first:
            await story.play()
            await story.append("new", LOST * 2)
        else:
            await story.append("new", LOST * 2)
            await story.play()
        await story.both_blocked()
        assert story.rows() == {"old": OLD, "lost": LOST}
        for name in story.shards:
            await refill(story, name)
        await story.reach(await story.append("end", 1))
        assert story.rows() == {"old": OLD, "new": LOST * 2, "end": 1}


@pytest.mark.parametrize("new", [LOST // 2, LOST * 2])
async def test_a_log_that_lost_its_tail(tmp_path: Path, new: int) -> None:
    async with Story(tmp_path) as story:
        backed_up = await begin(story)
        assert await story.end("player") == 0
        await story.end("log")
        story.lose_tail(backed_up)
        await story.serve_log()
        await story.append("new", new)
        await story.run("log", "verify", "--log", story.log)  # What is left is a log of its own: only targets can tell.
        await story.play()
        await story.both_blocked()
        assert story.rows() == {"old": OLD, "lost": LOST}
        for name in story.shards:
            await use_backup(story, name)
        await story.reach(await story.append("end", 1))
        assert story.rows() == {"old": OLD, "new": new, "end": 1}


async def test_a_target_that_was_restored_from_its_own_backup(tmp_path: Path) -> None:
    """Its history is the log's: it just catches up."""
    async with Story(tmp_path) as story:
        await begin(story)
        await use_backup(story, "a")
        await story.reach(await story.append("new", 5))
        await story.status(lambda now: all(one["state"] == "LIVE" for one in now.values()))
        assert story.rows() == {"old": OLD, "lost": LOST, "new": 5}
