"""``logplayer dashboard`` as a process, beside a player that wants an operator's token."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.admin.page_world import OPERATOR, PageWorld

SECONDS = 120.0


def asked(url: str, token: str, body: Any = None) -> Any:
    """The answer, open: a stream has no end."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=SECONDS)


def first_event(url: str, token: str) -> tuple[str, dict[str, Any]]:
    with asked(url, token) as answer:
        name, data = answer.readline().decode(), answer.readline().decode()
    return name.removeprefix("event: ").strip(), json.loads(data.removeprefix("data: "))


def state_of(url: str, token: str, target: str) -> str:
    with asked(f"{url}status", token) as answer:
        return str(next(one["state"] for one in json.load(answer)["targets"] if one["target"] == target))


def comes(url: str, token: str, target: str, state: str) -> None:
    end = time.monotonic() + SECONDS
    while (found := state_of(url, token, target)) != state:
        assert time.monotonic() < end, f"{target} is {found}, not {state}"
        time.sleep(0.1)


def test_a_dashboard_shows_and_acts_with_its_secret_and_ends_well(tmp_path: Path) -> None:
    with PageWorld(tmp_path, 2) as world:
        where = ("--player", world.http, "--http", "127.0.0.1:0", "--token-file", str(tmp_path / "operator"))
        process = world._family.add("dashboard", "dashboard", *where, "--json", "--no-open")
        said = json.loads(process.wait_for(r"\{.*\}").group(0))
        url, _, secret = said["url"].partition("#token=")
        assert said["player"] == world.http
        assert len(secret) >= 16
        assert secret != OPERATOR
        for path, token in (("events", ""), ("events", "guess"), ("events", OPERATOR), ("status", "")):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                asked(f"{url}{path}", token)
        with asked(url, "") as answer:  # The page itself is no secret.
            assert b"<title>LogPlayer</title>" in answer.read()
        comes(url, secret, "shard1", "LIVE")
        name, status = first_event(f"{url}events", secret)
        assert (name, status["kind"], status["state"]) == ("status", "dashboard", "playing")
        assert [target["target"] for target in status["targets"]] == ["shard1", "shard2"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            asked(f"{url}actions/suspend", "", {"target": "shard1"})
        with asked(f"{url}actions/suspend", secret, {"target": "shard1"}) as answer:
            assert answer.status == 200
        comes(url, secret, "shard1", "BLOCKED")
        assert state_of(world.url, "", "shard1") == "BLOCKED"  # At the player itself.
        with asked(f"{url}events", secret) as stream:  # Open to the end.
            stream.readline()
            process.signal(signal.SIGTERM)
            assert process.wait_for_end() == 0
        assert "Traceback" not in process.output.read_text()


def test_a_dashboard_of_a_player_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Not a page that waits for ever."""
    with PageWorld(tmp_path, 1) as world:
        world.player.kill()
        process = world._family.add("dashboard", "dashboard", "--player", world.http, "--json", "--no-open")
        assert process.wait_for_end() == 1
        assert f"no player answers at {world.http}" in process.output.read_text()
