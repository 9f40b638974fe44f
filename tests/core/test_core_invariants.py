"""core/invariants.py: every name can be raised, none can be swallowed, and the spec and the docs use the same words."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logplayer.core import invariants
from logplayer.core.effects import ReadCatchUp
from logplayer.core.entry import Delivery, Session
from logplayer.core.events import CaughtUp, Opened, Ticked
from logplayer.core.fence import Batch, join
from logplayer.core.invariants import NAMES, InvariantViolation, broken
from logplayer.core.target_queue import State
from tests import ROOT
from tests.core.core_rig import control, entry, fetch, limits, live_player, make_player, new_player, of, open_all
from tests.servers import missing

CORE = Path(invariants.__file__).parent


def raised() -> set[str]:
    """The names that some module of the core raises."""
    names = set()
    for path in CORE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                called, arguments = node.exc.func, node.exc.args
                if isinstance(called, ast.Name) and called.id == "broken" and isinstance(arguments[0], ast.Constant):
                    names.add(str(arguments[0].value))
    return names


def test_every_name_is_raised_and_every_raise_has_a_name() -> None:
    assert raised() == NAMES


def test_the_table_in_the_docstring_is_the_set() -> None:
    assert invariants.__doc__ is not None
    assert set(re.findall(r"^([A-Z]\w+) {2,}", invariants.__doc__, re.MULTILINE)) == NAMES


# --- Each can be provoked: somebody has broken the state that the core keeps ------------------------------


def _legal_transition() -> None:
    live_player("a").queues["a"]._become(State.LIVE)


def _index_order() -> None:
    player = live_player("a")
    player.queues["a"].acked = 9
    player.step(Ticked(1))


def _queue_holds_coverage() -> None:
    player = live_player("a")
    queue = player.queues["a"]
    queue.messages.append(Delivery(7, b""))
    player.step(Ticked(1))


def _memory_bound() -> None:
    player = live_player("a", queue_count_max=1)
    queue = player.queues["a"]
    queue.messages.extend([Delivery(1, b""), Delivery(2, b"")])
    queue.covered = 2
    player.step(Ticked(1))


def _live_covers_main() -> None:
    class Late(int):
        """Compares as reached in the test, and not in the check behind it."""

        asked = 0

        def __gt__(self, other: object) -> bool:
            self.asked += 1
            return self.asked > 1

    player = make_player("a")
    player.step(Ticked(0))
    player.current = Late(0)
    player.step(Opened("a", Session(1, 1), 0))


def _batch_covers() -> None:
    join([Batch(0, 3), Batch(4, 5)])


def _main_rises() -> None:
    fetch(live_player("a"), entry(2, a="x"), entry(2, a="x"))


def _trim_safe() -> None:
    player = new_player(1, 0, control("a"), limits(), trims=True)
    open_all(player)
    player.trim_point = lambda: 5  # type: ignore[method-assign]
    player.step(Ticked(1))


def _one_writer() -> None:
    player = live_player("a")
    player.queues["a"].writable = False
    player.queues["a"].take(3, b"")


PROVOKED: dict[str, Callable[[], None]] = {
    "LegalTransition": _legal_transition,
    "IndexOrder": _index_order,
    "QueueHoldsCoverage": _queue_holds_coverage,
    "MemoryBound": _memory_bound,
    "LiveCoversMain": _live_covers_main,
    "BatchCoversItsEntries": _batch_covers,
    "MainRises": _main_rises,
    "TrimSafe": _trim_safe,
    "OneWriter": _one_writer,
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_invariant_can_be_provoked(name: str) -> None:
    with pytest.raises(InvariantViolation) as caught:
        PROVOKED[name]()
    assert caught.value.name == name
    assert caught.value.facts
    assert name in str(caught.value)


def test_a_window_over_its_bounds_is_noticed() -> None:
    player = live_player("a", flight_batches_max=1)
    queue = player.queues["a"]
    queue.window.add(1, 1, 1)
    queue.window.add(2, 1, 1)
    with pytest.raises(InvariantViolation, match="MemoryBound"):
        player.step(Ticked(1))


def test_a_reader_that_reads_past_the_main_stream_is_noticed() -> None:
    """Records behind the main stream are not decided yet: such an entry may have been routed by an old map."""
    player = make_player("a", epoch=5, current=5)
    player.step(Ticked(0))
    [read] = of(player.step(Opened("a", Session(5, 1), 2)), ReadCatchUp)
    with pytest.raises(InvariantViolation, match="QueueHoldsCoverage"):
        player.step(CaughtUp("a", read.session, 2, 9, []))


def test_a_bad_offer_is_noticed() -> None:
    queue = live_player("a").queues["a"]
    queue.offer(Delivery(3, b""))
    with pytest.raises(InvariantViolation, match="QueueHoldsCoverage"):
        queue.offer(Delivery(3, b""))


# --- It ends the process ----------------------------------------------------------------------------------


def test_no_except_exception_swallows_it() -> None:
    assert issubclass(InvariantViolation, BaseException)
    assert not issubclass(InvariantViolation, Exception)
    assert "invariant MainRises is broken: current=1" in str(broken("MainRises", current=1))


def test_it_survives_python_dash_o() -> None:
    script = (
        "from logplayer.core.target_queue import State, TargetQueue\n"
        "from logplayer.core.limits import Limits\n"
        "assert False\n"
        "try:\n    TargetQueue('a', Limits())._become(State.LIVE)\n"
        "except Exception: print('swallowed')\n"
        "except BaseException as error: print(type(error).__name__, error.name)\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["InvariantViolation", "LegalTransition"]


# --- The same words elsewhere -----------------------------------------------------------------------------


def test_the_spec_uses_the_same_names() -> None:
    spec = ROOT / "spec" / "LogPlayer.tla"
    if not spec.is_file():
        missing("spec/ comes with the repository and is not here")
    defined = set(re.findall(r"^([A-Z]\w+)\s*==", spec.read_text(), re.MULTILINE))
    shared = {"IndexOrder", "QueueHoldsCoverage", "LiveCoversMain", "MemoryBound", "TrimSafe"}
    assert shared <= NAMES & defined
    # What only an outside observer can see stands in the spec and is a checker of the simulator.
    assert {"ExactlyOnce", "AckSound"} <= defined


def test_the_docs_tell_every_invariant() -> None:
    told = (ROOT / "docs" / "core.md").read_text()
    assert not [name for name in NAMES if f"`{name}`" not in told]
