"""The custom target in docs/targets.md passes the conformance kit as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from logplayer.core import digest as digests
from logplayer.core.chain import GENESIS, extend, mark_of
from logplayer.core.entry import Delivery
from logplayer.log.protocol import Kind
from logplayer.target.protocol import Target
from logplayer.target.server import TargetServer
from logplayer.testing.conformance.targets import RULES, conform

DOCS = Path(__file__).parents[2] / "docs"


def documented_target(path: Path) -> Any:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "targets.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(next(block for block in blocks if "class Orders" in block), names)
    return names["Orders"](path)


async def test_the_documented_target_keeps_the_rules(tmp_path: Path) -> None:
    target = documented_target(tmp_path / "orders.db")
    assert isinstance(target, Target)
    db = target.db  # type: ignore[attr-defined]

    async def dump() -> dict[bytes, bytes]:
        return dict(db.execute("SELECT id, body FROM orders"))

    server = TargetServer({"orders": target})
    address = (await server.start(tcp="127.0.0.1:0"))[0]
    verdicts = await conform(address, "orders", dump=dump)
    await server.stop()
    assert [str(verdict) for verdict in verdicts if verdict.ok is False] == []
    db.close()


async def test_the_reference_names_every_rule() -> None:
    """A rule that the kit checks stands in the protocol, and the other way round."""
    from logplayer.testing.conformance import faults, histories, rules  # noqa: F401

    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", (DOCS / "reference" / "protocol.md").read_text()))
    assert set(RULES) <= named, set(RULES) - named


def test_the_hashes_of_the_reference_are_right() -> None:
    """What another language computes by the page is what is computed here."""
    page = (DOCS / "reference" / "protocol.md").read_text()
    digest = digests.to_bytes(digests.extend(0, [Delivery(7, b"abc")]))
    assert f"payload `abc`: `{digest.hex()}`" in page
    first = extend(GENESIS, Kind.DATA, "orders", 1, mark_of(b"abc"))
    second = extend(first, Kind.CONTROL, "logplayer.control", 1, mark_of(b"def"))
    told = re.findall(r"`([0-9a-f]{16})`", page)
    assert told == [first.hex(), second.hex()]
