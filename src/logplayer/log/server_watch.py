"""Notices a log server that hangs: connections to it stay open, and nothing comes.

gRPC answers HTTP/2's pings in threads of its own. So pings find a process that is stopped and a machine that is gone,
and a process whose event loop hangs looks well to them. Therefore: while calls are open to a server and nothing has
come from it for ``silence_seconds``, it is asked ``Alive``, which its event loop answers without its log. If no answer
comes within ``answer_seconds``, all calls to it are ended as if their connections had broken, and their callers go to
the next server, if there is one, else on another connection to the same address. What was sent and not answered is sent
again; it stands in the log once.

Where another server is known, to leave one too early costs a little time, and to leave it late holds up all appends: so
that is done after less than two seconds (``ONE_OF_SEVERAL``). A server that is the only one gets more (``ONLY_ONE``).

Why not simply a limit on the time of an append: a slow disk and an election of the cluster that has the log (eleven
seconds with NATS) look the same from here as a server that hangs, and to leave a server because of them helps nobody.
A server that is alive and cannot reach its log says so by itself.

Each time that a server is left for its silence, it may be silent for twice as long before that happens again, until
it is heard: servers and clients on a machine that has too much to do must not run in circles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc

ANSWER_SECONDS_MAX = 24.0


class WatchTimes(NamedTuple):
    """How long a server may be silent before it is asked, and then before it is left."""

    silence_seconds: float
    answer_seconds: float


ONLY_ONE = WatchTimes(3.0, 3.0)
ONE_OF_SEVERAL = WatchTimes(0.6, 1.0)


class ServerWatch:
    """The open calls to one server, which ``ask`` asks whether it is alive; ``left`` is called when they were ended.

    Belongs to one event loop.

    Invariant: a task runs as long as a call is open.
    """

    def __init__(
        self, where: str, ask: Callable[[float], Awaitable[bool]], left: Callable[[], None], times: WatchTimes
    ) -> None:
        self._where = where
        self._times = times
        self._ask = ask
        self._left = left
        self._calls: set[Any] = set()
        self._task: asyncio.Task[None] | None = None
        self._heard_at = 0.0
        self._answer_seconds = times.answer_seconds

    def heard(self) -> None:
        """Something has come from the server."""
        self._heard_at = asyncio.get_running_loop().time()
        self._answer_seconds = self._times.answer_seconds

    @contextmanager
    def over(self, call: Any) -> Iterator[None]:
        """``call`` is open meanwhile; if the server hangs, it ends with an ``AioRpcError`` as if it were away."""
        self._calls.add(call)
        if self._task is None:
            self._heard_at = asyncio.get_running_loop().time()
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if call in self._calls or (task is not None and task.cancelling()):
                raise
            raise _silent(self._where) from None
        finally:
            self._calls.discard(call)

    async def _run(self) -> None:
        while self._calls:
            silent = asyncio.get_running_loop().time() - self._heard_at
            if silent < self._times.silence_seconds:
                await asyncio.sleep(self._times.silence_seconds - silent)
                continue
            asked_at = asyncio.get_running_loop().time()
            if await self._ask(self._answer_seconds):
                self.heard()
            elif self._heard_at < asked_at:
                self._give_up()
        self._task = None

    def _give_up(self) -> None:
        self._answer_seconds = min(ANSWER_SECONDS_MAX, 2 * self._answer_seconds)
        calls, self._calls = self._calls, set()
        for call in calls:
            call.cancel()
        self._left()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _silent(where: str) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    details = f"{where} is connected and does not answer"
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, details, None)
