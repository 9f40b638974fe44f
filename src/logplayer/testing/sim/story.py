"""A simulated world that tells a story: the same log, targets, hosts and checkers, without dice."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from logplayer.core import effects, events
from logplayer.core.entry import Quarantined, QuarantineRevoked, Takeover, TargetAdded, TargetRemoved
from logplayer.core.limits import Limits
from logplayer.testing.sim.checkers import Checkers
from logplayer.testing.sim.host import SimHost
from logplayer.testing.sim.options import SimOptions
from logplayer.testing.sim.simulation import Simulation
from logplayer.testing.sim.world import SimTarget
from logplayer.wire.entries import encode_mutation

ACTS_MAX = 20_000  # A story that is not quiet by then never will be.


class _Steady(random.Random):
    """No dice: the most is taken, and what happens by chance does not happen."""

    def random(self) -> float:
        return 1.0

    def choice(self, seq: Any) -> Any:
        return max(seq)

    def randrange(self, *_: Any, **__: Any) -> int:
        return 0


class _Watch(Checkers):
    """The simulator's checkers. A story may tell somebody to re-seed: it trims by hand."""

    def reported(self, report: effects.Report) -> None:
        pass


class _Teller(SimHost):
    """A host that also tells what the trace leaves out."""

    def tell(self, fact: events.Event) -> None:
        story = self.sim
        assert isinstance(story, Story)
        before = {name: queue.reconnect.attempts for name, queue in self.core.queues.items()}
        super().tell(fact)
        for name, queue in self.core.queues.items():
            if queue.reconnect.attempts > before.get(name, 0):
                story.say(f"P{self.core.epoch} lost {name}: {queue.reconnect.last_error}")

    def fetch(self, _: object = None) -> None:
        super().fetch()
        self.want_fetch()

    def _tell_report(self, request: effects.Report) -> None:
        self._say(f"P{self.core.epoch} reports {request.target}: {request.what}")
        self.sim.checkers.reported(request)

    def _tell_step_down(self, request: effects.StepDown) -> None:
        self._say(f"P{self.core.epoch} steps down: {request.reason}")
        self.sim.checkers.stepped_down(self, request)
        self.kill()

    def _tell_stop(self, request: effects.Stop) -> None:
        self._say(f"P{self.core.epoch} has drained and stops")
        self.sim.checkers.stopped(self)
        self.kill()

    def _say(self, line: str) -> None:
        assert isinstance(self.sim, Story)
        self.sim.say(line)

    _performers: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        **SimHost._performers,
        effects.Report: _tell_report,
        effects.StepDown: _tell_step_down,
        effects.Stop: _tell_stop,
    }


class Story(Simulation):
    """One world of a scenario file: the simulator's log, targets and hosts, without its dice."""

    _host_class = _Teller

    def __init__(self, targets: int, map_: str, trim: bool, archive: bool, limits: Limits) -> None:
        self.lines: list[str] = []
        options = SimOptions(
            seed=0,
            targets=targets,
            entries=0,
            players=0,
            steps=0,
            map=map_,
            sparse=0.0,
            fault=0.0,
            tick=0.0,
            late_log=0.0,
            plain=False,
            membership=True,
            poison=False,
            trim=trim,
            archive=archive,
            restore=False,
            limits=limits,
        )
        super().__init__(options, sink=self._recorded)
        self.rng = _Steady()
        self.checkers = _Watch(self)
        self.faulty = False
        self._gap = 0

    def say(self, line: str) -> None:
        """Print a line."""
        self.lines.append(line)

    def _recorded(self, record: Mapping[str, object]) -> None:
        line = told(record)
        if line:
            self.say(line)

    def settle(self) -> None:
        """Everything that can happen without the passing of time, first come, first served."""
        for _ in range(ACTS_MAX):
            if not self._ready:
                return
            act, argument = self._ready.pop(0)
            act(argument)
            owner = getattr(act, "__self__", None)
            if isinstance(owner, SimTarget):
                self.checkers.applied(owner)
        raise AssertionError(f"not quiet after {ACTS_MAX} acts: {self.describe()}")

    # --- Commands: each takes the words after its name ------------------------------------------------------

    def append(self, *words: str) -> None:
        count = int(words[0].removeprefix("x")) if "=" not in words[0] else 1
        parts = [word.split("=", 1) for word in words if "=" in word]
        payload = b""
        names: dict[str, bytes] = {}
        for name, text in parts:
            encoded = encode_mutation(name.encode(), text.encode(), name).encoded
            payload += encoded
            names[name] = names.get(name, b"") + encoded
        for _ in range(count):
            self._append(payload, None, dict(names))

    def gap(self, count: str) -> None:
        self._gap = int(count)

    def _next_index(self) -> int:
        index = self.log.last + 1 + self._gap
        self._gap = 0
        return index

    def start(self, at: str = "") -> None:
        epoch = self._append_record(Takeover(player=f"p{len(self.hosts) + 1}"))
        self._play(epoch, int(at.removeprefix("at=")) if at else epoch)

    def run_quiet(self) -> None:
        self.settle()

    def tick(self, span: str, times: str = "x1") -> None:
        for _ in range(int(times.removeprefix("x"))):
            self._tick(int(span))
            self.settle()

    def crash(self, name: str) -> None:
        self.targets[name].crash()

    def restart(self, name: str) -> None:
        self.targets[name].restart()

    def freeze(self, name: str) -> None:
        self._one(name).frozen = True

    def thaw(self, name: str) -> None:
        self._one(name).thaw()

    def cut(self, name: str, how: str = "") -> None:
        self.hosts[-1].cut(self.targets[name], silent=how == "silent")

    def kill(self, name: str) -> None:
        self._host(name).kill()

    def stop(self, name: str) -> None:
        self._host(name).tell(events.StopRequested())

    def retry(self, name: str) -> None:
        self.hosts[-1].tell(events.RetryRequested(name))

    def poison(self, name: str, index: str) -> None:
        self.targets[name].poisoned = {int(index)}

    def lie(self, name: str, kind: str = "", index: str = "0") -> None:
        self.targets[name].lie = (kind, int(index)) if kind else None

    def quarantine(self, name: str, index: str) -> None:
        self.quarantine_ordered.add((name, int(index)))
        self._append_record(Quarantined(name, int(index)))

    def unquarantine(self, name: str, index: str) -> None:
        self.quarantine_ordered.discard((name, int(index)))
        self._append_record(QuarantineRevoked(name, int(index)))

    def add(self, name: str) -> None:
        at = self._append_record(TargetAdded(name))
        if name not in self.targets:
            self._make_target(name, at, 0)
        self.registered[name] = None

    def remove(self, name: str) -> None:
        self._append_record(TargetRemoved(name))
        del self.registered[name]

    def refill(self, name: str, index: str) -> None:
        self.targets[name].refill(int(index), self.log.chain_at(int(index)) or b"")
        self.started_at[name], self.started_digest[name] = int(index), 0
        self.checkers.forget(name)

    def restore_log(self, index: str) -> None:
        self.restore(int(index))

    def trim_by_hand(self, index: str) -> None:
        self.log.trimmed = max(self.log.trimmed, int(index))

    def archive_up_to(self, index: str) -> None:
        self.archived = int(index)
        for host in self.hosts:
            if host.alive:
                host.tell(events.Archived(self.archived))

    def status(self) -> None:
        for host in self.hosts:
            if host.alive:
                core = host.core
                self.say(f"P{core.epoch} at {core.current}, log {self.log.trimmed + 1}..{self.log.last}")
                for queue in core.queues.values():
                    blocked = f" blocked: {queue.reconnect.blocked.kind}" if queue.reconnect.blocked else ""
                    self.say(
                        f"  {queue.name} {queue.state.value} acked={queue.acked} sent={queue.sent} "
                        f"covered={queue.covered} queued={len(queue.messages)} in_flight={queue.window.count}{blocked}"
                    )
        for target in self.targets.values():
            held = " ".join(f"{'!' if one.quarantine else ''}{one.index}" for one in target.applied)
            self.say(f"  {target.name} has index {target.position.index} and holds [{held}]")

    def _host(self, name: str) -> SimHost:
        return self.hosts[int(name.removeprefix("p")) - 1]

    def _one(self, name: str) -> SimHost | SimTarget:
        return self._host(name) if name.startswith("p") else self.targets[name]

    commands: ClassVar[dict[str, Callable[..., None]]] = {
        "append": append,
        "gap": gap,
        "start": start,
        "run": run_quiet,
        "tick": tick,
        "crash": crash,
        "restart": restart,
        "freeze": freeze,
        "thaw": thaw,
        "cut": cut,
        "kill": kill,
        "stop": stop,
        "retry": retry,
        "poison": poison,
        "lie": lie,
        "quarantine": quarantine,
        "unquarantine": unquarantine,
        "add": add,
        "remove": remove,
        "refill": refill,
        "restore": restore_log,
        "trim": trim_by_hand,
        "archived": archive_up_to,
        "status": status,
    }


def told(record: Mapping[str, object]) -> str:
    """A trace record as a line of a story; empty if the story tells it otherwise."""
    what, node, target = str(record["ev"]), str(record["node"]), record.get("target", "")
    session = f"{record.get('epoch')}.{record.get('term')}"
    who = node if node.startswith("P") else str(target)
    indexes = record.get("indexes") or ()
    entries = " ".join(map(str, indexes)) if isinstance(indexes, list) and indexes else "empty"
    demoted = record.get("demoted") or ()
    demotes = f", demotes {' '.join(demoted)}" if isinstance(demoted, list) and demoted else ""
    return {
        "start": f"{who} starts at {record.get('current')}",
        "dispatch": f"{who} dispatch {record.get('index')}{demotes}",
        "jump": f"{who} jumps to {record.get('current')}{demotes}",
        "open": f"{who} open {target} as {session}",
        "opened": f"{who} opened {target} {session} at {record.get('index')}",
        "read": f"{who} read {target} {session} ({record.get('after')},{record.get('through')}]",
        "join": f"{who} join {target}",
        "send": f"{who} send {target} {session} ({record.get('prev')},{record.get('to')}] {entries}",
        "ack": f"{who} ack {target} {session} {record.get('index')}",
        "suspend": f"{who} suspend {target} {session}",
        "trim": f"{who} trim {record.get('to')}",
        "accept": f"{who} accept {session} at {record.get('index')}",
        "refuse": f"{who} refuse {session}",
        "apply": f"{who} apply {session} up to {record.get('index')}",
        "reject": f"{who} reject {session}",
        "crash": f"{who} is back at {record.get('index')}",
    }.get(what, "")
