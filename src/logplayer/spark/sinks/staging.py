"""What makes both sinks exactly once: rows are staged by tasks, and one intent per micro-batch decides which count.

A task writes its rows into a file of its own and reports the file. The driver's ``commit`` then

1. writes the batch's intent, with the list of files, under its final name (the rename is the commit point);
2. carries it out: appends to the log, or delivers to targets, both idempotent;
3. forgets the files of the batches before.

So a task that is retried after it wrote leaves an orphan that no intent names. A batch that Spark runs again (restart,
lost commit file) finds its intent and carries that out, whatever rows the second run came up with: the replay need not
be the same. Only the newest batch can be run again; an older one is refused, as its rows are gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from logplayer.errors import ConfigError, LogPlayerError


@dataclass
class Staged(WriterCommitMessage):
    """One task's rows: the file's name below the staging directory, and how many."""

    partition: int
    file: str
    rows: int


@dataclass(frozen=True)
class Intent:
    """What one micro-batch does. ``state`` is the sink's own, as it is before the batch."""

    batch: int
    files: tuple[str, ...]
    rows: int
    state: dict[str, Any]


class Staging:
    """The directory of one query's sink; the driver and all executors see it under the same path."""

    def __init__(self, path: str) -> None:
        if not path:
            raise ConfigError(
                "the sink needs a place for its state: set checkpointLocation, or option staging to a directory"
            )
        plain = path.removeprefix("file://")
        if "://" in plain or plain.startswith("file:"):
            plain = plain.removeprefix("file:")
        if "://" in plain:
            raise ConfigError(f"the sink's state cannot be at {path}; set option staging to a shared directory")
        self.path = Path(plain)

    # --- In tasks ---

    def write(self, partition: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Staged:
        """Keep a task's rows, durably, in a file that no other attempt uses."""
        folder = self.path / "rows"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{uuid.uuid4().hex}.arrow"
        rows = 0
        with open(folder / name, "wb") as file:
            with pa.ipc.new_stream(file, schema) as out:
                for batch in batches:
                    out.write_batch(batch)
                    rows += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
        return Staged(partition, name, rows)

    # --- In the driver ---

    def intend(self, batch: int, messages: Sequence[Any], first_state: dict[str, Any]) -> Intent:
        """The intent of ``batch``: the one that is there, or a new one on top of the batch before."""
        newest = self._newest()
        if newest is not None and newest.batch == batch:
            self._drop(message.file for message in messages if message is not None)
            return newest
        if newest is not None and newest.batch > batch:
            raise LogPlayerError(
                f"batch {batch} comes after batch {newest.batch} in {self.path}: the query went back further than "
                "one batch. Give it a new checkpoint, or restore the one that belongs to this staging directory"
            )
        state = self._load("state.json") or first_state
        staged = sorted((message for message in messages if message is not None), key=lambda m: m.partition)
        intent = Intent(batch, tuple(m.file for m in staged), sum(m.rows for m in staged), state)
        self.path.mkdir(parents=True, exist_ok=True)
        self._store(self._intent_name(batch), intent.__dict__, exclusive=True)
        return self._newest() or intent  # A driver that was thought dead may have been faster: its intent holds.

    def started(self) -> bool:
        """Whether a batch was ever intended here."""
        return (self.path / "state.json").exists() or bool(self._intents())

    def finish(self, intent: Intent, state: dict[str, Any]) -> None:
        """The batch is carried out. Its files stay until the next one is: Spark may run it again."""
        self._store("state.json", state)
        for number in self._intents():
            if number < intent.batch:
                (self.path / self._intent_name(number)).unlink(missing_ok=True)
        keep = set(intent.files)
        folder = self.path / "rows"
        if folder.is_dir():
            self._drop(path.name for path in folder.iterdir() if path.name not in keep)

    def rows(self, intent: Intent) -> Iterator[pa.RecordBatch]:
        """The rows that the intent names, in the order of the partitions."""
        for name in intent.files:
            with pa.OSFile(str(self.path / "rows" / name)) as file, pa.ipc.open_stream(file) as reader:
                yield from reader

    def discard(self, messages: Sequence[Any]) -> None:
        """An aborted batch's files are nobody's; those of an intent stay."""
        newest = self._newest()
        keep = set(newest.files) if newest else set()
        self._drop(m.file for m in messages if m is not None and m.file not in keep)

    def _newest(self) -> Intent | None:
        numbers = self._intents()
        found = self._load(self._intent_name(max(numbers))) if numbers else None
        return None if found is None else Intent(found["batch"], tuple(found["files"]), found["rows"], found["state"])

    def _intents(self) -> list[int]:
        return [int(path.stem.removeprefix("intent-")) for path in self.path.glob("intent-*.json")]

    @staticmethod
    def _intent_name(batch: int) -> str:
        return f"intent-{batch:012}.json"

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / "rows" / name).unlink(missing_ok=True)

    def _load(self, name: str) -> dict[str, Any] | None:
        try:
            loaded: dict[str, Any] = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise LogPlayerError(f"{self.path / name} cannot be read ({error}); restore it from a backup") from None
        return loaded

    def _store(self, name: str, value: dict[str, Any], *, exclusive: bool = False) -> None:
        """Durable under its name, whole or not at all; ``exclusive``: what is there already stays."""
        new = self.path / f".{name}.{uuid.uuid4().hex}"
        with open(new, "w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        if exclusive:
            with contextlib.suppress(FileExistsError):
                os.link(new, self.path / name)
            new.unlink()
        else:
            new.replace(self.path / name)
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
