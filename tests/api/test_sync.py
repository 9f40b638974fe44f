"""The blocking API: threads, a fork, the end of the program."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import logplayer as lp
from logplayer.api import background
from logplayer.testing.conformance.log_harness import ServerProcess
from logplayer.wire import grpc_threads as threads_of_grpc

PROGRAM = """
import glob, os, sys

def grpc_threads():
    names = [open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm")]
    return [name for name in names if name.startswith(("grpc", "event_engine", "lifeguard"))]

found_at_forks = []
os.register_at_fork(before=lambda: found_at_forks.extend(grpc_threads()))  # Runs after the hook of logplayer.sync.
import logplayer as lp

log = lp.sync.open_log(sys.argv[1])
producer = log.producer()
if sys.argv[2] == "used":
    producer.append(lp.put("parent", "1"), timeout=120)
names = set()
for worker in range(3):
    reading, writing = os.pipe()
    if os.fork() == 0:
        receipts = [producer.append(lp.put(f"{worker}/{n}", "1"), timeout=120) for n in range(5)]
        os.write(writing, receipts[0].producer.encode())
        sys.exit(0 if [r.sequence for r in receipts] == [1, 2, 3, 4, 5] else 7)
    os.close(writing)
    names.add(os.read(reading, 1000))
    assert os.wait()[1] == 0
assert not found_at_forks, f"a fork copies the mutex that one of them holds: {found_at_forks}"
assert len(names) == 3, "each process has a producer of its own"
before = producer.append(lp.put("parent", "2"), timeout=120)
assert log.info().last == before.index
print(before.index)
"""


FORKS_AT_WORK = """
import collections, faulthandler, multiprocessing, os, sys, threading, time
import logplayer as lp

faulthandler.dump_traceback_later(240, exit=True)
log, other = lp.sync.open_log(sys.argv[1]), lp.sync.open_log(sys.argv[1])
named, own = log.producer("web-1"), other.producer()
done, wrong, over = collections.Counter(), [], False

def read():
    assert next(log.read(1))[0].index == 1

def opened():
    with lp.sync.open_log(sys.argv[1]) as one:
        one.info()

CALLS = {
    "info": log.info,
    "newest": lambda: other.newest("web-1"),
    "named": lambda: named.append(lp.put("k", "v"), timeout=60),
    "own": lambda: own.append(lp.put("k", "v"), timeout=60),
    "read": read,
    "opened": opened,
}

def work(name):
    while not over:
        try:
            CALLS[name]()
            done[name] += 1
        except lp.LogUnavailable:
            pass  # The process forked meanwhile.
        except BaseException as error:
            wrong.append(f"{name}: {error!r}")
            return

def child():
    os._exit(0 if own.append(lp.put("child", "1"), timeout=60).sequence == 1 else 7)

named.append(lp.put("k", "v"))
threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in CALLS]
for thread in threads:
    thread.start()
for turn in range(int(sys.argv[2])):
    time.sleep(0.02 * (turn % 5))
    if turn % 3 == 0:
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0, process.exitcode
        continue
    if os.fork() == 0:
        child() if turn % 3 == 1 else os._exit(0)
    assert os.wait()[1] == 0
before = done.copy()
while not wrong and any(done[name] < before[name] + 3 for name in CALLS):
    time.sleep(0.05)
over = True
for thread in threads:
    thread.join()
print(wrong)
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[str]:
    process = ServerProcess(f"file://{tmp_path}/log")
    await process.start()
    yield f"grpc://{process.where}"
    await process.stop()


def test_threads_share_a_log(server: str) -> None:
    with lp.sync.open_log(server) as log:
        producer = log.producer("web-1")
        found: list[int] = []

        def work(worker: int) -> None:
            receipts = [producer.append(lp.put(f"{worker}/{turn}", "x")) for turn in range(20)]
            assert [receipt.index for receipt in receipts] == sorted(receipt.index for receipt in receipts)
            found.extend(receipt.index for receipt in receipts)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(found) == list(range(1, 161))
        assert producer.sequence == log.newest("web-1").sequence == 160
        assert [record.index for records in log.read(1, 160) for record in records] == list(range(1, 161))
        assert log.append([lp.NewEntry("other", 1, b"")]) == [161]
        assert log.trim(100) == 100
        with pytest.raises(lp.Trimmed):
            next(log.read(1, 5))
    with pytest.raises(lp.LogUnavailable, match="is closed"):
        log.info()


async def test_the_end_of_a_block_waits_for_what_was_given_up(tmp_path: Path) -> None:
    """A transaction whose timeout is over is still sent; what raises does not wait."""
    process = ServerProcess(f"file://{tmp_path}/log")
    await process.start()

    def give_up(fails: bool) -> int:
        with lp.sync.open_log(f"grpc://{process.where}") as log:
            producer = log.producer("web-1")
            last = producer.sequence
            os.kill(process.pid, signal.SIGSTOP)
            try:
                with pytest.raises(lp.LogUnavailable, match="no answer to transaction"):
                    producer.append(lp.put("k", "v"), timeout=0.05)
            finally:  # While the end of the block waits.
                threading.Timer(0.5, os.kill, (process.pid, signal.SIGCONT)).start()
            assert not fails
        return last

    assert await asyncio.to_thread(give_up, False) == 0
    with lp.sync.open_log(f"grpc://{process.where}") as log:
        assert await asyncio.to_thread(log.newest, "web-1") == (1, 1)
    with pytest.raises(AssertionError):
        await asyncio.to_thread(give_up, True)
    await process.stop()


@pytest.mark.parametrize("parent", ["used", "unused"])
def test_a_forked_process_has_a_log_of_its_own(server: str, parent: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server, parent],
        capture_output=True,
        text=True,
        timeout=300,  # Longer than its own deadlines.
        check=False,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 15 + 1 + (parent == "used")


def test_a_program_ends_by_itself(tmp_path: Path) -> None:
    """What is open is closed, and the lock of a file log is free afterwards."""
    program = (
        "import logplayer as lp; import sys; log = lp.sync.open_log(sys.argv[1]);"
        "print(log.producer('p').append(lp.put('k', 'v')).index)"
    )
    for turn in (1, 2):
        command = [sys.executable, "-c", program, f"file://{tmp_path}/log"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{turn}\n", "")


def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(lp.AddressError):
        lp.sync.open_log("nowhere")


def test_a_fork_waits_for_the_threads_of_grpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["grpc_global_tim"], ["event_engine"], []]
    monkeypatch.setattr(threads_of_grpc, "running", lambda: answers.pop(0))
    with lp.sync.open_log(f"file://{tmp_path}/log") as log:
        log.info()
        background.at_exit()
    assert not answers, "it returned while they were there"


def test_forks_while_other_threads_are_at_work(server: str, tmp_path: Path) -> None:
    """Each thread goes on after the last fork, and meets nothing worse than ``LogUnavailable``."""
    out, errors = tmp_path / "out", tmp_path / "errors"
    command = [sys.executable, "-c", FORKS_AT_WORK, server, "30"]
    with open(out, "w") as output, open(errors, "w") as trouble:  # Files: a child that hangs would keep a pipe open.
        process = subprocess.Popen(command, stdout=output, stderr=trouble, start_new_session=True)
        try:
            code = process.wait(250)  # Longer than its own deadline.
        finally:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
    said = errors.read_text()
    assert (code, out.read_text()) == (0, "[]\n"), said
    assert "Traceback" not in said
    assert "never awaited" not in said


def test_a_call_waits_while_another_thread_forks(tmp_path: Path) -> None:
    """A loop that it began would be at work when the process is copied."""
    with lp.sync.open_log(f"file://{tmp_path}/log") as log:
        waiting = threading.Thread(target=log.info)
        background.before_fork()
        try:
            waiting.start()
            waiting.join(0.3)
            assert waiting.is_alive()
            assert background._background is None
        finally:
            background.after_fork_in_parent()
        waiting.join(60)
        assert not waiting.is_alive()


def test_a_loop_that_has_ended_begins_nothing() -> None:
    """Whoever had it in hand takes the next one."""
    loop = background.Background()

    async def act(_: background.Background) -> None:
        raise AssertionError("nothing is begun")

    loop.end()
    assert loop.submit(act) is None


def test_a_log_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    log = lp.sync.open_log(f"file://{tmp_path}/log")
    producer = log.producer("web-1")
    for _ in range(2):
        with pytest.raises(lp.LogFormatError):
            producer.append(lp.put("k", "v"))
    (tmp_path / "log").unlink()
    assert producer.append(lp.put("k", "v")).index == 1
    log.close()
    (tmp_path / "other").write_text("a file")
    with pytest.raises(lp.LogFormatError), lp.sync.open_log(f"file://{tmp_path}/other"):
        pass


def test_a_reader_does_not_go_on_after_a_fork(tmp_path: Path) -> None:
    with lp.sync.open_log(f"file://{tmp_path}/log") as log:
        producer = log.producer("web-1")
        assert producer.append(lp.put("k", "v")).index == 1
        reader = log.read(1)
        assert [record.index for record in next(reader)] == [1]
        background.at_exit()
        with pytest.raises(lp.LogUnavailable, match="read on after what you have"):
            next(reader)
        assert producer.append(lp.put("k", "v")).sequence == 2
        assert [record.index for record in next(log.read(2))] == [2]
