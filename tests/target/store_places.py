"""Where tests keep a store of each kind, and what they write into it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from logplayer.core.entry import Message, Session
from logplayer.target.protocol import Change, Store
from logplayer.target.stores.open import STORES, open_store
from logplayer.testing.conformance.client import covering, message
from logplayer.wire import codec


class Place:
    """Where one test's store is."""

    def __init__(self, kind: str, path: str, url: str) -> None:
        self.kind, self.path, self.url = kind, path, url
        self.name = f"t{uuid.uuid4().hex[:8]}"

    def open(self, **more: bool) -> Store:
        return open_store(self.kind, self.name, path=self.path, url=self.url, **more)

    @property
    def options(self) -> list[str]:
        where = ["--path", self.path] if self.path else ["--url", self.url]
        return ["--store", self.kind, "--id", self.name, *where]


@pytest.fixture(params=list(STORES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param in ("postgres", "redis"):
        return Place(request.param, "", request.getfixturevalue(f"{request.param}_url"))
    return Place(request.param, str(tmp_path / "store"), "")


def opening(session: Session, log_id: str = "log") -> Change:
    return Change(session, log_id=log_id)


def playing(session: Session, prev: int, to: int, *messages: Message) -> Change:
    return Change(session, batch=covering(prev, to, *messages))


def of_another_history(change: Change) -> Change:
    """The same, as a log has it that was restored from an older backup."""
    assert change.batch is not None
    return Change(change.session, batch=change.batch._replace(prev_chain=b"another!"))


def put(index: int, key: str = "k", value: str = "") -> Message:
    return message(index, key.encode(), (value or f"v{index}").encode())


def delete(index: int, key: str) -> Message:
    return Message(index, codec.encode_mutation(key.encode(), None).encoded)


def transaction(index: int, **rows: str | None) -> Message:
    """An entry with several rows; None deletes."""
    parts = [codec.encode_mutation(key.encode(), None if v is None else v.encode()).encoded for key, v in rows.items()]
    return Message(index, b"".join(parts))


def content(store: Store) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in store.scan()}
