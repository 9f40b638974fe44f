"""What is wrong with a log or its backup is found before either is trusted: checksums, files, the chain."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import cast

import pytest

from logplayer.errors import DamagedLog, LogFormatError
from logplayer.log.file import backup as backups
from logplayer.log.file.backup import MANIFEST, backup_log, restore_log
from logplayer.log.file.directory import Directory
from logplayer.log.protocol import Log
from logplayer.log.verify import verify_log
from logplayer.testing.conformance.log_check import payload
from logplayer.testing.conformance.log_harness import flip_in_files
from tests.log.backup_support import fill, filled, opened, run


async def test_a_flipped_bit_of_a_payload_in_a_backup(tmp_path: Path) -> None:
    await filled(tmp_path / "log")
    await backup_log(tmp_path / "log", tmp_path / "backup")
    assert flip_in_files(sorted((tmp_path / "backup").glob("*.seg")), payload("p", 77)[50:150]) == 1
    out, errors = await run("restore", f"{tmp_path}/backup", "--to", f"file://{tmp_path}/again", code=1)
    assert out == ""
    assert "nothing was restored" in errors
    with pytest.raises(DamagedLog) as found:
        await restore_log(tmp_path / "backup", tmp_path / "again")
    assert any(index == 77 and "entry 77 is damaged" in why for index, why in found.value.faults)
    assert not (tmp_path / "again").exists()
    out, errors = await run(
        "restore", f"{tmp_path}/backup", "--to", f"file://{tmp_path}/again", "--damaged-too", "--json"
    )
    assert 77 in [fault["index"] for fault in json.loads(out)["faults"]]
    assert "entry 77 is damaged" in errors


async def test_a_flipped_byte_anywhere_in_a_backup(tmp_path: Path) -> None:
    """Also where no entry is: SQLite's own pages, the history, the manifest."""
    async with opened(tmp_path / "log") as log:
        await fill(log, "p", 1, 300)
        await log.trim(250)
    await backup_log(tmp_path / "log", tmp_path / "backup")
    names = sorted(path.name for path in (tmp_path / "backup").iterdir())
    assert MANIFEST in names
    assert "history.db" in names
    for name in names:
        path = tmp_path / "backup" / name
        data = path.read_bytes()
        for at in (0, 40, len(data) // 2, len(data) - 3):
            path.write_bytes(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
            with pytest.raises(DamagedLog):
                await restore_log(tmp_path / "backup", tmp_path / "again")
        path.write_bytes(data)
    for name in names:
        path = tmp_path / "backup" / name
        path.rename(tmp_path / name)
        with pytest.raises((DamagedLog, LogFormatError)):
            await restore_log(tmp_path / "backup", tmp_path / "again")
        (tmp_path / name).rename(path)
    await restore_log(tmp_path / "backup", tmp_path / "again")


def everywhere(place: Path) -> list[Path]:
    return sorted(place.rglob("*"))


@pytest.mark.parametrize(
    "name",
    [
        "../stolen.seg",
        "{0}/stolen.seg",
        "..",
        "",
        "sub/00000000000000000001.seg",
        "1.seg",
        "BACKUP.json",
        "00000000000000000001.seg-wal",
        "00000000000000000001.seg\n",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١.seg",
    ],
)
async def test_a_manifest_with_a_name_that_no_file_of_a_log_has(name: str, tmp_path: Path) -> None:
    """Whoever makes a backup can make its checksum, too, and must not say where a restore writes."""
    await filled(tmp_path / "log", 5)
    (tmp_path / "place").mkdir()
    made = await backup_log(tmp_path / "log", tmp_path / "place" / "backup")
    name = name.format(tmp_path)
    files = backups._sums(tmp_path / "place" / "backup")
    backups._write_manifest(tmp_path / "place" / "backup", made, files | {name: next(iter(files.values()))})
    before = everywhere(tmp_path)
    for damaged_too in (False, True):
        with pytest.raises(DamagedLog) as found:
            await restore_log(tmp_path / "place" / "backup", tmp_path / "again", damaged_too=damaged_too)
        assert f"it names a file {name!r}" in str(found.value)
    assert everywhere(tmp_path) == before


async def forked(path: Path, other: Path) -> None:
    """Two histories of one log, the same up to 200, each with entries of its own in several segments after that."""
    await filled(path)
    shutil.copytree(path, other)
    for place, producer in ((path, "x"), (other, "y")):
        async with opened(place) as log:
            await fill(log, producer, 1, 300)


def exchange(path: Path, other: Path) -> int:
    """Put a middle segment of ``other`` into ``path``; returns its first index."""
    firsts = [first for first in Directory(path).segments() if first > 200]
    name = Directory(path).segment(firsts[1]).name
    for companion in path.glob(f"{name}-*"):
        companion.unlink()
    shutil.copy(other / name, path / name)
    return firsts[1]


async def test_a_segment_of_another_history_in_a_backup(tmp_path: Path) -> None:
    """All checksums are right, also those of the files: the chain tells."""
    await forked(tmp_path / "log", tmp_path / "other")
    made = await backup_log(tmp_path / "log", tmp_path / "backup")
    await backup_log(tmp_path / "other", tmp_path / "backup2")
    at = exchange(tmp_path / "backup", tmp_path / "backup2")
    backups._write_manifest(tmp_path / "backup", made, backups._sums(tmp_path / "backup"))
    with pytest.raises(DamagedLog) as found:
        await restore_log(tmp_path / "backup", tmp_path / "again")
    assert at in [index for index, _ in found.value.faults]
    assert f"entry {at} does not continue the entry before it" in str(found.value)
    assert not (tmp_path / "again").exists()


async def test_a_log_with_a_segment_of_another_history(tmp_path: Path) -> None:
    await forked(tmp_path / "log", tmp_path / "other")
    at = exchange(tmp_path / "log", tmp_path / "other")
    out, errors = await run("verify", "--log", f"file://{tmp_path}/log", "--json", code=1)
    [first, second] = json.loads(out)["chain_breaks"]
    assert first == at < second
    assert json.loads(out)["damaged"] == []
    assert f"entry {at} does not continue the entry before it" in errors
    out, _ = await run("verify", "--log", f"file://{tmp_path}/log", code=1)
    assert f"the chain breaks at {first}, {second}" in out
    _, errors = await run("backup", "--log", f"file://{tmp_path}/log", "--to", f"{tmp_path}/backup", code=1)
    assert f"entry {at} does not continue the entry before it" in errors
    assert not (tmp_path / "backup").exists()


async def test_verify_of_a_log_whose_end_is_not_what_it_says(tmp_path: Path) -> None:
    """Rows that are gone from the end of a segment that others follow; and a wrong value at the trim point."""
    async with opened(tmp_path / "log") as log:
        await fill(log, "p", 1, 300)
        await log.trim(100)
        right = await log.info()
        assert (await verify_log(log)).faults == []
        for wrong in (right._replace(chain=bytes(8)), right._replace(trimmed_chain=bytes(8))):
            found = await verify_log(cast("Log", _Says(log, wrong)))
            assert [fault.index for fault in found.breaks] == [300 if wrong.chain != right.chain else 101]
        unfenced = await verify_log(cast("Log", _Says(log, right._replace(trimmed_chain=bytes(8), unfenced=True))))
        assert "two writers were at work" in unfenced.breaks[0].why


class _Says:
    """A log that says something else of itself than it has."""

    def __init__(self, log: Log, info: object) -> None:
        self._info, self.read = info, log.read

    async def info(self) -> object:
        return self._info


async def test_a_damaged_log_is_not_backed_up_unless_that_is_wanted(tmp_path: Path) -> None:
    await filled(tmp_path / "log")
    assert flip_in_files(sorted((tmp_path / "log").glob("*.seg")), payload("p", 77)[50:150]) == 1
    where = ("--log", f"file://{tmp_path}/log", "--to", f"{tmp_path}/backup")
    _, errors = await run("backup", *where, code=1)
    assert "entry 77 is damaged" in errors
    assert "nothing was backed up" in errors
    assert sorted(os.listdir(tmp_path)) == ["log"]
    out, errors = await run("backup", *where, "--damaged-too")
    assert "1 fault accepted" in out
    assert "entry 77 is damaged" in errors
    with pytest.raises(DamagedLog, match="entry 77 is damaged"):
        await restore_log(tmp_path / "backup", tmp_path / "again")
    made = await restore_log(tmp_path / "backup", tmp_path / "again", damaged_too=True)
    assert [fault.index for fault in made.faults] == [77]


async def test_a_history_that_is_gone(tmp_path: Path) -> None:
    async with opened(tmp_path / "log") as log:
        await fill(log, "p", 1, 300)
        await log.trim(250)
    (tmp_path / "log" / "history.db").unlink()
    with pytest.raises(DamagedLog, match=r"history\.db knows the sequences of producer 'p' up to 0"):
        await backup_log(tmp_path / "log", tmp_path / "backup")
