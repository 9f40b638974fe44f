"""A player's status, asked of whatever answers at an address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logplayer.admin.app import serve
from logplayer.admin.log_face import log_face
from logplayer.admin.status_client import ask_status
from logplayer.admin.target_face import target_face
from logplayer.errors import AddressError, VersionMismatch
from tests.admin.page_face import face_of
from tests.player.player_support import House, logplayer

COMMANDS = (("status",), ("status", "--json"), ("status", "--watch"), ("dashboard", "--no-open"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_another_process_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    """In one line, and exit code 2: nothing is shown that the process does not have."""
    async with House(tmp_path) as house:
        [seat] = await house.targets("a")
        assert seat.server is not None
        assert house._log_server is not None
        faces = {
            "log server": log_face("file://x", house.file, house._log_server),
            "target server": target_face(seat.server),
        }
        for name, face in faces.items():
            server = serve(face)
            where = await server.start("127.0.0.1:0")
            said = await logplayer(*command, "--player", where, code=2)
            assert f"{where} is the HTTP port of a {name}, not of a player; give the address of 'play --http'" in said
            assert len(said.splitlines()) == 1
            await server.stop()


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ({"kind": "capture"}, AddressError, "the HTTP port of a capture"),
        ({"kind": "something"}, AddressError, "is not a player's HTTP port"),
        ({"kind": "player", "version": 2}, VersionMismatch, "in version 2, .* version 1: upgrade logplayer here"),
        ({"kind": "player", "version": 0}, VersionMismatch, "in version 0, .* version 1: upgrade the player"),
        ({"kind": "player", "version": "x"}, AddressError, "is not a player's HTTP port"),
        ({"kind": ["player"]}, AddressError, "is not a player's HTTP port"),
        ({"kind": "new", "version": 2}, VersionMismatch, "upgrade logplayer here"),
    ],
)
async def test_what_cannot_be_shown_is_refused(answer: dict[str, Any], kind: type[Exception], says: str) -> None:
    server = serve(face_of(lambda: answer))
    where = await server.start("127.0.0.1:0")
    with pytest.raises(kind, match=says) as caught:
        await ask_status(where)
    assert where in str(caught.value)
    await server.stop()


@pytest.mark.parametrize("kind", ["player", "spark", "dashboard"])
async def test_whatever_shows_a_player_is_one(kind: str) -> None:
    server = serve(face_of(lambda: {"kind": kind}))
    assert (await ask_status(await server.start("127.0.0.1:0")))["kind"] == kind
    await server.stop()
