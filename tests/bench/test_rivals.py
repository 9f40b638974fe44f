"""What the rivals share: the pieces of a transaction, the samples, and what is said when something is missing."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from bench.actor import ActorFailed
from bench.contest import Workload
from bench.producer import payload_of
from bench.rivals import jars, parts, rivals
from bench.rivals.__main__ import main
from bench.rivals.brokers import Brokers
from logplayer.errors import UserError
from logplayer.wire.codec import decode_transaction

SMALL = Workload(targets=3, keys=5, count=6, warm_up=2)


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOGPLAYER_RIVALS", str(tmp_path))
    return tmp_path


def test_pieces_hold_what_the_workload_says() -> None:
    for number in range(1, SMALL.count + 1):
        found = {target: decode_transaction(piece) for target, piece in parts.pieces(SMALL, number).items()}
        assert found == SMALL.parts(number)
        assert parts.cut(payload_of(SMALL, number), SMALL.targets) == parts.pieces(SMALL, number)


def stamps(*left_out: tuple[int, int]) -> array[int]:
    found: array[int] = array("q")
    for number in range(1, SMALL.count + 1):
        for target in SMALL.parts(number):
            if (number, target) not in left_out:
                found.extend((target, number, 1000 + number))
    return found


def test_samples_leave_out_the_warm_up() -> None:
    asked = {number: 500 + number for number in range(1, SMALL.count + 1)}
    found = parts.samples(SMALL, stamps(), asked)
    assert {s.transaction for s in found} == {3, 4, 5, 6}
    assert all(s.apply_ns - s.asked_ns == 500 and s.commit_ns == s.dispatch_ns == s.asked_ns for s in found)
    assert len(found) == sum(len(SMALL.parts(number)) for number in SMALL.counted())


def test_a_missing_and_a_repeated_delivery_are_failures() -> None:
    asked = dict.fromkeys(range(1, SMALL.count + 1), 1)
    gone = next(iter(SMALL.parts(4)))
    with pytest.raises(ActorFailed, match=f"transaction 4 was not applied at target {gone}"):
        parts.samples(SMALL, stamps((4, gone)), asked)
    twice = stamps()
    twice.extend((gone, 4, 9999))
    with pytest.raises(ActorFailed, match="twice"):
        parts.samples(SMALL, twice, asked)
    first = parts.samples(SMALL, twice, asked, once=False)
    assert [s.apply_ns for s in first if (s.transaction, s.target) == (4, gone)] == [1004]


def test_every_rival_can_be_made_and_says_what_it_guarantees() -> None:
    for name, make in rivals().items():
        made = make()
        assert made.name == name
        assert made.guarantee
        made.close()  # Nothing was opened, and that is no failure.


def test_without_jars_it_says_what_to_do(empty_home: Path) -> None:
    assert not jars.fetched("kafka")
    with pytest.raises(UserError, match="make rivals"):
        Brokers(empty_home / "cluster").up()


def test_without_maven_it_says_what_to_do(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(empty_home))
    assert main(["fetch"]) == 2
    assert "apt-get install maven" in capsys.readouterr().err


def test_status_and_down_work_when_nothing_runs(empty_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    assert capsys.readouterr().out.count("down") == 3
    assert main(["down"]) == 0
    assert "stopped 0 brokers" in capsys.readouterr().out


def test_a_pid_file_of_a_strange_process_is_not_believed(empty_home: Path) -> None:
    brokers = Brokers()
    brokers.folder(0).mkdir(parents=True)
    (brokers.folder(0) / "broker.pid").write_text("1")
    assert brokers.pid(0) is None
    assert brokers.down() == 0
