"""Where a store is: no password in an error or on a command line, no way out of the directory, no file for others."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from logplayer.core.entry import Session
from logplayer.errors import LogPlayerError, UserError
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import Kind, NewEntry
from logplayer.spark.jobs.compare import StoreAddress
from logplayer.target.places import check_url, path_for, without_secrets
from logplayer.target.stores.open import open_store
from tests.servers import free_port
from tests.target.store_places import Place, opening, playing, put

URLS = {
    "nobody there": "redis://:hunter2@127.0.0.1:1/0",
    "a scheme that Redis does not know": "redos://:hunter2@127.0.0.1:1/0",
    "a slash in the password": "redis://:hunt/er2hunter2@127.0.0.1:1/0",
    "a password as the port": "redis://127.0.0.1:hunter2/0",
    "a bad database": "redis://:hunter2@127.0.0.1:1/0?db=x",
    "PostgreSQL, nobody there": "postgresql://u:hunter2@127.0.0.1:1/x",
    "PostgreSQL, a scheme that it does not know": "postgre://u:hunter2@127.0.0.1:1/x",
    "PostgreSQL, a slash in the password": "postgresql://u:hunt/hunter2@127.0.0.1:1/x",
    "PostgreSQL, a connection string": "host=127.0.0.1 port=1 password=hunter2",
    "PostgreSQL, a broken connection string": "hunter2 host=127.0.0.1",
    "PostgreSQL, an unknown option": "postgresql://u:hunter2@127.0.0.1:1/x?odd=1",
}


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_no_password_is_in_an_error(url: str) -> None:
    kind = "redis" if url.startswith("red") else "postgres"
    with pytest.raises(LogPlayerError) as error:
        open_store(kind, "a", url=url)
    assert "hunt" not in str(error.value)


def test_no_password_is_in_the_error_of_an_audit() -> None:
    with pytest.raises(LogPlayerError, match="'postgresql://h' is not a store"):
        StoreAddress.parse("postgresql://u:hunter2@h/x")


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://user:p%2Fw@127.0.0.1/0",
        "redis://[::1]:6379",
        "redis://[::1]/0",
        "unix:///run/redis.sock?db=1",
        "postgresql:///shop?user=a@b&password=x:y",
        "postgresql://u:p@h1:5432,h2:5433/shop",
        "postgresql://u:p:w@h/shop",
        "host=h port=1",
    ],
)
def test_a_url_that_the_driver_takes_is_let_through(url: str) -> None:
    check_url(url)


def test_what_is_printed_of_a_url() -> None:
    assert without_secrets("redis://u:hunter2@h:1/0?password=hunter2") == "redis://h:1"
    assert without_secrets("redis://u:hunt/er2@h:1/0") == "redis://h:1"
    assert without_secrets("host=h password=hunter2") == "the given place"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logplayer.cli", "target", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_url_may_stand_in_a_file(redis_url: str, tmp_path: Path) -> None:
    place = Place("redis", "", redis_url)
    store = place.open()
    store.apply(opening(Session(1, 1)))
    store.apply(playing(Session(1, 1), 0, 1, put(1)))
    store.close()
    file = tmp_path / "url"
    file.write_text(f"{redis_url}\n")
    done = run("get", "--store", "redis", "--url-file", file, "--id", place.name, "k")
    assert (done.returncode, done.stdout) == (0, "v1\n"), done.stderr
    both = run("get", "--store", "redis", "--url", redis_url, "--url-file", file, "--id", place.name, "k")
    assert both.returncode == 2
    assert "give one of them" in both.stderr
    file.write_text("\n")
    empty = run("get", "--store", "redis", "--url-file", file, "--id", place.name, "k")
    assert empty.returncode == 2
    assert "must hold one line" in empty.stderr


@pytest.mark.parametrize("name", ["../../x", "..", ".", "a/b", "/etc/x", ""])
def test_a_name_does_not_lead_out_of_the_directory(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it would lead to another directory"):
        path_for(str(tmp_path / "{id}.db"), name)


def test_serve_refuses_a_name_that_leads_out_of_the_directory(tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    listen = ["--listen-tcp", f"127.0.0.1:{free_port()}"]
    done = run("serve", "--store", "sqlite", "--path", inside / "{id}.db", "--id", "../../x", *listen)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def open_to_others(directory: Path) -> list[str]:
    """What somebody else could read: not what lies below a directory that is closed to them."""
    found = []
    for path in sorted(directory.iterdir()):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & 0o077:
            found.append(f"{path.name} {mode:o}")
            if path.is_dir():
                found += open_to_others(path)
    return found


@pytest.fixture
def usual_umask() -> object:
    before = os.umask(0o022)
    yield None
    os.umask(before)


@pytest.mark.parametrize("kind", ["sqlite", "rocksdb"])
@pytest.mark.usefixtures("usual_umask")
def test_nobody_else_can_read_a_store(kind: str, tmp_path: Path) -> None:
    store = open_store(kind, "a", path=str(tmp_path / "store"))
    store.apply(opening(Session(1, 1)))
    store.apply(playing(Session(1, 1), 0, 1, put(1)))
    assert list(tmp_path.iterdir()) != []
    assert open_to_others(tmp_path) == []
    store.close()


@pytest.mark.usefixtures("usual_umask")
async def test_nobody_else_can_read_a_log(tmp_path: Path) -> None:
    """Segments, their write-ahead logs, the history, the lock: also in a directory that is open to all."""
    folder = tmp_path / "log"
    folder.mkdir(mode=0o755)
    log = await FileLog.open(folder, segment_bytes=2000)
    for sequence in range(1, 41):
        await log.append([NewEntry("p", sequence, b"x" * 500, Kind.DATA)])
    await log.trim(30)
    async with asyncio.timeout(30):
        while not (folder / "history.db").exists():  # noqa: ASYNC110 - the writer's thread makes it.
            await asyncio.sleep(0.01)
    assert {"LOCK", "history.db"} <= {path.name for path in folder.iterdir()}
    assert open_to_others(folder) == []
    await log.close()
    assert open_to_others(folder) == []
    new = await FileLog.open(tmp_path / "new" / "log")
    assert stat.S_IMODE((tmp_path / "new" / "log").stat().st_mode) == 0o700
    await new.close()
