"""Every release's golden files are read as they were meant; those that this release would write, too."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import logplayer as lp
from logplayer.log import json_rows
from logplayer.log.file.log import FileLog
from logplayer.wire.logplayer.v1 import entry_pb2, log_pb2, target_pb2
from tests.golden import log_directory, messages
from tests.golden.__main__ import HERE, write

FROZEN = sorted(path.parent for path in HERE.glob("*/messages.json"))


@pytest.fixture(scope="module", params=[*FROZEN, None], ids=lambda path: path.name if path else "unreleased")
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release; those of this one are written for the test."""
    if request.param is not None:
        return Path(request.param)
    folder = tmp_path_factory.mktemp("golden") / "now"
    write(folder)
    return folder


def expected(files: Path, name: str) -> Any:
    return json.loads((files / name).read_text())


def test_every_message_means_what_it_meant(files: Path) -> None:
    meant = expected(files, "messages.json")
    assert {path.stem for path in files.glob("*.bin")} == set(meant), "a file is missing"
    wrong = {}
    for name, meaning in meant.items():
        found = json.loads(json.dumps(messages.meaning(name, (files / f"{name}.bin").read_bytes())))
        if differences := messages.missing_from(found, meaning):
            wrong[name] = differences
    assert wrong == {}


async def test_the_log_holds_what_it_held_and_goes_on(files: Path, tmp_path: Path) -> None:
    meant = expected(files, "log.json")
    for readonly in (True, False):
        log = await FileLog.open(
            log_directory.unpack(files / "log.tar.gz", tmp_path / str(readonly)), readonly=readonly
        )
        try:
            found = json.loads(json.dumps(await log_directory.read(log)))
            assert messages.missing_from(found, meant) == []
            assert len(meant["records"]) > 70
            if not readonly:
                await log_directory.go_on(log, meant)
        finally:
            await log.close()


def test_all_messages_are_there_with_all_their_fields() -> None:
    """What the writer leaves out, nobody would miss."""
    made = dict(messages.all_messages())
    kinds = {name.partition(".")[0] for name in made}
    for module in (entry_pb2, log_pb2, target_pb2):
        for name, kind in module.DESCRIPTOR.message_types_by_name.items():
            assert name in kinds
            files = [message for made_name, message in made.items() if made_name.partition(".")[0] == name]
            of_kind = [message for message in files if message.DESCRIPTOR is kind]
            set_somewhere = {each.name for message in of_kind for each, _ in message.ListFields()}
            assert set_somewhere == {each.name for each in kind.fields}, name


def test_the_files_of_this_version_have_every_message_with_every_field() -> None:
    """A field that was added without its golden file would be frozen unread."""
    folder = HERE / lp.__version__
    missing = []
    for name, message in messages.all_messages():
        path = folder / f"{name}.bin"
        if path.exists():
            kept = type(message).FromString(path.read_bytes())
            missing += [f"{name}: {field}" for field in sorted(messages.fields_of(message) - messages.fields_of(kept))]
        else:
            missing.append(name)
    assert missing == [], "python -m tests.golden --again; a version that is published needs a new number instead"


@pytest.mark.parametrize("name", ["ToTarget.batch", "ToPlayer.opened", "Transaction", "AppendCalls"])
def test_a_field_that_is_read_wrongly_is_found(name: str) -> None:
    """Each single field: the same message without it, or with another value, does not mean the same."""
    message = dict(messages.all_messages())[name]
    meaning = messages.meaning(name, message.SerializeToString())
    assert messages.missing_from(meaning, meaning) == []
    for each, _ in message.ListFields():
        other = type(message).FromString(message.SerializeToString())
        other.ClearField(each.name)
        found = {"generated": messages.meaning_of(other)}
        assert messages.missing_from(found, {"generated": meaning["generated"]}) != [], each.name


def test_the_log_of_this_version_has_every_operation_and_every_type_of_value() -> None:
    facts = json.loads((HERE / lp.__version__ / "log.json").read_text())
    mutations = [one for record in facts["records"] for one in record.get("mutations", [])]
    assert {one.get("op", "put") for one in mutations} == {"put", "patch", "delete", "ddl"}
    values = [value for one in mutations for value in one.get("columns", {}).values()]
    assert {type(value) for value in values} == {type(None), bool, int, float, str, dict}
    named = {name for value in values if isinstance(value, dict) for name in value}
    assert named == {*json_rows.READERS, "json", "array"} - {"double"}


def test_a_record_that_is_read_wrongly_is_found(tmp_path: Path) -> None:
    facts = asyncio.run(log_directory.write(tmp_path / "log.tar.gz", tmp_path))
    with tarfile.open(tmp_path / "log.tar.gz") as packed:
        assert sum(name.endswith(".seg") for name in packed.getnames()) > 1, packed.getnames()
    changed = json.loads(json.dumps(facts))
    changed["records"][5]["producer"] = "another"
    assert messages.missing_from(json.loads(json.dumps(facts)), changed) != []
