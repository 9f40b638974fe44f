"""``/events``: the status, then only what changes, as server-sent events.

========== ==========================================================================================================
event      data
========== ==========================================================================================================
status     the whole status, first of all, and again when the process is another one
change     ``set``: fields of the status that are new; ``targets``: by name, the fields of a target that are new;
           ``gone``: names of targets that are not there any more
timeline   items of the time line that are new
history    points of the last minutes: ``[at, p50 ms, p90 ms, p99 ms, entries/s, largest lag in entries]``
========== ==========================================================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from logplayer.errors import LogPlayerError
from logplayer.observe.timeline import Timeline

EVERY_SECONDS = 0.5
HISTORY_SECONDS = 2.0
HISTORY_POINTS = 300
LAST_SECONDS_MAX = 1.0  # A process that ends waits so long for listeners to take its last words.
FRESH_SECONDS = 0.2  # One status serves all who ask within this time.
Whole = Mapping[str, Any]


class EventFeed:
    """What everybody who follows one process shares: its newest status and its last minutes."""

    def __init__(self, status: Callable[[], Awaitable[Whole]], timeline: Timeline | None) -> None:
        self._status = status
        self._timeline = timeline
        self._seen: Whole = {}
        self._seen_at = 0.0
        self._history: deque[list[float]] = deque(maxlen=HISTORY_POINTS)
        self._points = 0
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._listeners = 0
        self._all_left = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._remember())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._over.set()
        if self._listeners:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_left.wait(), LAST_SECONDS_MAX)

    async def follow(self) -> AsyncIterator[bytes]:
        """For one listener, until it goes away or the process ends; why it ends is the last that is said."""
        self._listeners += 1
        self._all_left.clear()
        try:
            async with contextlib.aclosing(self._events()) as events:
                async for one in events:
                    yield one
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._all_left.set()

    async def _events(self) -> AsyncGenerator[bytes, None]:
        sent: Whole = {}
        items = points = 0
        while True:
            last = self._over.is_set()
            with contextlib.suppress(LogPlayerError):  # It starts or ends: the next look may find more.
                status = await self._fresh()
                if not sent or (status.get("player"), status.get("epoch")) != (sent.get("player"), sent.get("epoch")):
                    yield event("status", status)
                else:
                    yield event("change", difference(sent, status))
                sent = status
            # Counted before the yield: more can come while a listener takes what was yielded.
            if self._timeline is not None and self._timeline.number != items:
                since, items = items, self._timeline.number
                yield event("timeline", self._timeline.since(since))
            if self._points != points:
                new, points = self._points - points, self._points
                yield event("history", list(self._history)[-new:])
            if last:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), EVERY_SECONDS)

    async def _fresh(self) -> Whole:
        now = time.monotonic()
        if now - self._seen_at > FRESH_SECONDS:
            self._seen, self._seen_at = {**await self._status(), "now": round(time.time(), 3)}, now
        return self._seen

    async def _remember(self) -> None:
        while True:
            with contextlib.suppress(LogPlayerError):
                self._history.append(point(await self._fresh()))
                self._points += 1
            await asyncio.sleep(HISTORY_SECONDS)


def point(status: Whole) -> list[float]:
    """One point of the history; zeros where a process has no such thing."""
    named = ("delay_p50_ms", "delay_p90_ms", "delay_p99_ms", "entries_per_second")
    lag = max((target.get("lag_entries", 0) for target in status.get("targets", ())), default=0)
    return [round(time.time(), 1), *(float(status.get(name, 0.0)) for name in named), float(lag)]


def difference(before: Whole, after: Whole) -> dict[str, Any]:
    """What must be changed in ``before`` to make it ``after``."""
    known = {target["target"]: target for target in before.get("targets", ())}
    targets: dict[str, Any] = {}
    for target in after.get("targets", ()):
        old = known.pop(target["target"], {})
        if changed := {key: value for key, value in target.items() if key not in old or old[key] != value}:
            targets[target["target"]] = changed
    fields = {
        key: value for key, value in after.items() if key != "targets" and (key not in before or before[key] != value)
    }
    return {"set": fields, "targets": targets, "gone": list(known)}


def event(name: str, data: Any) -> bytes:
    """In the format of server-sent events."""
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
