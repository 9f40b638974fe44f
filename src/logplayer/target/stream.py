"""One player's stream at a target: what comes in, what goes out. Knows no transport; runs on the event loop.

Batches that arrive while a commit runs are joined and applied together with the next commit, so the load sets how
many share one, without a timer. What was read and not yet committed is bounded: over the limit the transport is
asked to stop reading, and flow control carries that to the player.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Protocol

from logplayer.core.entry import Refusal, Session
from logplayer.core.fence import Batch, Position, TargetRefusal, join, well_formed
from logplayer.errors import Malformed
from logplayer.target.ack_coalescing import AckRound
from logplayer.target.bounds import Questions
from logplayer.target.host import ChangeOutcome, Host
from logplayer.wire import codec, versions
from logplayer.wire.versions import Versions

# What one commit may hold; more would make the acks wait for no gain.
JOIN_BYTES_MAX = 4 * 1024 * 1024
# What a stream may have read and not yet committed; one message may exceed it. Reading resumes at half of it.
READ_AHEAD_BYTES = 8 * 1024 * 1024
# An ack costs both sides as much as a batch, and nobody waits for it but the window: it may wait for others to join it,
# for this long, or until this much is applied and unacked.
ACK_SECONDS = 0.001
ACK_BYTES = 64 * 1024
# Answers about the position that a stream may have said and its peer not taken.
ANSWERS_MAX = 100


class Peer(Protocol):
    """What a stream needs of its transport."""

    def flush(self) -> None:
        """``take()`` has something, or the stream has ended: send it when the transport is ready."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Read on."""


class Stream:
    """See the module. ``connection`` is what its questions are counted with."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        peer: Peer,
        acks: AckRound,
        questions: Questions | None = None,
        connection: Hashable = None,
    ) -> None:
        self.ended = False  # Nothing is read any more; what take() still gives is the last.
        self.failure: tuple[int, str] | None = None  # Why it ended, if not by the protocol: codec.Failed's fields.
        self._hosts = hosts
        self._peer = peer
        self._acks = acks
        self._host: Host | None = None
        self._session = Session(0, 0)
        self._version = 0  # Of the protocol; known once the session is.
        self._batches: deque[tuple[Batch, int]] = deque()
        self._bytes = 0  # Read and not yet committed, the commit that runs included.
        self._committing_bytes = 0
        self._busy = False  # The worker thread has an Open or a batch of this stream.
        self._is_open = False
        self._paused = False
        self._heard_at = time.monotonic()
        self._out: deque[bytes] = deque()
        self._ack_due = False
        self._unacked_bytes = 0
        self._bound = questions or Questions()
        self._connection = connection
        self._questions: set[asyncio.Future[Position]] = set()

    # --- From the transport ---

    def received(self, data: bytes) -> None:
        """One encoded ``ToTarget`` message."""
        if self.ended:
            return  # The player has not yet heard that the stream ended.
        self._heard_at = time.monotonic()
        batch = codec.read_batch(data)
        if batch is not None:
            self._batch(batch, len(data))
            return
        try:
            message = codec.decode_to_target(data)
        except Malformed as error:
            self._fail(codec.INVALID, str(error))
            return
        if isinstance(message, Batch):
            self._batch(message, len(data))
        elif isinstance(message, codec.Probe):
            self._probe()
        elif isinstance(message, codec.Open):
            self._open(message)
        elif isinstance(message, codec.AskPosition):
            self._ask(message)
        else:
            self._fail(codec.INVALID, "a token comes first, or not at all")

    def quiet_ms(self) -> int:
        """How long we have waited for a word; 0 while it is we who let the player wait."""
        return 0 if self._busy or self._paused else int((time.monotonic() - self._heard_at) * 1000)

    def take(self) -> bytes | None:
        """The next encoded ``ToPlayer`` message to send. Acks that nobody took yet are one ack of the newest index."""
        if self._out:
            return self._out.popleft()
        if self._ack_due and self._host is not None:
            self._ack_due = False
            return codec.encode_ack(self._host.position)
        return None

    def _ack(self) -> None:
        """Send an ack of everything that is durable now."""
        self._forget_ack()
        self._ack_due = True
        self._peer.flush()

    def _forget_ack(self) -> None:
        self._ack_due = False
        self._unacked_bytes = 0

    def ack_if_owed(self) -> None:
        """The round that this stream joined has ended."""
        if self._unacked_bytes:
            self._ack()

    def gone(self) -> None:
        """The transport is closed. A commit that runs goes on; what waits for one is dropped, unacked."""
        self.ended = True
        self._batches.clear()
        self._out.clear()
        self._forget()

    # --- From the host ---

    def fenced(self, by: Session) -> None:
        """A newer session was accepted, so this player need not find out by sending."""
        if self.ended or self._host is None:
            return
        reason = Refusal.FENCED if self._session.epoch < by.epoch else Refusal.STALE_SESSION
        detail = f"session {self._session} was fenced by {by}"
        position = self._host.position
        self._refuse(TargetRefusal(reason, detail, position.index, by.epoch, position.chain))

    # --- Messages ---

    def _open(self, opening: codec.Open) -> None:
        if self._host is not None:
            self._refuse(self._refused(Refusal.BAD_BATCH, "a stream has one Open, its first message"))
            return
        version = self._agreed(opening.versions, "player")
        if version is None:
            return
        host = self._hosts.get(opening.target)
        if host is None:
            names = ", ".join(map(repr, self._hosts))
            self._refuse(self._refused(Refusal.WRONG_TARGET, f"here is {names}, not {opening.target!r}"))
            return
        self._host = host
        self._session = opening.session
        self._version = version
        self._busy = True
        host.open(opening.session, opening.log_id, self, self._opened)

    def _opened(self, outcome: ChangeOutcome) -> None:
        self._busy = False
        if self.ended:
            self._forget()  # Accepted for a stream that is gone: the session is stored, and nobody has it.
            return
        if outcome.position is not None:
            self._is_open = True
            self._out.append(codec.encode_opened(outcome.position, self._version))
            self._peer.flush()
            self._commit()
        else:
            self._not_done(outcome)

    def _batch(self, batch: Batch, length: int) -> None:
        if self._host is None:
            self._refuse(self._refused(Refusal.BAD_BATCH, "the first message of a stream is Open"))
            return
        self._bytes += length
        if self._bytes > READ_AHEAD_BYTES and not self._paused:
            self._paused = True
            self._peer.pause()
        if self._is_open and not self._busy:  # Then none is waiting either.
            self._committing_bytes = length
            self._busy = True
            self._host.apply(self._session, batch, self._committed)
        else:
            self._batches.append((batch, length))
            self._commit()

    def _probe(self) -> None:
        if self._host is None:
            self._refuse(self._refused(Refusal.BAD_BATCH, "the first message of a stream is Open"))
        elif self._is_open:
            self._ack()
        # Else the Opened that is under way answers it.

    def _agreed(self, theirs: Versions, them: str) -> int | None:
        """The version to answer in. None if there is none: then the stream has ended with the reason."""
        version = versions.agreed(theirs)
        if version is None:
            self._fail(codec.VERSION, versions.conflict(them, theirs, "target"))
        return version

    def _ask(self, ask: codec.AskPosition) -> None:
        version = self._agreed(ask.versions, "reader")
        if version is None:
            return
        host = find(self._hosts, ask.target)
        if host is None:
            self._fail(codec.INVALID, absent(self._hosts, ask.target))
            return
        if len(self._out) >= ANSWERS_MAX:
            self._fail(codec.EXHAUSTED, f"{ANSWERS_MAX} answers were not taken; read them before you ask more")
            return
        if host.position.index >= ask.at_least:
            self._answer(host, version)
            return
        too_many = self._bound.admit(self._connection)
        if too_many:
            self._fail(codec.EXHAUSTED, too_many)
            return
        question = host.reached(ask.at_least)
        self._questions.add(question)

        def done(question: asyncio.Future[Position]) -> None:
            self._questions.discard(question)
            self._bound.leave(self._connection)
            if not question.cancelled() and not self.ended:
                self._answer(host, version)

        question.add_done_callback(done)

    def _answer(self, host: Host, version: int) -> None:
        answer = codec.answer_position(host.name, host.position, host.connected, version, host.quiet_ms)
        self._out.append(codec.encode_position_answer(answer))
        self._peer.flush()

    # --- Commits ---

    def _commit(self) -> None:
        if self._busy or self.ended or not self._batches or self._host is None:
            return
        self._busy = True
        self._host.apply(self._session, self._take_joined(), self._committed)

    def _take_joined(self) -> Batch:
        """The next batches that fit together, as one.

        A batch that does not start where the one before ends is left for a commit of its own, where the store
        refuses it. So is a malformed one: joined to its neighbours its range could look right.
        """
        first, length = self._batches.popleft()
        self._committing_bytes = length
        if not self._batches:
            return first
        batches = [first]
        if well_formed(first):
            while self._batches:
                batch, more = self._batches[0]
                last = batches[-1]
                if batch.prev != last.to or batch.prev_chain != last.to_chain or not well_formed(batch):
                    break
                if length + more > JOIN_BYTES_MAX:
                    break
                self._batches.popleft()
                batches.append(batch)
                length += more
        self._committing_bytes = length
        return join(batches)

    def _committed(self, outcome: ChangeOutcome) -> None:
        self._busy = False
        self._bytes -= self._committing_bytes
        if self.ended:
            return  # The commit outlived its stream; the next Open reads the index that it left.
        if outcome.position is not None:
            self._unacked_bytes += self._committing_bytes
        if outcome.position is None or outcome.refused is not None:
            self._not_done(outcome)
            return
        if self._batches:
            self._commit()
        if self._unacked_bytes >= ACK_BYTES:
            self._ack()
        else:
            self._acks.join(self)
        if self._paused and self._bytes <= READ_AHEAD_BYTES // 2:
            self._paused = False
            self._peer.resume()

    # --- Ends ---

    def _not_done(self, outcome: ChangeOutcome) -> None:
        if outcome.refused is not None:
            self._refuse(outcome.refused)
        else:
            name = self._host.name if self._host else ""
            self._fail(codec.INTERNAL, f"the store of target {name} failed: {outcome.error}")

    def _refused(self, reason: Refusal, detail: str) -> TargetRefusal:
        position = self._host.position if self._host else Position()
        return TargetRefusal(reason, detail, position.index, position.session.epoch, position.chain)

    def _refuse(self, refused: TargetRefusal) -> None:
        """Say no, after the ack of what was done before it, and end."""
        if self._unacked_bytes and self._host is not None:
            self._out.append(codec.encode_ack(self._host.position))
        self._out.append(codec.encode_refused(refused))
        self._end()

    def _fail(self, code: int, detail: str) -> None:
        self.failure = (code, detail)
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._batches.clear()
        self._forget()
        self._peer.flush()

    def _forget(self) -> None:
        """Nothing is owed any more, and nobody is waited for."""
        self._forget_ack()
        for question in list(self._questions):
            question.cancel()
        if self._host is not None:
            self._host.release(self)


def find(hosts: Mapping[str, Host], name: str) -> Host | None:
    """The target called ``name``; without a name, the only one that is here."""
    if not name and len(hosts) == 1:
        return next(iter(hosts.values()))
    return hosts.get(name)


def absent(hosts: Mapping[str, Host], name: str) -> str:
    """The answer to a question about a target that :func:`find` does not find."""
    what = f"no target {name!r} is here" if name else "several targets are here, so say which"
    return f"{what}: there is {', '.join(map(repr, hosts))}"
