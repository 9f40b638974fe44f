"""A directory on any filesystem, for what the sinks, the archive, audit and backfill keep: paths, ``s3://``, and more.

What is kept needs three things of a filesystem, and each kind has its own way to give them:

| | a file appears whole or not at all | ... and only if none has its name | durable when the call returns |
|---|---|---|---|
| a directory | rename | link, which fails if the name is taken | fsync of the file and of the directory |
| S3 | a put, or the copy of a finished upload | a put with ``If-None-Match: *`` | the answer of the server |
| others | the copy of a finished upload | no way through ``pyarrow.fs``: refused | the answer of the server |

So archives can be read on every filesystem that ``pyarrow.fs`` has (``hdfs://``, ``gs://``, ``abfs://``), but they can
be made, and sinks can keep their state, only where a file can be made under the condition that it is not there: else
two writers at once, of which one was thought dead, could both believe that their decision holds.

An upload that was not finished must never get the final name, and ``pyarrow`` finishes an upload when the stream is
closed, also after an error: so large files are uploaded under a name that nobody reads and then copied by the server.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from logplayer.errors import ConfigError, Unavailable, UserError
from logplayer.fsync import sync

_S3 = ("s3", "s3a", "s3n")
_OTHERS = ("hdfs", "viewfs", "gs", "gcs", "abfs", "abfss")
CONFLICTS_MAX = 6  # A put that meets another one is tried again so often,
CONFLICT_SECONDS = 0.05  # after this time, and twice as long each further time: 3 s in all.


def open_folder(place: str | Path) -> Folder:
    """The directory that a path, ``file:///path`` or an address such as ``s3://bucket/path`` names.

    Raises:
        UserError: No filesystem of that kind is known.

    Example:
        >>> open_folder("file:///var/lib/archive").place
        '/var/lib/archive'
    """
    text = str(place)
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
    scheme = found.group(1).lower() if found else ""
    if scheme == "file":
        text, scheme = re.sub(r"^file:(//)?(?=/)", "", text), ""
        if text.startswith("file:"):
            raise UserError(f"{place} is not a place: write file:///path")
    if not scheme:
        return LocalFolder(text)
    if scheme in _S3:
        return S3Folder(re.sub(r"^\w+:", "s3:", text))
    if scheme in _OTHERS:
        return StoreFolder(text)
    known = ", ".join(f"{name}://" for name in ("file", "s3", *_OTHERS))
    raise UserError(f"{text!r} is not a place that files can be at: write a path, or an address with {known}")


def open_file(place: str) -> pa.NativeFile:
    """A file, which ``Folder.file`` or ``Folder.write`` named, for reading from any position."""
    folder, name = _split(place)
    return folder.open(name)


def _split(place: str) -> tuple[Folder, str]:
    path, question, query = place.partition("?") if "://" in place else (place, "", "")
    parent, _, name = path.rpartition("/")
    return open_folder(f"{parent or '/'}{question}{query}"), name


class Folder(ABC):
    """A directory. It is only a name until something is read or written, and pickles as that.

    Names may have slashes; directories come to be when something is written there.
    """

    def __init__(self, place: str) -> None:
        self.place = place

    def __repr__(self) -> str:
        return self.place

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.place == other.place

    def __hash__(self) -> int:
        return hash(self.place)

    @abstractmethod
    def file(self, name: str) -> str:
        """The full name of a file here, for :func:`open_file` in any process."""

    @abstractmethod
    def open(self, name: str) -> pa.NativeFile:
        """The file for reading from any position. Raises FileNotFoundError."""

    @abstractmethod
    def names(self) -> dict[str, int]:
        """Every file below here by its name, hidden ones left out, and how many bytes it has."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def clear(self) -> None:
        """Remove everything below here."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """The file has this content now, whole, or still what it had."""

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """The same, but what is there stays: whether the content is this one."""

    @abstractmethod
    def write(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """A large file that has its name once the block was left without an error."""

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if it is not there."""
        try:
            with self.open(name) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    @abstractmethod
    def write_own(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """A large file whose name no other writer uses, and nobody reads before the block was left without an error."""

    @abstractmethod
    def require_exclusive(self) -> None:
        """Raise if this filesystem cannot make a file under the condition that it is not there."""

    def child(self, name: str) -> Folder:
        """A directory below this one."""
        return open_folder(self.file(name))


class LocalFolder(Folder):
    """A directory of this machine, or one that all machines of the cluster have mounted under the same path."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.path = Path(place)

    def file(self, name: str) -> str:
        return str(self.path / name)

    def open(self, name: str) -> pa.NativeFile:
        return pa.OSFile(str(self.path / name))

    def names(self) -> dict[str, int]:
        if not self.path.is_dir():
            return {}
        found = (path for path in self.path.rglob("*") if not path.name.startswith("."))
        return {str(path.relative_to(self.path)): path.stat().st_size for path in found if path.is_file()}

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def clear(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def put(self, name: str, data: bytes) -> None:
        with self.write(name) as file:
            file.write(data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        final = self.path / name
        new = self._new(final)
        try:
            with open(new, "xb") as file:
                _write_durably(file, data)
            os.link(new, final)
        except FileExistsError:
            return False
        finally:
            new.unlink(missing_ok=True)
        sync(final.parent)
        return True

    @contextlib.contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        final = self.path / name
        new = self._new(final)
        try:
            with open(new, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            new.replace(final)
            sync(final.parent)
        finally:
            new.unlink(missing_ok=True)

    def write_own(self, name: str) -> contextlib.AbstractContextManager[Any]:
        return self.write(name)

    def require_exclusive(self) -> None:
        """Every directory can."""

    @staticmethod
    def _new(final: Path) -> Path:
        """A name that nobody reads, beside the final one."""
        final.parent.mkdir(parents=True, exist_ok=True)
        return final.parent / f".{final.name}.{uuid.uuid4().hex}.tmp"


def _write_durably(file: IO[bytes], data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


class StoreFolder(Folder):
    """A place that ``pyarrow.fs`` knows: readable, and writable where no condition is needed."""

    def file(self, name: str) -> str:
        path, question, query = self.place.partition("?")
        return f"{path.rstrip('/')}/{name}{question}{query}"

    def open(self, name: str) -> pa.NativeFile:
        with self._errors():
            return self._at[0].open_input_file(f"{self._at[1]}/{name}")

    def names(self) -> dict[str, int]:
        filesystem, base = self._at
        with self._errors():
            found = filesystem.get_file_info(pafs.FileSelector(base, allow_not_found=True, recursive=True))
        files = {info.path[len(base) + 1 :]: info.size for info in found if info.type == pafs.FileType.File}
        return {name: count for name, count in files.items() if not name.rpartition("/")[2].startswith(".")}

    def remove(self, name: str) -> None:
        with self._errors(), contextlib.suppress(FileNotFoundError):
            self._at[0].delete_file(f"{self._at[1]}/{name}")

    def clear(self) -> None:
        with self._errors():
            self._at[0].delete_dir_contents(self._at[1], missing_dir_ok=True)

    def put(self, name: str, data: bytes) -> None:
        with self.write(name) as file:
            file.write(data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.require_exclusive()
        raise AssertionError("unreachable")

    def require_exclusive(self) -> None:
        raise ConfigError(
            f"{self.place} can be read, but not written to safely: there is no way here to make a file only if it is "
            "not there, and without one two writers at once could both go on. Use a directory, or s3://"
        )

    @contextlib.contextmanager
    def write(self, name: str) -> Iterator[Any]:
        filesystem, base = self._at
        folder, slash, last = name.rpartition("/")
        new = f"{base}/{folder}{slash}.{last}.{uuid.uuid4().hex}.tmp"
        with self._errors():
            filesystem.create_dir(f"{base}/{folder}".rstrip("/"), recursive=True)
            with filesystem.open_output_stream(new) as file:
                yield file
            filesystem.move(new, f"{base}/{name}")

    @contextlib.contextmanager
    def write_own(self, name: str) -> Iterator[Any]:
        filesystem, base = self._at
        with self._errors(), filesystem.open_output_stream(f"{base}/{name}") as file:
            yield file

    @property
    def _at(self) -> tuple[pafs.FileSystem, str]:
        with self._errors():
            filesystem, base = _filesystem(self.place)
        return filesystem, base.rstrip("/")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            why = " ".join(str(error).split())[:300]
            raise Unavailable(f"{self.place} cannot be used: {why}; check the address and the credentials") from None


@lru_cache(maxsize=32)
def _filesystem(place: str) -> tuple[pafs.FileSystem, str]:
    found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(place)
    return found


class S3Folder(StoreFolder):
    """Objects of a bucket whose names begin alike. Conditional puts go through boto3: ``pyarrow.fs`` has none."""

    def require_exclusive(self) -> None:
        _client(self.place)

    def put(self, name: str, data: bytes) -> None:
        self._put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._put(name, data, IfNoneMatch="*")

    def _put(self, name: str, data: bytes, **condition: str) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        client = _client(self.place)
        bucket, _, prefix = self._at[1].partition("/")
        key = f"{prefix}/{name}" if prefix else name
        for nth in range(CONFLICTS_MAX + 1):
            try:
                client.put_object(Bucket=bucket, Key=key, Body=data, **condition)
                return True
            except ClientError as error:
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                if condition and status == 412:
                    return False  # It is there.
                # 409: another put or delete of the key is on its way. It may fail yet, so nothing follows from it.
                if status != 409 or nth == CONFLICTS_MAX:
                    what = "another writer is at it: try again" if status == 409 else "check the bucket's policy"
                    raise Unavailable(f"{self.file(name)} cannot be written: {error}; {what}") from None
            except BotoCoreError as error:
                what = "check the address and credentials"
                raise Unavailable(f"{self.place} cannot be reached: {error}; {what}") from None
            time.sleep(CONFLICT_SECONDS * 2**nth)
        raise AssertionError("unreachable")


@lru_cache(maxsize=32)
def _client(place: str) -> Any:
    """A client for the same bucket, with what the address says about the endpoint."""
    try:
        import boto3
    except ModuleNotFoundError:
        raise ConfigError(f"writing to {place} needs boto3: pip install 'logplayer[s3]'") from None
    given = {key: values[-1] for key, values in parse_qs(urlsplit(place).query).items()}
    endpoint = given.get("endpoint_override", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"{given.get('scheme', 'https')}://{endpoint}"
    return boto3.client("s3", endpoint_url=endpoint or None, region_name=given.get("region"))


@contextlib.contextmanager
def scratch(place: str, purpose: str) -> Iterator[str]:
    """A directory for the length of a job: below ``place``, or, if that is empty, on this machine's own disk."""
    if not place:
        with tempfile.TemporaryDirectory(prefix=f"logplayer-{purpose}-") as folder:
            yield folder
        return
    own = open_folder(place).child(f"logplayer-{purpose}-{uuid.uuid4().hex}")
    try:
        yield own.place
    finally:
        own.clear()
