"""Server-sent events, the time line, decisions over HTTP, and a page that is relayed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.admin.app import serve
from logplayer.admin.feed import EventFeed, difference
from logplayer.admin.http_client import ask, follow
from logplayer.admin.relay import Relay, following
from logplayer.errors import ConfigError
from logplayer.observe.timeline import FENCE, Timeline
from logplayer.wire.security import NONE, Security
from tests.admin.page_face import BLOCKED, FINE, SLOW, SUSPENDED, a_target, face_of, playing
from tests.admin.test_http import get, send
from tests.player.player_support import PATIENCE, House, until


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with House(tmp_path) as made:
        yield made


class Follower:
    """What a page would know, from the events alone."""

    def __init__(self, where: str, security: Security = NONE) -> None:
        self.status: dict[str, Any] = {}
        self.targets: dict[str, dict[str, Any]] = {}
        self.timeline: list[dict[str, Any]] = []
        self.history: list[list[float]] = []
        self._task = asyncio.create_task(self._follow(where, security))

    async def _follow(self, where: str, security: Security) -> None:
        async with contextlib.aclosing(follow(where, "/events", security)) as events:  # type: ignore[type-var]
            async for name, data in events:
                self.take(name, data)

    def take(self, name: str, data: Any) -> None:
        if name == "status":
            self.status, self.targets = data, {target["target"]: target for target in data["targets"]}
        elif name == "change":
            self.status |= data["set"]
            for gone in data["gone"]:
                del self.targets[gone]
            for target, fields in data["targets"].items():
                self.targets.setdefault(target, {}).update(fields)
        elif name == "timeline":
            self.timeline += data
        else:
            self.history += data

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_the_events_lead_to_the_status(house: House) -> None:
    [seat, _] = await house.targets("ab")
    player = await house.play()
    where = await player.answering()
    page = Follower(where)
    await until(lambda: len(page.targets) == 2, "the first status came")
    index = await house.append(100)
    await until(lambda: all(target["index"] >= index for target in page.targets.values()), "the change came")
    await seat.down()
    await until(lambda: page.targets["a"]["state"] == "SUSPENDED", "a is away")
    await seat.up()
    await until(lambda: page.targets["a"]["state"] == "LIVE", "a is back")
    words = [item["text"] for item in page.timeline if item.get("target") == "a"]
    for part in ("target a: SUSPENDED", "target a: LIVE"):
        assert any(text.startswith(part) for text in words)
    assert [item["number"] for item in page.timeline] == list(range(1, len(page.timeline) + 1))
    await until(lambda: len(page.history) > 0, "the history came")
    status = await ask(where, "/status")
    await until(lambda: page.targets["a"]["index"] == status["targets"][0]["index"], "both say the same")
    await page.stop()


ROWS = st.lists(
    st.fixed_dictionaries(
        {"target": st.sampled_from("abcd"), "index": st.integers(0, 3), "why": st.sampled_from("xy")}
    ),
    max_size=4,
    unique_by=lambda row: row["target"],
)
STATUSES = st.fixed_dictionaries({"targets": ROWS, "epoch": st.just(1), "state": st.sampled_from("pq")})


@given(st.lists(STATUSES, min_size=2, max_size=6))
def test_changes_lead_from_any_status_to_the_next(statuses: list[dict[str, Any]]) -> None:
    page = Follower.__new__(Follower)
    page.take("status", json.loads(json.dumps(statuses[0])))
    for before, after in itertools.pairwise(statuses):
        page.take("change", json.loads(json.dumps(difference(before, after))))
        assert page.targets == {row["target"]: row for row in after["targets"]}
        assert page.status["state"] == after["state"]


async def test_a_listener_that_goes_away_is_forgotten(house: House) -> None:
    await house.targets("a")
    player = await house.play()
    where = await player.answering()
    pages = [Follower(where) for _ in range(5)]
    await until(lambda: all(page.status for page in pages), "all follow")
    for page in pages:
        await page.stop()
    server = player._server
    await until(lambda: not server._state.tasks and not server._state.connections, "nobody is served any more")


async def test_why_a_process_ends_is_the_last_that_its_listeners_hear(house: House) -> None:
    await house.targets("a")
    player = await house.play()
    page = Follower(await player.answering())
    await until(lambda: bool(page.timeline), "it follows")
    await until(lambda: player.state("a") == "LIVE", "nothing else happens")
    player.shell.observed.timeline.say(logging.WARNING, FENCE, "stepping down")
    await player._server.stop()
    await until(lambda: page.timeline[-1]["text"] == "stepping down", "the last item came")
    await page.stop()


async def test_what_happens_while_a_listener_takes_the_last_items_comes_next() -> None:
    timeline = Timeline()

    async def status() -> dict[str, Any]:
        return {"player": "p", "epoch": 1, "targets": []}

    feed = EventFeed(status, timeline)
    timeline.say(logging.INFO, FENCE, "the first")
    heard: list[str] = []
    async with contextlib.aclosing(feed.follow()) as events:  # type: ignore[type-var]
        async with asyncio.timeout(PATIENCE):
            async for one in events:
                if one.startswith(b"event: timeline"):
                    heard.append(one.decode())
                    if len(heard) == 2:
                        break
                    timeline.say(logging.INFO, FENCE, "the second")  # The listener has not asked for more yet.
    assert "the first" in heard[0]
    assert "the second" not in heard[0]
    assert "the second" in heard[1]
    assert "the first" not in heard[1]


async def test_members_are_added_and_removed_over_http(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    where = await player.answering()
    [seat] = await house.targets("c")
    assert (await ask(where, "/actions/add", {"target": "c", "address": seat.address, "at": 0}))["index"] > 0
    await until(lambda: player.state("c") == "LIVE", "c is a member")
    await ask(where, "/actions/remove", {"target": "c"})
    await until(lambda: player.state("c") == "", "c is not a member any more")
    await until(lambda: player.target("a").index >= 1, "a has the entry that is asked about below")
    for action, body, says in (
        ("remove", {"target": "a"}, "still gives keys to a"),
        ("remove", {"target": "nobody"}, "not a member"),
        ("add", {"target": "c"}, "address is missing"),
        ("add", {"target": "c", "address": "nowhere"}, "not a target's address"),
        ("add", {"target": "c", "address": seat.address, "at": -1}, "at is not a number"),
        ("quarantine", {"target": "a", "index": 1}, "already applied"),
        ("quarantine", {"target": "a", "index": True}, "index is not a number"),
        ("redrive", {"target": "a", "index": 1}, "not quarantined"),
        ("retry", {"target": "nobody"}, "has no target 'nobody'"),
        ("suspend", {}, "target is missing"),
    ):
        with pytest.raises(ConfigError, match=says):
            await ask(where, f"/actions/{action}", body)


async def test_an_audit_is_reported(house: House) -> None:
    await house.targets("a")
    player = await house.play()
    where = await player.answering()
    assert (await ask(where, "/status"))["audit"] is None
    await ask(where, "/actions/audited", {"right": False, "targets": 2, "wrong": ["a"]})
    audit = (await ask(where, "/status"))["audit"]
    assert (audit["right"], audit["targets"], audit["wrong"]) == (False, 2, ["a"])
    with pytest.raises(ConfigError, match="an audit report has"):
        await ask(where, "/actions/audited", {"right": "yes"})


async def test_a_relay_shows_the_player_and_says_when_it_is_away(house: House) -> None:
    await house.targets("a")
    player = await house.play()
    where = await player.answering()
    relay, token = Relay(where), Security(token="t")
    relay.more = {"demo": {"phase": "now"}}
    server = serve(relay.face(), token)
    at = await server.start("127.0.0.1:0")
    async with following(relay):
        page = Follower(at, token)
        await until(lambda: "a" in page.targets, "the relay shows the player")
        assert page.status["demo"] == {"phase": "now"}
        await ask(at, "/actions/suspend", {"target": "a"}, token)
        await until(lambda: page.targets["a"]["state"] == "BLOCKED", "the action was relayed")
        with pytest.raises(ConfigError, match="has no target 'x'"):
            await ask(at, "/actions/retry", {"target": "x"}, token)
        with pytest.raises(ConfigError, match="token"):
            await ask(at, "/status")
        assert any("took over" in item["text"] for item in page.timeline)
        await player._server.stop()
        await until(lambda: page.status["state"] == "away", "the relay says that the player is away")
        await page.stop()
    await server.stop()


async def test_a_relay_reads_all_that_a_new_player_has_said() -> None:
    """Also if that is more than was read of the player before it."""
    told, players = [Timeline(), Timeline()], []
    for number, said in ((0, 3), (1, 7)):
        for item in range(said):
            told[number].say(logging.INFO, FENCE, f"item {item} of player {number}")
        players.append(serve(replace(face_of(lambda: playing([])), timeline=told[number])))
    where = await players[0].start("127.0.0.1:0")
    relay = Relay(where)
    async with following(relay):
        await until(lambda: relay.timeline.number == 3, "the first player was read")
        await players[0].stop()
        await until(lambda: relay.timeline.number == 4, "the relay says that it is away")
        await players[1].start(where)
        last = "item 6 of player 1"
        await until(lambda: relay.timeline.since(0)[-1]["text"] == last, "the second player was read")
    await players[1].stop()
    texts = [item["text"] for item in relay.timeline.since(0)]
    assert texts[:3] == [f"item {item} of player 0" for item in range(3)]
    assert texts[4:] == [f"item {item} of player 1" for item in range(7)]


async def test_the_page_asks_for_nothing_else(house: House) -> None:
    await house.targets("a")
    where = await (await house.play()).answering()
    for path in ("/", "/page.css", "/page.js", "/parts.js", "/actions.js", "/icon.svg"):
        head, _, body = (await send(where, get(path))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"default-src 'none'" in head
        assert len(body) > 100
        assert b"http" not in body.replace(b"http://www.w3.org/2000/svg", b"").replace(b"HTTP", b"")


async def test_status_watch_is_plain_text_when_it_is_piped(house: House) -> None:
    await house.targets("a")
    where = await (await house.play()).answering()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "logplayer.cli", "status", "--watch", "--player", where),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    said = b""
    while said.count(b"player ") < 2:
        said += await asyncio.wait_for(process.stdout.read(1000), PATIENCE)
    process.terminate()
    await process.wait()
    assert b"\x1b" not in said


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
async def test_a_piped_watch_outlives_its_player(form: tuple[str, ...]) -> None:
    """It says that the player is away, and goes on when another answers there."""
    first = serve(face_of(lambda: {**playing([]), "player": "first"}))
    where = await first.start("127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "logplayer.cli", "status", "--watch", "--player", where, *form),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    second = serve(face_of(lambda: {**playing([]), "player": "second"}))
    try:
        assert b"first" in await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        await first.stop()
        said = (await asyncio.wait_for(process.stderr.readline(), PATIENCE)).decode()
        assert said.startswith(f"no player answers at {where}")
        assert said.endswith("; trying again\n")
        await second.start(where)
        line = b"first"
        while b"second" not in line:
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
            assert line, await process.stderr.read()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await second.stop()


def test_the_live_view_shows_what_an_operator_suspended_as_the_page_does() -> None:
    """After everything that needs a look, before what has everything, and in a neutral style."""
    from rich.console import Console

    from logplayer.cli.watch_view import view

    states: dict[str, dict[str, Any]] = {"fine": FINE, "held": SUSPENDED, "slow": SLOW, "blocked": BLOCKED}
    console = Console(width=160, record=True, color_system="standard", file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(view(playing([a_target(name, **fields) for name, fields in states.items()]), []))
    lines = {line.split()[0]: line for line in console.export_text(clear=False).splitlines() if line.strip()}
    assert [name for name in lines if name in states] == ["blocked", "slow", "held", "fine"]
    assert lines["held"].split()[1] == "HELD"
    assert lines["held"].rstrip().endswith("waits for you to resume it")
    assert "needs you" not in lines["held"]
    styled = {line.split()[0]: line for line in console.export_text(styles=True).splitlines() if line.strip()}
    assert ("\x1b[1;31m" in styled["blocked"], "\x1b[1;31m" in styled["held"]) == (True, False)
    assert "\x1b[2mHELD" in styled["held"]


def test_the_live_view_shows_the_worst_first() -> None:
    from rich.console import Console

    from logplayer.cli.watch_view import view
    from tests.admin.test_page_many import a_status, target

    status = a_status(1)
    rows = [target(number, 1, random.Random(number)) for number in range(3)]
    rows[2] |= {"state": "BLOCKED", "outlook": "needs you", "why": "POISON: no such column", "whether": "needs you"}
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    item = {"at": 0.0, "text": "target shard2: BLOCKED", "level": "error"}
    console.print(view({**status, "targets": rows}, [item]))
    said = console.export_text()
    assert said.index("shard2") < said.index("shard0")
    assert "POISON: no such column" in said
    assert "target shard2: BLOCKED" in said
