"""``logplayer demo --page``: the page tells what was done, what was noticed, how it came back, and the proof.

The demo serves the page itself and follows the player from outside: the player is one of the things that are killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import webbrowser
from typing import TYPE_CHECKING

from logplayer.admin.app import serve
from logplayer.admin.relay import Relay, following
from logplayer.observe.timeline import DEMO
from logplayer.wire.security import Security

if TYPE_CHECKING:
    from logplayer.demo.run import Demo, DemoVerdict
    from logplayer.demo.world import Narrate

PHASE = "Money moves between the shards while things are killed and frozen. The proof comes at the end."


class DemoPage:
    """The page of one demo."""

    def __init__(self) -> None:
        self._relay: Relay | None = None
        self._early: list[str] = []

    def both(self, say: Narrate) -> Narrate:
        """Say it in the terminal and in the story."""

        def said(line: str) -> None:
            say(line)
            if self._relay is None:
                self._early.append(line)
            else:
                self._relay.timeline.say(logging.INFO, DEMO, "%s", line)

        return said

    async def run(self, demo: Demo, say: Narrate) -> DemoVerdict:
        """Serve the page, run the demo, show the proof, and wait for Ctrl-C."""
        relay = self._relay = Relay(demo.world.http)
        relay.more = {"demo": {"phase": PHASE, "verdict": None}}
        for line in self._early:
            relay.timeline.say(logging.INFO, DEMO, "%s", line)
        token = secrets.token_urlsafe(16)
        server = serve(relay.face(), Security(token=token))
        url = f"http://{await server.start('127.0.0.1:0')}/#token={token}"
        say(f"the page: {url}")
        with contextlib.suppress(webbrowser.Error):
            await asyncio.to_thread(webbrowser.open, url)
        try:
            async with following(relay):
                verdict = await demo.run()
                relay.more = {"demo": {"phase": "", "verdict": facts(verdict)}}
                say(f"{'PROVED' if verdict.holds else 'NOT PROVED'}; the page stays until Ctrl-C: {url}")
                await _interrupted()
        finally:
            await server.stop()
        return verdict


async def _interrupted() -> None:
    """Ctrl-C or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def facts(verdict: DemoVerdict) -> dict[str, object]:
    """The proof as the page shows it."""
    delays = verdict.calm_delay_ms or verdict.delay_ms
    return {
        "holds": verdict.holds,
        "facts": {
            "Entries appended": f"{verdict.appended:,}",
            "Changes delivered": f"{verdict.delivered:,}",
            "Lost": verdict.lost,
            "Doubled": verdict.doubled,
            "Out of order": verdict.out_of_order,
            "Digests": "match the log" if verdict.digests_match else "DIFFER",
            "Money before and after": f"{verdict.total_before:,} = {verdict.total_after:,}"
            if verdict.total_before == verdict.total_after
            else f"{verdict.total_before:,} is not {verdict.total_after:,}",
            "Faults": verdict.faults,
            "Append to applied": "  ".join(f"{name} {value} ms" for name, value in delays.items()),
        },
    }
