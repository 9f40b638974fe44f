"""The actions that are decisions in the log: members, and quarantined entries. They outlive the player."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from logplayer.admin.app import Action, Facts
from logplayer.config import Config
from logplayer.core.entry import Decision, Quarantined, QuarantineRevoked, TargetAdded, TargetRemoved
from logplayer.errors import UserError
from logplayer.log import control_chain as chain
from logplayer.log.protocol import Log
from logplayer.names import check_target
from logplayer.player.decisions import decide_on, redrive
from logplayer.player.quarantine_rules import QuarantineFacts, check_quarantine, check_revocation
from logplayer.wire.addresses import parse as parse_target


class Decisions:
    """What may be decided about the log that ``log`` gives; ``status`` is that of its player."""

    def __init__(self, log: Callable[[], Log], config: Config, status: Callable[[], Awaitable[Facts]]) -> None:
        self._log = log
        self._config = config
        self._status = status

    def actions(self) -> dict[str, Action]:
        """By name."""
        return {
            "add": self._add,
            "remove": self._remove,
            "quarantine": self._quarantine,
            "redrive": self._redrive,
        }

    async def _add(self, question: Facts) -> Facts:
        name, address = check_target(text(question, "target")), text(question, "address")
        parse_target(address)
        at = question.get("at")
        return await self._decide(TargetAdded(name, None if at is None else number(question, "at"), address))

    async def _remove(self, question: Facts) -> Facts:
        return await self._decide(TargetRemoved(text(question, "target")), force=question.get("force") is True)

    async def _quarantine(self, question: Facts) -> Facts:
        name, index = text(question, "target"), number(question, "index")
        check_quarantine(name, index, await self._look(name), question.get("force") is True)
        return await self._decide(Quarantined(name, index, str(question.get("reason", ""))))

    async def _redrive(self, question: Facts) -> Facts:
        """Before the target gets to a quarantined entry: revoke the decision. Afterwards: append its part again."""
        name, index = text(question, "target"), number(question, "index")
        seen = await self._look(name)
        if seen.index >= index:
            return {"index": await redrive(self._log(), seen.control, name, index)}
        check_revocation(name, index, seen, False)
        return await self._decide(QuarantineRevoked(name, index, "redriven"))

    async def _look(self, name: str) -> QuarantineFacts:
        log, status = self._log(), await self._status()
        control = (await chain.load(log)).control(self._config.map)
        found: Mapping[str, Any] | None = next((one for one in status["targets"] if one["target"] == name), None)
        index = found["index"] if found else -1
        return QuarantineFacts((await log.info()).last, control, found, index, f"this player does not play to {name}")

    async def _decide(self, record: Decision, *, force: bool = False) -> Facts:
        index = await decide_on(self._log(), record, self._config.map, self._config.targets, force=force)
        return {"index": index}


def text(question: Facts, name: str) -> str:
    """A field that must be there."""
    value = question.get(name)
    if not isinstance(value, str) or not value:
        raise UserError(f"the field {name} is missing; give it as text")
    return value


def number(question: Facts, name: str) -> int:
    """A field that must be there, from 0 on."""
    value = question.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise UserError(f"the field {name} is not a number from 0 on")
    return value
