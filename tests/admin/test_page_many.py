"""The page with simulated targets: 500 that change at every update, and a few in the states that a test wants."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logplayer.wire.security import Security, read_token
from tests.admin import page_face as made_up
from tests.admin import page_probes as probes
from tests.admin.browser import ELSEWHERE, Browser, chromium
from tests.admin.page_face import POISON, a_target, faced, playing
from tests.admin.test_page import ESCAPE, headline

TARGETS = 500
UPDATE_MS_MAX = 100
STATES = (("LIVE", "fine"), ("CATCHING_UP", "catches up"), ("SUSPENDED", "is tried again"), ("BLOCKED", "needs you"))


def target(number: int, turn: int, chosen: random.Random) -> dict[str, Any]:
    """Every field of a target, most of them new at each turn; one in thirty is in another state."""
    state, outlook = STATES[0] if chosen.random() < 0.97 else chosen.choice(STATES)
    lag = 0 if outlook == "fine" else chosen.randrange(1, 100_000)
    return a_target(
        f"shard{number}", address=f"grpc://10.0.0.{number % 250}:7201", state=state, session=f"{turn}.1",
        index=1_000_000 + turn * 997 + number, lag_entries=lag, lag_bytes=lag * 100, lag_seconds=lag / 1000,
        queued=chosen.randrange(100), in_flight=chosen.randrange(100), entries_per_second=chosen.random() * 5000,
        eta_seconds=lag / 100, digest=f"{chosen.getrandbits(128):032x}", error="" if lag == 0 else "Connection refused",
        state_seconds=float(turn), blocked=POISON if state == "BLOCKED" else None, queue_fill=chosen.random(),
        window_fill=chosen.random(), outlook=outlook, why="" if lag == 0 else f"it lags by {lag}", whether=outlook,
    )  # fmt: skip


def a_status(turn: int) -> dict[str, Any]:
    chosen = random.Random(turn)
    return {**playing([target(number, turn, chosen) for number in range(TARGETS)]), "log_last": 2_000_000}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Each status is another one."""
    turn = iter(range(1_000_000))
    with faced(lambda: a_status(next(turn))) as made:
        yield made


@pytest.fixture(scope="module")
def browser(url: str) -> Iterator[Browser]:
    with chromium() as made:
        made.look(1280, 1000)
        made.open(url)
        made.until("return document.querySelectorAll('#rows tr').length === arguments[0]", TARGETS)
        made.until("return window.logplayer.measured.updates > 20")
        yield made


@pytest.mark.parametrize("width", [1280, 390])
def test_an_update_of_all_targets_is_quick(browser: Browser, width: int) -> None:
    """The median of those twenty of sixty in which the machine was least busy with something else, by a control."""
    browser.look(width, 900, mobile=width < 500)
    took = []
    for turn in range(60):
        rows = {row["target"]: row for row in a_status(100_000 + turn)["targets"]}
        took.append(browser.run(probes.TIMED_CHANGE, {"set": {"current": turn}, "targets": rows, "gone": []}))
    quiet = [change for change, _ in sorted(took, key=lambda one: one[1])[:20]]
    print(f"{TARGETS} targets, {width} pixels: median {statistics.median(quiet):.1f} ms, largest {max(quiet):.1f} ms")
    assert statistics.median(quiet) < UPDATE_MS_MAX


def test_the_worst_come_first(browser: Browser) -> None:
    browser.look(1280, 900)
    shown = browser.until(probes.SORTED)
    assert (len(shown), shown[0], shown[-1]) == (TARGETS, 0, 3)


def test_one_of_many_is_found(browser: Browser) -> None:
    browser.type("#find", "shard499")
    shown = "return [...document.querySelectorAll('#rows tr')].filter(tr => !tr.hidden).map(tr => tr.id)"
    browser.until(f"return (() => {{ {shown} }})().join() === 't-shard499'")
    browser.type("#find", "nobody")
    browser.until("return !document.getElementById('none').hidden")
    browser.run("const f = document.getElementById('find'); f.value = ''; f.dispatchEvent(new Event('input'))")


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def three() -> Iterator[str]:
    """A status that stays: shard0, shard1 and shard2 have everything."""
    with faced(lambda: playing([a_target(f"shard{number}") for number in range(3)])) as made:
        yield made


@pytest.fixture
def page(three: str, window: Browser) -> Browser:
    window.look(1280, 1000)
    window.open(three)
    headline(window, "All 3 targets have everything.")
    return window


def change(page: Browser, **targets: dict[str, Any]) -> None:
    """As if the server had sent it."""
    page.run("window.logplayer.take('change', arguments[0])", {"set": {}, "targets": targets, "gone": []})


def order(page: Browser) -> list[str]:
    return [str(name) for name in page.run("return [...document.querySelectorAll('#rows tr')].map(tr => tr.id)")]


def focus(page: Browser) -> str:
    return str(page.run(probes.FOCUS))


def test_the_focus_stays_on_a_row_that_moves(page: Browser) -> None:
    page.run("document.querySelector('#t-shard1 .open').focus()")
    change(page, shard1=made_up.AWAY)
    assert order(page) == ["t-shard1", "t-shard0", "t-shard2"]
    assert focus(page) == "Act on shard1"
    change(page, shard1=made_up.FINE)
    assert order(page) == ["t-shard0", "t-shard1", "t-shard2"]
    assert focus(page) == "Act on shard1"


def test_the_focus_stays_while_other_rows_move(page: Browser) -> None:
    page.run("document.querySelector('#t-shard0 .open').focus()")
    change(page, shard2=made_up.AWAY)
    assert order(page) == ["t-shard2", "t-shard0", "t-shard1"]
    change(page, shard2=made_up.FINE)
    assert order(page) == ["t-shard0", "t-shard1", "t-shard2"]
    assert focus(page) == "Act on shard0"


def test_only_the_row_whose_rank_changes_moves(page: Browser) -> None:
    change(page, shard0=made_up.AWAY)
    page.run(
        """
        window.moved = [];
        const note = all => window.moved.push(...all.flatMap(one => [...one.addedNodes]).map(tr => tr.id));
        new MutationObserver(note).observe(document.getElementById('rows'), { childList: true });
        """
    )
    change(page, shard0=made_up.FINE, shard2=made_up.AWAY)
    change(page, shard2=made_up.FINE)
    assert order(page) == ["t-shard0", "t-shard1", "t-shard2"]
    assert page.run("return window.moved") == ["t-shard2"] * 2


@pytest.mark.parametrize("focused", [*range(6), None])
def test_rows_come_into_order_wherever_the_focus_is(page: Browser, focused: int | None) -> None:
    """Any order leads to any other, and the row with the focus is never taken out."""
    states = (made_up.BLOCKED, made_up.FALLS, made_up.AWAY, made_up.SLOW, made_up.SUSPENDED, made_up.FINE)
    names = [f"t{number}" for number in range(6)]
    page.run("window.logplayer.take('status', arguments[0])", playing([a_target(name) for name in names]))
    if focused is not None:
        page.run("document.querySelector(arguments[0]).focus()", f"#t-t{focused} .open")
    chosen = random.Random(focused)
    for _ in range(40):
        ranks = {name: chosen.randrange(6) for name in names}
        change(page, **{name: {"blocked": None, **states[rank]} for name, rank in ranks.items()})
        assert order(page) == [f"t-{name}" for name in sorted(names, key=lambda one: (ranks[one], one))]
        assert focus(page) == ("BODY" if focused is None else f"Act on t{focused}")


def test_the_focus_stays_on_a_trouble_whose_countdown_ticks(page: Browser) -> None:
    change(page, shard1=made_up.AWAY)
    page.run("document.querySelector('#troubles a').focus()")
    focused = "return document.activeElement.closest('#troubles') && document.activeElement.textContent"
    for number in (3, 2, 1):
        change(page, shard1={"whether": f"tried again in {number} s"})
        assert page.text("#troubles") == f"shard1 is away: Connection refused – tried again in {number} s"
        assert page.run(focused) == "shard1"
    change(page, shard2={**made_up.AWAY, "lag_entries": 9})
    assert page.run("return [...document.querySelectorAll('#troubles a')].map(a => a.textContent)") == [
        "shard2",
        "shard1",
    ]
    assert page.run(focused) == "shard1"
    change(page, shard1=made_up.FINE, shard2=made_up.FINE)
    assert page.text("#troubles") == ""


def test_what_ticks_is_not_read_out(page: Browser) -> None:
    """A screen reader announces each change in a live region."""
    change(page, shard1=made_up.AWAY)
    live = "[aria-live], [role=status], [role=alert]"
    page.run(
        """
        window.announced = [];
        const watch = new MutationObserver(all => window.announced.push(...all.map(one => one.target.textContent)));
        for (const e of document.querySelectorAll(arguments[0]))
          watch.observe(e, { childList: true, characterData: true, subtree: true });
        """,
        live,
    )
    change(page, shard1={"whether": "tried again in 3 s", "state_seconds": 12.0})
    assert "tried again in 3 s" in page.text("#troubles")
    assert page.run("return window.announced") == []
    change(page, shard1=made_up.FINE)
    assert page.run("return window.announced") == ["All 3 targets have everything."]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"shard0": made_up.SUSPENDED, "shard1": made_up.AWAY},
            "1 of 3 targets needs a look; 1 has everything; 1 is suspended.",
        ),
        (
            {"shard0": made_up.SUSPENDED, "shard1": made_up.SUSPENDED, "shard2": made_up.SLOW},
            "1 of 3 catches up; 0 have everything; 2 are suspended.",
        ),
        ({"shard0": made_up.SUSPENDED}, "1 of 3 is suspended by an operator."),
        ({"shard2": made_up.AWAY}, "1 of 3 targets needs a look; 2 have everything."),
    ],
)
def test_the_headline_does_not_count_suspended_ones_as_complete(
    page: Browser, changes: dict[str, Any], text: str
) -> None:
    change(page, **changes)
    assert page.text("#headline") == text


def give(page: Browser, token: str) -> None:
    page.type("#dialog-fields input", token)
    page.click("#confirm")


@pytest.mark.parametrize("leave", ["escape", "cancel"])
def test_a_token_is_taken_from_any_dialog(window: Browser, tmp_path: Path, leave: str) -> None:
    """The first one is left, a wrong one is given, then the right one; the page goes on by itself."""
    (tmp_path / "token").write_text("s3cret")
    needed = "return document.getElementById('link').textContent === 'token needed'"
    asked = "return document.getElementById('dialog').open"
    with faced(lambda: playing([a_target("a")]), Security(token=read_token(str(tmp_path / "token")))) as url:
        window.open(url)
        window.until(asked)
        window.keys(ESCAPE) if leave == "escape" else window.click("#cancel")
        window.until("return !document.getElementById('dialog').open")
        headline(window, "This process asks for a token. Press “Token…” and give it.")
        window.run(
            """
            const dialog = document.getElementById('dialog'), show = dialog.showModal.bind(dialog);
            window.opened = 0;
            dialog.showModal = () => { window.opened += 1; show(); };
            """
        )
        window.click("#token")
        give(window, "guess")
        window.until("return window.opened === 2")  # It asks again.
        assert window.run(needed)
        window.keys(ESCAPE)
        window.click("#token")
        give(window, "s3cret")
        headline(window, "The target has everything.")
        assert window.text("#link") == "connected"
        assert not window.run(asked)


def test_a_refusal_that_no_token_mends_is_said(window: Browser) -> None:
    """Without a token, a server answers only to a name that cannot be pointed at it from elsewhere."""
    with faced(lambda: playing([a_target("a")]), Security(insecure=True)) as url:
        window.open(url.replace("127.0.0.1", ELSEWHERE))
        headline(window, f"this server has no token, and {ELSEWHERE} may be any name; use a number")
        assert window.text("#link") == "refused"
        assert not window.run("return document.getElementById('dialog').open")
        window.open(url)
        headline(window, "The target has everything.")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_trouble_and_dialogs_can_be_read(page: Browser, dark: bool, width: int) -> None:
    """The colours of everything that is wrong, and of an open dialog with an error."""
    page.look(width, 844, dark=dark, mobile=width < 500)
    change(page, shard0=made_up.AWAY, shard1=made_up.SUSPENDED, shard2=made_up.SLOW)
    assert page.run(probes.LOW_CONTRAST) == []
    change(page, shard0=made_up.BLOCKED)
    page.click("#t-shard0 .open")
    assert page.run(probes.LOW_CONTRAST) == []
    page.click("#dialog [data-action=suspend]")
    page.click("#confirm")  # There is no token here, and a page does not act without one.
    page.until("return document.getElementById('dialog-error').textContent.includes('only with a token')")
    assert page.run(probes.LOW_CONTRAST) == []
    page.keys(ESCAPE)
