"""The custom target in docs/targets.md is right as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from logplayer.target.protocol import Target
from logplayer.target.server import TargetServer
from logplayer.testing.conform import RULES, conform

DOCS = Path(__file__).parents[2] / "docs"


def documented_target(path: Path) -> Any:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "targets.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(next(block for block in blocks if "class Orders" in block), names)
    return names["Orders"](path)


async def test_the_documented_target_keeps_the_rules(tmp_path: Path) -> None:
    target = documented_target(tmp_path / "orders.db")
    assert isinstance(target, Target)

    async def dump() -> dict[bytes, bytes]:
        return dict(target.db.execute("SELECT id, body FROM orders"))

    server = TargetServer({"orders": target})
    address = (await server.start(tcp="127.0.0.1:0"))[0]
    verdicts = await conform(address, "orders", dump=dump)
    await server.stop()
    assert [str(verdict) for verdict in verdicts if verdict.ok is False] == []
    target.db.close()


async def test_the_reference_names_every_rule() -> None:
    """A rule that the kit checks stands in the protocol, and the other way round."""
    from logplayer.testing import conform_faults, conform_rules  # noqa: F401

    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", (DOCS / "reference" / "protocol.md").read_text()))
    assert set(RULES) <= named, set(RULES) - named
