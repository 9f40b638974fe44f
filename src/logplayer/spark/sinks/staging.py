"""What makes both sinks exactly once: rows are staged by tasks, and one intent per micro-batch decides which count.

A task writes its rows into a file of its own and reports the file. The driver's ``commit`` then

1. writes the batch's intent, with the list of files, under its final name, if no intent has it (the commit point);
2. carries it out: appends to the log, or delivers to targets, both idempotent;
3. forgets the files of the batches before.

So a task that is retried after it wrote leaves an orphan that no intent names. A batch that Spark runs again (restart,
lost commit file) finds its intent and carries that out, whatever rows the second run came up with: the replay need not
be the same. Only the newest batch can be run again; an older one is refused, as its rows are gone.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from logplayer.errors import ConfigError, LogPlayerError, Unavailable
from logplayer.spark.folders import Folder, open_folder
from logplayer.spark.sinks.parts import Part, StagedParts


@dataclass
class Staged(WriterCommitMessage):
    """One task's rows: the file's name below the staging directory, and how many."""

    partition: int
    file: str
    rows: int

    @property
    def files(self) -> list[str]:
        return [self.file]


@dataclass(frozen=True)
class Intent:
    """What one micro-batch does. ``state`` is the sink's own, as it is before the batch; ``parts`` is for targets."""

    batch: int
    files: tuple[str, ...]
    rows: int
    state: dict[str, Any]
    parts: tuple[Part, ...] = ()


class RowsStage:
    """Keeps a task's rows in one file."""

    def __init__(self, folder: Folder, partition: int, schema: pa.Schema) -> None:
        self._staged = Staged(partition, f"{uuid.uuid4().hex}.arrow", 0)
        self._files = ExitStack()
        file = self._files.enter_context(folder.write_own(f"rows/{self._staged.file}"))
        self._out = self._files.enter_context(pa.ipc.new_stream(file, schema))

    def __enter__(self) -> RowsStage:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._out.write_batch(batch)
        self._staged.rows += batch.num_rows

    def finish(self) -> Staged:
        self._files.close()
        return self._staged


class Staging:
    """The directory of one query's sink; the driver and all executors reach it under the same name."""

    def __init__(self, path: str) -> None:
        if not path:
            raise ConfigError(
                "the sink needs a place for its state: set checkpointLocation, or option staging to a directory"
            )
        self.folder = open_folder(path)
        self.folder.require_exclusive()

    # --- In tasks ---

    def write(self, partition: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Staged:
        """Keep a task's rows, durably, in a file that no other attempt uses."""
        with RowsStage(self.folder, partition, schema) as stage:
            for batch in batches:
                stage.add(batch)
            return stage.finish()

    # --- In the driver ---

    def intend(
        self,
        batch: int,
        messages: Sequence[Any],
        first_state: dict[str, Any],
        check: Callable[[Intent], object] = lambda intent: None,
    ) -> Intent:
        """The intent of ``batch``: the one that is there, or a new one on top of the batch before.

        ``check`` raises if a new one cannot be carried out. It must say so here: an intent that is kept holds for
        every further run of the batch, also if the query was corrected meanwhile.
        """
        newest = self.newest()
        if newest is not None and newest.batch == batch:
            self._drop(file for message in messages if message is not None for file in message.files)
            return newest
        if newest is not None and newest.batch > batch:
            raise LogPlayerError(
                f"batch {batch} comes after batch {newest.batch} in {self.folder}: the query went back further than "
                "one batch. Give it a new checkpoint, or restore the one that belongs to this staging directory"
            )
        state = self._load("state.json") or first_state
        staged = sorted((message for message in messages if message is not None), key=lambda m: m.partition)
        files = tuple(file for m in staged for file in m.files)
        parts = tuple(part for m in staged if isinstance(m, StagedParts) for part in m.parts)
        intent = Intent(batch, files, sum(m.rows for m in staged), state, parts)
        check(intent)
        self.folder.put_if_absent(self._intent_name(batch), json.dumps(intent.__dict__).encode())
        found = self.newest()  # A driver that was thought dead may have been faster: its intent holds.
        if found is None or found.batch != batch:
            # Carrying out another batch's intent would end with the removal of this one's rows.
            raise Unavailable(
                f"the intent of batch {batch} cannot be read back in {self.folder}; nothing of the batch was "
                "delivered. Start the query again: it runs the batch again"
            )
        return found

    def started(self) -> bool:
        """Whether a batch was ever intended here."""
        names = self.folder.names()
        return "state.json" in names or bool(_intents(names))

    def finish(self, intent: Intent, state: dict[str, Any]) -> None:
        """The batch is carried out. Its files stay until the next one is: Spark may run it again."""
        self.folder.put("state.json", json.dumps(state).encode())
        names = self.folder.names()
        for number in _intents(names):
            if number < intent.batch:
                self.folder.remove(self._intent_name(number))
        keep = set(intent.files)
        staged = (name.removeprefix("rows/") for name in names if name.startswith("rows/"))
        self._drop(name for name in staged if name not in keep)

    def rows(self, intent: Intent) -> Iterator[pa.RecordBatch]:
        """The rows that the intent names, in the order of the partitions."""
        for name in intent.files:
            with self.folder.open(f"rows/{name}") as file, pa.ipc.open_stream(file) as reader:
                yield from reader

    def discard(self, messages: Sequence[Any]) -> None:
        """An aborted batch's files are nobody's; those of an intent stay."""
        newest = self.newest()
        keep = set(newest.files) if newest else set()
        self._drop(file for m in messages if m is not None for file in m.files if file not in keep)

    def newest(self) -> Intent | None:
        """The intent of the newest batch, carried out or not."""
        numbers = _intents(self.folder.names())
        found = self._load(self._intent_name(max(numbers))) if numbers else None
        if found is None:
            return None
        parts = tuple(Part(*part) for part in found.get("parts", ()))
        return Intent(found["batch"], tuple(found["files"]), found["rows"], found["state"], parts)

    def state(self) -> dict[str, Any] | None:
        """The sink's state after the newest batch that was carried out; None if there is none."""
        return self._load("state.json")

    @staticmethod
    def _intent_name(batch: int) -> str:
        return f"intent-{batch:012}.json"

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self.folder.remove(f"rows/{name}")

    def _load(self, name: str) -> dict[str, Any] | None:
        content = self.folder.read(name)
        if content is None:
            return None
        try:
            loaded: dict[str, Any] = json.loads(content)
        except ValueError as error:
            where = self.folder.file(name)
            raise LogPlayerError(f"{where} cannot be read ({error}); restore it from a backup") from None
        return loaded


def _intents(names: Iterable[str]) -> list[int]:
    """The batches whose intents are among these files."""
    return [int(found[1]) for name in names if (found := re.fullmatch(r"intent-(\d+)\.json", name))]
