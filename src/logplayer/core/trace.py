"""Trace records: one dict per transition, in the shape that ``spec/TraceLogPlayer.tla`` is checked against.

A player's records carry ``node = "P<epoch>"``, a target's ``node = "T<name>"``. Only the order per node matters.
Tracing is off unless a sink is given; the core calls the sink in the step that made the transition. It only observes:
the effects and their order are the same with a sink and without. Where the spec wants another order of the lines than
that of the effects, the lines are kept back, never the effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from logplayer.core.effects import SendBatch
from logplayer.core.entry import Session

Sink = Callable[[Mapping[str, object]], None]


class PlayerTrace:
    """Writes what one player does."""

    __slots__ = ("_epoch", "_node", "_sink")

    def __init__(self, epoch: int, sink: Sink) -> None:
        self._epoch = epoch
        self._node = f"P{epoch}"
        self._sink = sink

    def main(self, event: str, **facts: object) -> None:
        """A transition of the player as a whole: start, jump, trim, stepdown."""
        self._sink({"node": self._node, "ev": event, "epoch": self._epoch, **facts})

    def dispatch(self, index: int, demoted: list[str], passed: list[SendBatch]) -> None:
        """An entry was dispatched, and ``passed`` left with it. To the spec that is the dispatch and then the sends."""
        self.main("dispatch", index=index, demoted=demoted)
        for batch in passed:
            self.send(batch)

    def session(self, event: str, target: str, session: Session, **facts: object) -> None:
        """A transition of one session: open, opened, read, join, ack, suspend."""
        self._sink(
            {
                "node": self._node,
                "ev": event,
                "target": target,
                "epoch": session.epoch,
                "term": session.term,
                **facts,
            }
        )

    def send(self, batch: SendBatch) -> None:
        """A batch was handed to the stream."""
        indexes = [message.index for message in batch.messages]
        self.session("send", batch.target, batch.session, prev=batch.prev, to=batch.to, indexes=indexes)


class TargetTrace:
    """Writes what one target does."""

    __slots__ = ("_name", "_sink")

    def __init__(self, name: str, sink: Sink) -> None:
        self._name = name
        self._sink = sink

    def session(self, event: str, session: Session, **facts: object) -> None:
        """accept and apply (with ``index``), refuse and reject."""
        self._sink(
            {
                "node": f"T{self._name}",
                "ev": event,
                "target": self._name,
                "epoch": session.epoch,
                "term": session.term,
                **facts,
            }
        )

    def crash(self, index: int) -> None:
        """The target restarted and has ``index``."""
        self._sink({"node": f"T{self._name}", "ev": "crash", "target": self._name, "index": index})


def config(
    entries: Sequence[tuple[int, Sequence[str]]], targets: Sequence[str], queue: int, window: int, batch: int
) -> dict[str, object]:
    """The first line of a trace: the log's entries with their targets, and the limits that the spec needs."""
    return {
        "ev": "config",
        "entries": [[index, list(names)] for index, names in entries],
        "targets": list(targets),
        "queue_count_max": queue,
        "window_batches_max": window,
        "batch_count_max": batch,
    }
