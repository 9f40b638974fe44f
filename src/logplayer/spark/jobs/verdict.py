"""What an audit found about one target."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

DIFFERENCES_MAX = 20


class Difference(NamedTuple):
    """One key that is not as the log says. ``index`` is the entry that the target should show and does not."""

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    key: bytes
    what: str


@dataclass
class AuditVerdict:
    """What the audit found about one target."""

    target: str
    index: int
    digest: int = 0
    expected: int = 0  # The digest that the log leads to.
    content_checked: bool = False
    entries: int = 0
    keys: int = 0
    differences: list[Difference] = field(default_factory=list)  # The first ones, by entry.
    differing: int = 0
    notes: list[str] = field(default_factory=list)
    problem: str = ""
    judged: bool = True  # False: it could not be compared with the log, and ``problem`` says why.

    def add(self, found: Collection[Difference]) -> None:
        """Count what differs, and keep the first ones."""
        self.differing += len(found)
        self.differences = sorted([*self.differences, *found])[:DIFFERENCES_MAX]

    def leave(self, why: object) -> None:
        """Give up on this target alone."""
        self.judged, self.problem = False, str(why)

    @property
    def right(self) -> bool:
        return self.digest == self.expected and not self.differing and not self.problem

    @property
    def first(self) -> int | None:
        """The first entry that differs, as far as it is known: a row that no entry wrote has none."""
        return next((difference.index for difference in self.differences if difference.index), None)
