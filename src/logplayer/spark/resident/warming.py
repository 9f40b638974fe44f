"""Which executors start their Python before they have anything to play.

The first Python task of an executor waits for classes of the JVM, for Spark's Python daemon and for its imports: on a
busy machine that was most of the time in which the group of a lost executor was played by nobody. So an executor that
is new runs a task that does nothing, as soon as every group has what it needs itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Warming:
    """What was asked to start."""

    _asked: frozenset[str] = frozenset()

    def due(self, executors: Mapping[str, int], groups: int) -> list[str]:
        """The executors that are new, each once; none if that could take a slot that a group needs.

        Args:
            executors: The slots of each.
            groups: How many slots the application's own tasks need. They all have one.
        """
        if len(executors) < 2 or sum(executors.values()) <= groups:
            return []
        new = sorted(executors.keys() - self._asked)
        self._asked = frozenset(executors)
        return new
