"""How a player ended: a value that callers compare, with the words for people beside it."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any

from logplayer.errors import Malformed


class EndKind(enum.Enum):
    """Why a player has ended. What went wrong is raised instead.

    Attributes:
        STOPPED: It was asked to, and has delivered what it could.
        SUPERSEDED: The log shows the takeover of a newer player.

    Example:
        >>> EndKind.SUPERSEDED is EndKind.STOPPED
        False
    """

    STOPPED = "stopped"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a player.

    Attributes:
        kind: Why it has ended.
        epoch: The newer player's; 0 if there is none.
        reason: A sentence for people; nothing decides by it.
        application: The newer player's Spark application; 0 if it has none or its record is trimmed.

    Example:
        >>> Ended(EndKind.SUPERSEDED, epoch=7).kind is EndKind.SUPERSEDED
        True
    """

    kind: EndKind
    epoch: int = 0
    reason: str = ""
    application: int = 0

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.reason}" if self.reason else self.kind.value

    @property
    def superseded(self) -> bool:
        """Whether a newer player has taken over."""
        return self.kind is EndKind.SUPERSEDED

    def as_json(self) -> dict[str, Any]:
        """The fields by name, for a script and for a heartbeat; ``Ended.from_json`` is the way back.

        Example:
            >>> Ended(EndKind.STOPPED).as_json()["kind"]
            'stopped'
        """
        return {**asdict(self), "kind": self.kind.value}

    @classmethod
    def from_json(cls, fields: Any) -> Ended:
        """The end that ``as_json`` has described.

        Args:
            fields: What ``as_json`` made.

        Raises:
            Malformed: It is something else.

        Example:
            >>> Ended.from_json(Ended(EndKind.SUPERSEDED, epoch=7).as_json()).epoch
            7
        """
        names = {"kind": str, "epoch": int, "reason": str, "application": int}
        if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != names:
            raise Malformed("ended is not how a player ends")
        if fields["kind"] not in [kind.value for kind in EndKind] or min(fields["epoch"], fields["application"]) < 0:
            raise Malformed("ended is not how a player ends")
        return cls(**{**fields, "kind": EndKind(fields["kind"])})


STOPPED = Ended(EndKind.STOPPED)
