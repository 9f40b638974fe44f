"""A simulated host: one real player core, and a shell that performs its effects on the simulated world."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from logplayer.core import effect, event
from logplayer.core.entry import Message
from logplayer.core.fence import Batch
from logplayer.core.player import Player
from logplayer.testing.sim.world import END, Link, SimTarget, lost

if TYPE_CHECKING:
    from logplayer.testing.sim.simulation import Simulation

PROBE = "probe"


class Host:
    """The shell around one core. It decides nothing; the scheduler decides when each of its acts happens."""

    def __init__(self, sim: Simulation, core: Player) -> None:
        self.sim = sim
        self.core = core
        self.alive = True
        self.frozen = False
        self.stalled: list[tuple[Callable[[Any], None], Any]] = []
        self.links: dict[str, Link] = {}
        self.fetched = core.current  # The main fetcher's place: it reads ahead of nothing.
        self.fetching = False

    def __repr__(self) -> str:
        return f"<Host {self.core!r} alive={self.alive}>"

    # --- Events ---------------------------------------------------------------------------------------------

    def tell(self, fact: event.Event) -> None:
        """One step of the core, and its effects."""
        for request in self.core.step(fact):
            self._performers[type(request)](self, request)
        self.sim.checkers.stepped(self)

    def receive(self, link: Link) -> None:
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
        if self.fetched < log.trimmed:
            self.fetched = log.trimmed
            self.tell(event.MainTrimmed(log.trimmed + 1, self.sim.control_now()))
        entries = log.read(self.fetched, self.sim.rng.choice((1, 1, 2, 4)))
        if entries:
            self.fetched = entries[-1].index
            self.tell(event.Fetched(entries))

    def want_fetch(self) -> None:
        """Make sure that the main fetcher looks at the log some time soon."""
        if self.alive and not self.fetching and self.fetched < self.sim.log.last:
            self.fetching = True
            self.sim.schedule(self.fetch, None)

    # --- Effects --------------------------------------------------------------------------------------------

    def _open(self, request: effect.OpenSession) -> None:
        target = self.sim.targets[request.target]
        self.sim.checkers.opened(self, request.target, request.session)
        link = Link(self, target, request.session)
        self.links[request.target] = link
        if not target.up:
            link.up = False
            link.to_player.append(END)
            self.sim.schedule(self.receive, link)
            return
        target.links.append(link)
        self._put(link, request.session)

    def _close(self, request: effect.CloseSession) -> None:
        link = self.links.get(request.target)
        if link is not None and link.session == request.session:
            del self.links[request.target]
            self._put(link, END)

    def _send(self, request: effect.SendBatch) -> None:
        link = self._link(request)
        self.sim.checkers.sent(request, link)
        if link is not None:
            link.writing = True
            self._put(link, Batch(request.prev, request.to, tuple(request.messages)))
        self.sim.schedule(self._wrote, request)

    def _wrote(self, request: effect.SendBatch) -> None:
        if self.frozen:
            self.stalled.append((self._wrote, request))
        elif self.alive:
            link = self._link(request)
            if link is not None:
                link.writing = False
            self.tell(event.Written(request.target, request.session))

    def _probe(self, request: effect.SendProbe) -> None:
        link = self._link(request)
        if link is not None:
            self._put(link, PROBE)

    def _read(self, request: effect.ReadCatchUp) -> None:
        self.sim.schedule(self._read_log, request)

    def _read_log(self, request: effect.ReadCatchUp) -> None:
        """Read now, tell later: in between, the session may die and another begin."""
        log = self.sim.log
        answer: event.Event
        if request.first <= log.trimmed:
            answer = event.CatchUpTrimmed(request.target, request.session, log.trimmed + 1)
        elif self.sim.faulty and self.sim.rng.random() < 0.05:
            answer = event.CatchUpFailed(request.target, request.session, "the log is away")
        else:
            entries = log.read(request.first - 1, self.sim.rng.choice((1, 2, 5)), request.last)
            through = entries[-1].index if entries else request.last
            answer = event.CaughtUp(request.target, request.session, request.first - 1, through, entries)
        self.sim.schedule(self._tell_later, answer)

    def _tell_later(self, answer: event.Event) -> None:
        if self.frozen:
            self.stalled.append((self._tell_later, answer))
        elif self.alive:
            self.tell(answer)

    def _trim(self, request: effect.TrimLog) -> None:
        self.sim.schedule(self._trim_log, request)

    def _trim_log(self, request: effect.TrimLog) -> None:
        self.sim.trim(request.up_to)
        if self.alive and not self.frozen:
            self.tell(event.LogTrimmed(request.up_to))

    def _step_down(self, request: effect.StepDown) -> None:
        self.kill()

    def _stop(self, request: effect.Stop) -> None:
        self.sim.checkers.stopped(self)
        self.kill()

    def _report(self, request: effect.Report) -> None:
        self.sim.checkers.reported(request)

    _performers: ClassVar[dict[type, Callable[[Host, Any], None]]] = {
        effect.OpenSession: _open,
        effect.CloseSession: _close,
        effect.SendBatch: _send,
        effect.SendProbe: _probe,
        effect.ReadCatchUp: _read,
        effect.TrimLog: _trim,
        effect.StepDown: _step_down,
        effect.Stop: _stop,
        effect.Report: _report,
    }

    def _link(self, request: effect.SendBatch | effect.SendProbe) -> Link | None:
        link = self.links.get(request.target)
        return link if link is not None and link.session == request.session else None

    def _put(self, link: Link, message: object) -> None:
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
            self._put(link, Batch(again.index - 1, prev, (Message(again.index, again.payload),)))
        else:
            twice = Message(prev + 1, b"twice")
            self._put(link, Batch(prev, prev + 1, (twice, twice)))

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
