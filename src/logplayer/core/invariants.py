"""Named invariants. They stay on in production; those that ``spec/LogPlayer.tla`` also states have the same name there.

============================ =========================================================================
name                         what it says
============================ =========================================================================
LegalTransition              a target queue changes its state only along the table in ``core.target_queue``
IndexOrder                   acked <= sent <= covered, for every target with a session
QueueHoldsCoverage           what is queued rises strictly and lies in (sent, covered]
LiveCoversMain               a LIVE target's coverage is at least the main stream's index
MemoryBound                  queued and in-flight entries and bytes stay within their limits
BatchCoversItsEntries        prev < first index, indexes rise, last index <= to
MainRises                    the main stream's entries arrive in strictly rising order
TrimSafe                     the log is trimmed only up to what every registered target has durably
OneWriter                    a batch is handed to a stream only when the stream is ready for it
============================ =========================================================================

What a *peer* does wrong is not an invariant: a target that acks what was never sent loses its session and nothing else.
"""

from __future__ import annotations

NAMES = frozenset(
    {
        "LegalTransition",
        "IndexOrder",
        "QueueHoldsCoverage",
        "LiveCoversMain",
        "MemoryBound",
        "BatchCoversItsEntries",
        "MainRises",
        "TrimSafe",
        "OneWriter",
    }
)


class InvariantViolation(BaseException):
    """The player's own state is wrong, so the only safe act is to stop.

    It is a ``BaseException``: no ``except Exception`` may swallow it, and it survives ``python -O``.
    """

    def __init__(self, name: str, facts: dict[str, object]) -> None:
        self.name = name
        self.facts = facts
        listed = ", ".join(f"{key}={value!r}" for key, value in facts.items())
        super().__init__(f"invariant {name} is broken: {listed}")


def broken(name: str, **facts: object) -> InvariantViolation:
    """The exception to raise when the invariant ``name`` does not hold.

    Hot paths test first and call this only on failure (``if not ok: raise broken(...)``): building the facts
    costs more than the test.
    """
    assert name in NAMES, name
    return InvariantViolation(name, facts)
