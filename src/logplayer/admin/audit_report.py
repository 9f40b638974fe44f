"""The verdict of the last audit, as it was reported to a player or a driver. It is kept until that process ends."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from logplayer.admin.app import Facts
from logplayer.errors import UserError
from logplayer.observe.timeline import AUDIT, Timeline
from logplayer.wording import plural


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found."""

    at: float  # When, in seconds since 1970.
    right: bool
    targets: int  # How many were compared.
    wrong: list[str]  # Those that differ from the log, or could not be compared.

    @classmethod
    def read(cls, question: Facts) -> AuditReport:
        """Raises UserError if it is not a report."""
        right, targets, wrong = question.get("right"), question.get("targets"), question.get("wrong")
        if type(right) is not bool or type(targets) is not int or not isinstance(wrong, list):
            raise UserError("an audit report has right (true or false), targets (a number) and wrong (a list of names)")
        return cls(round(time.time(), 3), right, targets, [str(name) for name in wrong[:100]])

    def tell(self, timeline: Timeline) -> None:
        """As an item of the time line."""
        if self.right:
            text = f"audit: {plural(self.targets, 'target')} hold exactly what the log says"
            timeline.say(logging.INFO, AUDIT, text)
        else:
            timeline.say(logging.ERROR, AUDIT, f"audit: not as the log says: {', '.join(self.wrong)}")
