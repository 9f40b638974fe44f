"""A process of its own that takes calls over a pipe: one question, one answer.

What is measured must not share an interpreter with what measures it. ``Actor(Targets)`` starts a process, makes a
``Targets`` in it, and ``ask("serve", ...)`` calls its method there, on the process' event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import multiprocessing as mp
import os
import resource
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from logplayer.errors import LogPlayerError, UserError

STOP_SECONDS = 10.0
END = ""  # No question: the end of the process.


class ActorFailed(LogPlayerError):
    """A process of the benchmark did not do what it was asked."""


class Actor:
    """The parent's end. Not for several threads."""

    def __init__(self, make: Callable[[], Any]) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # Servers come and go here; gRPC tells of each.
        context = mp.get_context("spawn")
        self.name = make.__name__
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(make, theirs), name=self.name, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def ask(self, what: str, *arguments: Any, seconds: float = 60.0) -> Any:
        """What its method returned; raises what the user can help, and ``ActorFailed`` for everything else."""
        self.tell(what, *arguments)
        return self.answer(seconds)

    def tell(self, what: str, *arguments: Any) -> None:
        """Ask, and fetch the answer later."""
        try:
            self._pipe.send((what, arguments))
        except OSError:
            raise ActorFailed(f"the process of {self.name} is gone") from None

    def answer(self, seconds: float = 60.0) -> Any:
        """The answer to what was told before."""
        if not self._pipe.poll(seconds):
            raise ActorFailed(f"{self.name} did not answer within {seconds:.0f} s")
        try:
            kind, told = self._pipe.recv()
        except EOFError:
            raise ActorFailed(f"the process of {self.name} ended (exit code {self._process.exitcode})") from None
        if kind == "done":
            return told
        raise UserError(told) if kind == "user" else ActorFailed(f"{self.name}: {told}")

    def signal(self, number: signal.Signals) -> None:
        """Stop it, go on with it, kill it."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """``kill -9``, and wait until it is gone."""
        self._process.kill()
        self._process.join(STOP_SECONDS)
        self._pipe.close()

    def stop(self) -> None:
        """End it, politely first. Safe to call twice."""
        if self._process.is_alive():
            with contextlib.suppress(OSError):
                self._pipe.send((END, ()))
            self._process.join(STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(STOP_SECONDS)
        self._pipe.close()


def _run(make: Callable[[], Any], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to decide on; it ends us by the pipe.
    from logplayer.cli.common import run_loop

    run_loop(_serve(make, pipe))


async def _serve(make: Callable[[], Any], pipe: Connection) -> None:
    questions: asyncio.Queue[tuple[str, tuple[Any, ...]]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def readable() -> None:
        os.set_blocking(pipe.fileno(), True)  # The loop that watches it has made it non-blocking.
        try:
            questions.put_nowait(pipe.recv())
        except (EOFError, OSError):  # The parent is gone.
            loop.remove_reader(pipe.fileno())
            questions.put_nowait((END, ()))

    loop.add_reader(pipe.fileno(), readable)
    actor = make()
    while True:
        what, arguments = await questions.get()
        if what == END:
            break
        answer = await _answer(actor, what, arguments)
        os.set_blocking(pipe.fileno(), True)
        try:
            pipe.send(answer)
        except OSError:
            break
    with contextlib.suppress(Exception):  # It ends anyway, and nobody listens any more.
        async with asyncio.timeout(STOP_SECONDS / 2):
            await actor.close()


async def _answer(actor: Any, what: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        told = getattr(actor, what)(*arguments)
        return "done", await told if inspect.isawaitable(told) else told
    except UserError as error:
        return "user", str(error)
    except Exception as error:  # noqa: BLE001 - the parent raises it.
        return "failed", f"{type(error).__name__}: {error}"


def usage() -> dict[str, float]:
    """This process: its CPU seconds so far, its resident memory in MB, and now on the common clock."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    memory = pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return {"cpu_s": used.ru_utime + used.ru_stime, "memory_mb": memory, "at_ns": time.monotonic_ns()}
