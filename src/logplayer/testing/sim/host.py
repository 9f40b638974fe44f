"""A simulated host: one real player core, and a shell that performs its effects on the simulated world."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from logplayer.core import effects, events
from logplayer.core.entry import Delivery
from logplayer.core.fence import Batch
from logplayer.core.player import Player
from logplayer.testing.sim.world import END, SimLink, SimTarget, lost

if TYPE_CHECKING:
    from logplayer.testing.sim.simulation import Simulation

PROBE = "probe"


class SimHost:
    """The shell around one core. It decides nothing; the scheduler decides when each of its acts happens."""

    def __init__(self, sim: Simulation, core: Player) -> None:
        self.sim = sim
        self.core = core
        self.alive = True
        self.frozen = False
        self.stalled: list[tuple[Callable[[Any], None], Any]] = []
        self.links: dict[str, SimLink] = {}
        self.fetched = core.current  # The main fetcher's place: it reads ahead of nothing.
        self.fetching = False
        self._takeover = sim.log.chain_at(core.epoch)

    def __repr__(self) -> str:
        return f"<SimHost {self.core!r} alive={self.alive}>"

    # --- Events ---------------------------------------------------------------------------------------------

    def tell(self, fact: events.Event) -> None:
        """One step of the core. As in the real shell, each effect is performed before the next is decided."""
        self.core.take(fact, self._perform)
        self.sim.checkers.stepped(self)

    def _perform(self, request: effects.Effect) -> None:
        self._performers[type(request)](self, request)

    def receive(self, link: SimLink) -> None:
        """Take the next message that the target sent, in order."""
        if self.frozen:
            self.stalled.append((self.receive, link))
            return
        if not self.alive or not link.to_player or link.hole:
            return
        message = link.to_player.popleft()
        self.tell(lost(link, "the stream ended") if message is END else message)

    def fetch(self, _: object = None) -> None:
        """The main fetcher reads a few entries, or finds that the log has been trimmed past its place."""
        if self.frozen:
            self.stalled.append((self.fetch, None))
            return
        self.fetching = False
        if not self.alive:
            return
        log = self.sim.log
        if self.core.current < self.core.epoch <= log.trimmed:
            self.kill()  # Whether its takeover was there when it was trimmed, nobody can tell.
            return
        if self.fetched < log.trimmed:
            self.fetched = log.trimmed
            value = log.chain_at(log.trimmed) or b""
            self.tell(events.MainTrimmed(log.trimmed + 1, self.sim.control_now(), value))
        entries = log.read(self.fetched, self.sim.rng.choice((1, 1, 2, 4)))
        if not self._same_history(entries[-1].index if entries else 0):
            self.kill()  # As the real shell: the next player begins with what the log has now.
        elif entries:
            self.fetched = entries[-1].index
            self.tell(events.Fetched(entries))

    def _same_history(self, through: int) -> bool:
        """Whether the log continues what was read, has our takeover where it was, and is not shorter than both."""
        core, log = self.core, self.sim.log
        if log.last < max(core.current, core.epoch):
            return False
        if (
            (through or log.last == core.current)
            and core.current >= log.trimmed
            and log.chain_at(core.current) != core.chain
        ):
            return False
        return not core.current < core.epoch <= through or log.chain_at(core.epoch) == self._takeover

    def survey(self, _: object = None) -> None:
        """Look through what is left of the log up to the takeover, for entries that reach nobody."""
        if self.frozen:
            self.stalled.append((self.survey, None))
        elif self.alive:
            log = self.sim.log
            self.tell(events.Surveyed(self.core.epoch, log.read(log.trimmed, len(log.indexes), self.core.epoch)))

    def want_fetch(self) -> None:
        """Make sure that the main fetcher looks at the log some time soon."""
        if self.alive and not self.fetching and (self.fetched < self.sim.log.last or not self._same_history(0)):
            self.fetching = True
            self.sim.schedule(self.fetch, None)

    # --- Effects --------------------------------------------------------------------------------------------

    def _open(self, request: effects.OpenSession) -> None:
        target = self.sim.targets[request.target]
        self.sim.checkers.opened(self, request.target, request.session)
        link = SimLink(self, target, request.session)
        self.links[request.target] = link
        if not target.up:
            link.up = False
            link.to_player.append(END)
            self.sim.schedule(self.receive, link)
            return
        target.links.append(link)
        self._put(link, request.session)

    def _close(self, request: effects.CloseSession) -> None:
        link = self.links.get(request.target)
        if link is not None and link.session == request.session:
            del self.links[request.target]
            self._put(link, END)

    def _send(self, request: effects.SendBatch) -> None:
        link = self._link(request)
        self.sim.checkers.sent(request, link)
        if link is not None:
            link.writing = True
            _, _, prev, to, messages, prev_chain, to_chain = request
            self._put(link, Batch(prev, to, tuple(messages), prev_chain, to_chain))
        self.sim.schedule(self._wrote, request)

    def _wrote(self, request: effects.SendBatch) -> None:
        if self.frozen:
            self.stalled.append((self._wrote, request))
        elif self.alive:
            link = self._link(request)
            if link is not None:
                link.writing = False
            self.tell(events.Written(request.target, request.session))

    def _probe(self, request: effects.SendProbe) -> None:
        link = self._link(request)
        if link is not None:
            self._put(link, PROBE)

    def _read(self, request: effects.ReadCatchUp) -> None:
        self.sim.schedule(self._read_log, request)

    def _read_log(self, request: effects.ReadCatchUp) -> None:
        """Read now, tell later: in between, the session may die and another begin."""
        log = self.sim.log
        answer: events.Event
        if request.first <= log.trimmed:
            answer = events.CatchUpTrimmed(request.target, request.session, log.trimmed + 1)
        elif log.last < request.last or (self.sim.faulty and self.sim.rng.random() < 0.05):
            answer = events.CatchUpFailed(request.target, request.session, "the log is away")
        elif log.chain_at(request.first - 1) != request.chain:
            answer = events.CatchUpDiverged(request.target, request.session, "the log does not continue it")
        else:
            entries = log.read(request.first - 1, self.sim.rng.choice((1, 2, 5)), request.last)
            through = entries[-1].index if entries else request.last
            value = entries[-1].chain if entries else request.chain
            answer = events.CaughtUp(request.target, request.session, request.first - 1, through, entries, value)
        self.sim.schedule(self._tell_later, answer)

    def _look_up(self, request: effects.LookUp) -> None:
        self.sim.schedule(self._ask_log, request)

    def _ask_log(self, request: effects.LookUp) -> None:
        """Look now, tell later: in between, the log grows and is trimmed."""
        log, index = self.sim.log, request.index
        answer: events.Event
        if self.sim.faulty and self.sim.rng.random() < 0.2:
            answer = events.LookUpFailed(request.target, index, "the log is away")
        else:
            there = log.read(index - 1, 1, index) if log.trimmed < index else []
            record = there[0].record if there else None
            value = log.chain_at(index) if index >= log.trimmed else None
            answer = events.LookedUp(request.target, index, log.trimmed + 1, log.last, record, value)
        self.sim.schedule(self._tell_later, answer)

    def _tell_later(self, answer: events.Event) -> None:
        if self.frozen:
            self.stalled.append((self._tell_later, answer))
        elif self.alive:
            self.tell(answer)

    def _trim(self, request: effects.TrimLog) -> None:
        self.sim.schedule(self._trim_log, request)

    def _trim_log(self, request: effects.TrimLog) -> None:
        if self.sim.log.chain_at(request.index) != request.chain:
            return  # It means another history: the log refuses, and the player will notice.
        self.sim.trim(request.up_to)
        if self.alive and not self.frozen:
            self.tell(events.LogTrimmed(request.up_to))

    def _step_down(self, request: effects.StepDown) -> None:
        self.sim.checkers.stepped_down(self, request)
        self.kill()

    def _stop(self, request: effects.Stop) -> None:
        self.sim.checkers.stopped(self)
        self.kill()

    def _report(self, request: effects.Report) -> None:
        self.sim.checkers.reported(request)

    _performers: ClassVar[dict[type, Callable[[SimHost, Any], None]]] = {
        effects.OpenSession: _open,
        effects.CloseSession: _close,
        effects.SendBatch: _send,
        effects.SendProbe: _probe,
        effects.ReadCatchUp: _read,
        effects.LookUp: _look_up,
        effects.TrimLog: _trim,
        effects.StepDown: _step_down,
        effects.Stop: _stop,
        effects.Report: _report,
    }

    def _link(self, request: effects.SendBatch | effects.SendProbe) -> SimLink | None:
        link = self.links.get(request.target)
        return link if link is not None and link.session == request.session else None

    def _put(self, link: SimLink, message: object) -> None:
        """Write into the stream. What is written to an end that is gone vanishes."""
        if link.hole or not link.up:
            return
        link.to_target.append(message)
        self.sim.schedule(link.target.receive, link)

    # --- Faults ---------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """``kill -9`` of the player: its streams end, and the targets learn of it later."""
        self.alive = False
        self.stalled.clear()
        for link in self.links.values():
            self._put(link, END)
        self.links.clear()

    def thaw(self) -> None:
        """A frozen player goes on, not knowing that time has passed."""
        self.frozen = False
        for act, argument in self.stalled:
            self.sim.schedule(act, argument)
        self.stalled.clear()

    def replay(self, target: SimTarget) -> None:
        """A fault of the sender: something that was not the core's to send arrives on the current session."""
        link = self.links.get(target.name)
        if link is None or not link.accepted:
            return
        link.stray = True
        prev = target.position.index
        if target.applied and self.sim.rng.random() < 0.5:
            again = target.applied[-1]
            self._put(link, Batch(again.index - 1, prev, (Delivery(again.index, again.payload),)))
        else:
            twice = Delivery(prev + 1, b"twice")
            self._put(link, Batch(prev, prev + 1, (twice, twice), target.position.chain))

    def cut(self, target: SimTarget, silent: bool) -> None:
        """The network fails: each direction delivers a prefix, and then both ends learn, or neither does."""
        link = self.links.get(target.name)
        if link is None:
            return
        if silent:
            link.hole = True
            link.to_target.clear()
            link.to_player.clear()
            return
        for queue, learn in ((link.to_target, target.receive), (link.to_player, self.receive)):
            for _ in range(self.sim.rng.randrange(len(queue) + 1)):
                queue.pop()
            queue.append(END)
            self.sim.schedule(learn, link)
