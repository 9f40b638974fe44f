"""Scenario files: stories of the real core that a reviewer can read, checked word for word.

A file is a list of blocks. A block is one or more commands, a line ``----``, and what they print, up to an empty line:

    append t1=a
    run
    ----
    P1 dispatch 2
    P1 send t1 1.1 (1,2] 2
    t1 apply 1.1 up to 2
    P1 ack t1 1.1 2

To write a new story: write the commands and ``----``, then let the machine fill in the rest and read every line of it::

    LOGPLAYER_REWRITE=1 pytest tests/scenarios         or      python -m logplayer.testing.scenario --rewrite FILE...

Commit the file only if each line is what *should* happen; the checkers of the simulator watch every story as well.
``P1`` is the player whose epoch is 1, ``1.1`` the session (epoch, term), ``(1,2]`` a range, ``t1`` a target. Nothing
is random: events are handled in the order in which they came about, and time passes only by ``tick``.

Commands (a target is called t1, t2, ...; a player p1, p2, ... in the order of their start):

    world [targets=2] [map=explicit|hash|range] [trim=1] [archive=1] [LIMIT=N ...]      begin; LIMIT is a core limit
    append [NxCOUNT] T=TEXT [T=TEXT ...]   append a transaction with a mutation for each T (COUNT times)
    gap N                                  leave out N indexes
    start [at=INDEX]                       a player takes over; its main stream begins after INDEX (default: the end)
    run                                    let everything happen that can, without the passing of time
    tick MS [xCOUNT]                       MS milliseconds pass, then run (COUNT times)
    crash T | restart T                    the target's process dies (kill -9), comes back
    freeze X | thaw X                      a target or player stands still, goes on
    cut T [silent]                         the newest player's stream to T breaks; silent: neither end notices
    kill P | stop P | retry T              a player dies, is asked to drain, is asked to try T again
    poison T INDEX | quarantine T INDEX    the store refuses the entry for good; an operator lets T pass it
    unquarantine T INDEX                   the operator takes that back
    lie T FENCED|DIVERGED INDEX | lie T    T answers every Open with that epoch or index; it is honest again
    add T | remove T | refill T INDEX      membership records; somebody fills T's store up to INDEX
    restore INDEX                          the log is replaced by a backup of it that ends at INDEX, in silence
    trim INDEX | archived INDEX            somebody trims the log by hand; the archive has come this far
    status                                 every living player's queues and every target's index
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from logplayer.core.limits import Limits
from logplayer.errors import UserError
from logplayer.testing.sim.options import CLOCK
from logplayer.testing.sim.story import Story

REWRITE = "LOGPLAYER_REWRITE"


@dataclass(slots=True)
class ScenarioBlock:
    """Some commands and what they must print. ``before`` is what is above them: comments and empty lines."""

    before: list[str]
    commands: list[str]
    expected: list[str]
    line: int

    def text(self, output: list[str]) -> str:
        return "\n".join([*self.before, *self.commands, "----", *output])


def parse(text: str) -> tuple[list[ScenarioBlock], list[str]]:
    """The blocks of a file, and the lines after the last one."""
    blocks: list[ScenarioBlock] = []
    before: list[str] = []
    commands: list[str] = []
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        if line == "----":
            if not commands:
                raise UserError(f"line {number}: ---- without a command above it")
            blocks.append(ScenarioBlock(before, commands, list(_until_empty(lines)), number))
            before, commands = [""], []
        elif not commands and (not line.strip() or line.startswith("#")):
            before.append(line)
        else:
            commands.append(line)
    if commands:
        raise UserError(f"the last command has no ---- below it: {commands[-1]}")
    return blocks, before[1:]


def _until_empty(lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    for _, line in lines:
        if not line.strip():
            return
        yield line


def play(text: str) -> list[tuple[ScenarioBlock, list[str]]]:
    """Run all blocks of a file; each with what it printed."""
    story: Story | None = None
    played = []
    for block in parse(text)[0]:
        output: list[str] = []
        for command in block.commands:
            verb, *words = command.split()
            if verb == "world":
                story = _world(words)
            elif story is None or verb not in Story.commands:
                known = "world, " + ", ".join(Story.commands)
                raise UserError(f"line {block.line}: {command!r}: begin with world, then one of {known}")
            else:
                Story.commands[verb](story, *words)
            output += story.lines
            story.lines.clear()
        played.append((block, output or ["ok"]))
    if story is not None:
        story.checkers.final()
    return played


def _world(words: list[str]) -> Story:
    given = dict(word.split("=", 1) for word in words)
    names = {field.name for field in fields(Limits)}
    limits = {name: int(value) for name, value in given.items() if name in names}
    unknown = set(given) - names - {"targets", "map", "trim", "archive"}
    if unknown:
        raise UserError(f"world: unknown {', '.join(sorted(unknown))}")
    return Story(
        int(given.get("targets", "2")),
        given.get("map", "explicit"),
        given.get("trim") == "1",
        given.get("archive") == "1",
        Limits(**{**CLOCK, "trim_entries_min": 1, **limits}),
    )


def rewritten(text: str) -> str:
    """The file with what its commands print now."""
    rest = parse(text)[1]
    return "\n".join([*(block.text(output) for block, output in play(text)), *([""] if rest else []), *rest]) + "\n"


def main(arguments: list[str]) -> int:
    """Check or rewrite files."""
    rewrite = "--rewrite" in arguments or bool(os.environ.get(REWRITE))
    wrong = 0
    for name in arguments:
        if name.startswith("--"):
            continue
        path = Path(name)
        text = path.read_text()
        now = rewritten(text)
        if now != text and not rewrite:
            wrong += 1
            print(f"{name}: differs from what is printed now; see it with --rewrite")
        path.write_text(now) if rewrite else None
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
