"""Which targets fit to a log that was restored: each is asked, and compared by index and chain value."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import logplayer as lp
from logplayer.core.entry import Takeover
from logplayer.log import control_chain
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import History
from logplayer.player.restored import compare_targets
from logplayer.testing.conformance.log_check import entry
from tests.servers import free_port


async def filled(log: FileLog, producer: str, count: int) -> History:
    """The index and the chain value after ``count`` more entries."""
    for sequence in range(1, count + 1):
        await log.append([entry(producer, sequence)])
    info = await log.info()
    return History(info.last, info.chain)


def stored(folder: Path, name: str, at: History, log_id: str, epoch: int = 1) -> lp.SqliteTarget:
    """A store that has this index of this history."""
    lp.SqliteTarget(folder / f"{name}.db", name).close()
    with closing(sqlite3.connect(folder / f"{name}.db")) as db, db:
        values = (at.index, at.chain, log_id, epoch)
        assert db.execute("UPDATE position SET log_index=?, chain=?, log_id=?, epoch=?, term=1", values).rowcount == 1
    return lp.SqliteTarget(folder / f"{name}.db", name)


async def test_every_kind_of_target(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log", segment_bytes=10_000)
    below = await filled(log, "old", 10)
    common = await filled(log, "more", 90)
    await log.close()
    shutil.copytree(tmp_path / "log", tmp_path / "lost")
    lost = await FileLog.open(tmp_path / "lost")
    other = await filled(lost, "lost", 20)
    ahead = await filled(lost, "later", 20)
    await lost.close()
    log = await FileLog.open(tmp_path / "log", segment_bytes=10_000)
    newest = await filled(log, "new", 30)
    nobody = f"tcp://127.0.0.1:{free_port()}"
    members = (("gone", nobody), ("unnamed", ""))
    index, _ = await control_chain.append(log, Takeover("", "p"), lp.HashMap(("gone", "unnamed")), members)
    await log.trim(50)
    info = await log.info()
    stores = {
        "lags": stored(tmp_path, "lags", common, info.log_id),
        "whole": stored(tmp_path, "whole", History(index, info.chain), info.log_id),
        "newer": stored(tmp_path, "newer", newest, info.log_id, epoch=10_000),
        "ahead": stored(tmp_path, "ahead", ahead, info.log_id),
        "other": stored(tmp_path, "other", other, info.log_id),
        "below": stored(tmp_path, "below", below, info.log_id),
        "wrong": stored(tmp_path, "wrong", common, "another log"),
        "empty": lp.SqliteTarget(tmp_path / "empty.db", "empty"),
    }
    server = lp.TargetServer(dict(stores))
    [address] = await server.start(tcp="127.0.0.1:0")
    try:
        found = {one.target: one for one in await compare_targets(log, dict.fromkeys(stores, address))}
    finally:
        await server.stop()
        await log.close()
    assert {name: one.verdict for name, one in found.items()} == {
        "gone": "UNKNOWN",
        "unnamed": "UNKNOWN",
        "lags": "FITS",
        "whole": "FITS",
        "newer": "FENCED",
        "ahead": "DIVERGED",
        "other": "DIVERGED",
        "below": "RESEED",
        "wrong": "WRONG_LOG",
        "empty": "RESEED",
    }
    assert found["lags"].detail == f"it gets entries 101 to {info.last}"
    assert found["ahead"].index == 140 > info.last
    assert found["other"].index == 120 < info.last
    assert found["gone"].index is None
    assert "--target unnamed=ADDRESS" in found["unnamed"].detail
