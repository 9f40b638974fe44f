"""A client's append stream: it is opened when there is something to append, and again whenever it breaks.

One task opens the stream and reads the answers; beside it, for as long as the stream lives, another one writes. What to
send, and what again, ``AppendQueue`` knows. While the server is away, a call is kept for ``patience_seconds``, counted
from the moment when it was made or the server was first missed, whichever is later.

A server that cannot reach its log counts as away if the client knows another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import grpc

from logplayer.errors import LogError, LogUnavailable
from logplayer.log.append_codec import decode_answers, encode_calls
from logplayer.log.append_queue import AppendCall, AppendQueue
from logplayer.log.grpc_errors import (
    ADMITTED_KEY,
    ServerUnreachable,
    error_named,
    from_stream_status,
    is_away,
    names_away,
)
from logplayer.log.pause import Pause
from logplayer.log.protocol import NewEntry


class OpenStream(NamedTuple):
    """A stream to a server."""

    call: Any
    watched: AbstractContextManager[None]  # Ends the call if the server hangs, while it is entered.
    heard: Callable[[], None]  # Hears of each answer.
    failed: Callable[[grpc.aio.AioRpcError | None], None]  # Hears when it fails, and why.
    several: bool = False  # Whether another server may do what this one cannot.


OpenCall = Callable[[], OpenStream]
Send = Callable[[Sequence[NewEntry]], Awaitable[list[int]]]


class AppendStream:
    """Appends through streams that ``open_call`` opens; ``alone`` sends a call that is too large for one.

    Belongs to one event loop.
    """

    def __init__(self, open_call: OpenCall, alone: Send, where: str, patience_seconds: float) -> None:
        self._open_call = open_call
        self._send_alone = alone
        self._where = where
        self._patience = patience_seconds
        self._pause = Pause(patience_seconds)
        self._queue = AppendQueue()
        self._wake = asyncio.Event()  # There may be something to write.
        self._task: asyncio.Task[None] | None = None
        self._call: Any = None  # The stream that is open.
        self._moving = False

    def move(self) -> None:
        """End the stream and open another one, for what is unanswered as well: the server to ask has changed."""
        if self._call is not None:
            self._moving = True
            self._call.cancel()

    def append(self, entries: Sequence[NewEntry]) -> asyncio.Future[list[int]]:
        """Queue a group after all that were appended before."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[int]] = loop.create_future()
        self._queue.add(AppendCall(entries, answer, loop.time()))
        self._wake.set()
        if self._task is None:
            self._task = loop.create_task(self._run())
        return answer

    async def close(self, reason: LogUnavailable) -> None:
        """Send nothing more, and raise in every call that waits."""
        lost = LogUnavailable("the connection was closed before the log answered; append again to know")
        self._queue.fail_all(lost, reason)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            if not len(self._queue):
                self._wake.clear()
                await self._wake.wait()
            try:
                await self._converse()
                self._queue.broke()  # The server ended the stream in order.
            except ServerUnreachable as error:
                self._queue.broke()
                await self._bear(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, the callers wait for it.
                self._queue.fail_all(error, error)

    async def _bear(self, error: ServerUnreachable) -> None:
        """The server is away: fail those who have waited long enough, and wait a little with the others."""
        now = asyncio.get_running_loop().time()
        since = self._pause.since = now if self._pause.since is None else self._pause.since
        if now - since >= self._patience:
            self._queue.give_up(now - self._patience, error)
        if len(self._queue):
            await self._pause.sleep()

    async def _converse(self) -> None:
        """One stream, from its opening to its end."""
        stream = self._open_call()
        call = stream.call
        self._call, self._moving = call, False
        writer = asyncio.create_task(self._write(call))
        answered = False
        try:
            with stream.watched:
                while (data := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]  # Not in the stubs.
                    stream.heard()
                    self._answered(data, stream)
                    answered = True
        except grpc.aio.AioRpcError as error:
            stream.failed(error)
            trouble = from_stream_status(error, self._where)
            raise _for_another(trouble) if stream.several and is_away(error) else trouble from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._moving or (task is not None and task.cancelling()):
                raise
            return  # It was the stream that was cancelled, not we.
        except ValueError as error:
            raise LogError(f"the log server at {self._where} sent answers that cannot be right: {error}") from None
        finally:
            self._call = None
            writer.cancel()
            await asyncio.wait([writer])
            call.cancel()
        if not answered:
            stream.failed(None)
            raise ServerUnreachable(f"the log server at {self._where} ended the stream without an answer")

    def _answered(self, data: bytes, stream: OpenStream) -> None:
        """Hand out a message of answers, up to the first for which another server is to be asked."""
        before = len(self._queue)
        is_for_another = names_away if stream.several else None
        trouble = self._queue.answered(decode_answers(data), error_named, is_for_another)
        if len(self._queue) < before:
            self._pause.reset()
        self._wake.set()
        if trouble is not None:
            stream.failed(None)
            raise _for_another(trouble)

    async def _write(self, call: Any) -> None:
        try:
            if ADMITTED_KEY not in dict(await call.initial_metadata()):
                return  # To write to a stream that was refused would hide the reason.
            while True:
                first, taken = self._queue.take()
                if taken:
                    parts, counts = [one.parts for one in taken], [len(one.entries) for one in taken]
                    await call.write(encode_calls(first, parts, counts))
                elif large := self._queue.alone():
                    await self._alone(large)
                else:
                    self._wake.clear()
                    await self._wake.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # The stream is gone, and whoever reads the answers says why.

    async def _alone(self, call: AppendCall) -> None:
        try:
            call.appended(await self._send_alone(call.entries))
        except LogError as error:
            call.failed(error)
        self._queue.leave(call)


def _for_another(trouble: LogError) -> ServerUnreachable:
    """This server cannot do it: as if it were away, because another one may."""
    return trouble if isinstance(trouble, ServerUnreachable) else ServerUnreachable(str(trouble))
