"""The exception tree. Expected trouble has a home here and a handler somewhere.

    LogPlayerError                 the root: catch this to catch everything expected
    ├── UserError                  the input is wrong: one clear line, exit code 2, nothing lost
    │   ├── ConfigError            a key in logplayer.toml or an option has a bad value
    │   └── AddressError           a log or target address cannot be understood
    ├── Unavailable                what is needed is away or busy now: exit code 1, trying again may help
    ├── Malformed                  bytes from a peer or the log cannot be understood
    ├── LogError                   the log cannot do what was asked
    │   ├── SequenceGap            a producer skipped a sequence number
    │   ├── ProducerConflict       a producer's sequence number was used for another payload
    │   ├── EntryTooLarge          an entry is over the limit
    │   ├── ControlRefused         a decision does not follow from those before it; it was not appended
    │   ├── ControlJammed          the log's newest decision cannot be read: logplayer log repair
    │   ├── Trimmed                the index lies below the trim point: the entry is gone
    │   ├── CorruptEntry           a checksum does not match: the entry is named, never served
    │   ├── LogDiverged            the log does not have what was read from it
    │   ├── DamagedLog             a log or its backup is not whole: it was not backed up, or not restored
    │   ├── LogFull                the disk has no room; nothing is lost, appends go on once there is
    │   ├── LogFormatError         the path holds another format, or a newer version
    │   ├── Superseded             another writer holds the log
    │   ├── OtherLog               the server has another log than the one that was opened
    │   ├── NotALog                another server answers at the log's address (AddressError, too)
    │   └── LogUnavailable         the log cannot be reached now; try again (Unavailable, too)
    ├── VersionMismatch            no version of the protocol is common to both (LogError, TargetError and UserError)
    └── TargetError                the target cannot do what was asked
        ├── Fenced                 a newer player or session owns the target
        ├── OutOfSync              the batch does not start at the target's index
        ├── Poison                 the store refuses this entry for good
        ├── TargetUnavailable      the target cannot be reached now; try again (Unavailable, too)
        └── NotATarget             another server answers at the target's address (AddressError, too)

Errors of one part only are defined beside it, such as ``BadRequest`` and ``Locked`` in ``logplayer.log.protocol``.

A broken invariant is not in this tree: see ``logplayer.core.invariants.InvariantViolation``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class LogPlayerError(Exception):
    """The root of everything that is expected to go wrong. It can be sent to another process as it is.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await producer.append(lp.put("alice", "90"))
        ... except lp.LogPlayerError as error:
        ...     print(error)
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (type(self), self.args, self.__dict__)


def _same(kind: type[LogPlayerError], args: tuple[Any, ...], facts: dict[str, Any]) -> LogPlayerError:
    """An error with the facts of another one, whatever its class wants to be made with."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class UserError(LogPlayerError):
    """The input is wrong. The message says what happened, where, and what to do next.

    Example:
        >>> lp.ddl("DROP TABLE orders", targets=[])
        Traceback (most recent call last):
        logplayer.log.protocol.BadRequest: a statement needs the names of the targets that run it
    """


class ConfigError(UserError):
    """A configuration value is wrong.

    Example:
        >>> lp.HashShards()
        Traceback (most recent call last):
        logplayer.errors.ConfigError: a hash map needs at least one target
    """


class AddressError(UserError):
    """An address of a log or a target cannot be understood.

    Example:
        >>> lp.open_log("http://127.0.0.1")
        Traceback (most recent call last):
        logplayer.errors.AddressError: an address of a log begins with file://, grpc:// or the like
    """


class Unavailable(LogPlayerError):
    """What is needed is away, or somebody else has it now; trying again may help, so supervisors restart.

    Never together with UserError, whose exit code tells a supervisor that a restart cannot help.

    Example:
        >>> try:  # doctest: +SKIP
        ...     store = lp.RedisTarget(url, "a")
        ... except lp.Unavailable:
        ...     time.sleep(1)  # And once more.
    """


class Malformed(LogPlayerError):
    """Bytes from a peer or from the log cannot be understood.

    Example:
        >>> lp.decode_position(b"something else")
        Traceback (most recent call last):
        logplayer.errors.Malformed: 14 bytes are not a position
    """


class LogError(LogPlayerError):
    """The log cannot do what was asked.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await log.append(entries)
        ... except lp.LogError as error:
        ...     print(error)
    """


class SequenceGap(LogError, UserError):
    """A producer skipped a sequence number; nothing was appended.

    Attributes:
        newest: The producer's newest sequence in the log, so ``expected`` comes next.
        producer: The name of the producer.
        sequence: What it sent.

    Example:
        >>> lp.SequenceGap("producer web-1 sent 9", newest=7, producer="web-1", sequence=9).expected
        8
    """

    def __init__(self, message: str, newest: int = 0, producer: str = "", sequence: int = 0) -> None:
        super().__init__(message)
        self.newest = newest
        self.producer = producer
        self.sequence = sequence

    @property
    def expected(self) -> int:
        """What comes next."""
        return self.newest + 1


class ProducerConflict(LogError, UserError):
    """A producer's sequence number stands in the log with another payload; nothing was appended.

    Two processes use one producer's name, or one counts from the start again. What was refused has no index; how far
    the other one is, the two last attributes say.

    Attributes:
        index: Where the log has ``sequence``; 0 if both payloads came in one call, so that neither is in the log.
        producer: The name of the producer.
        sequence: What it sent.
        newest: The newest sequence of ``producer`` in the log; 0 if that is not known.
        newest_index: Where that is; 0 if that is not known.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await producer.append(lp.put("alice", "90"))
        ... except lp.ProducerConflict as twin:
        ...     print(f"another {twin.producer} has appended up to {twin.newest}, at index {twin.newest_index}")
    """

    def __init__(
        self,
        message: str,
        index: int = 0,
        producer: str = "",
        sequence: int = 0,
        newest: int = 0,
        newest_index: int = 0,
    ) -> None:
        super().__init__(message)
        self.index = index
        self.producer = producer
        self.sequence = sequence
        self.newest = newest
        self.newest_index = newest_index


class EntryTooLarge(LogError, UserError):
    """The entry is over the log's limit; it was not appended.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await producer.append(lp.put("photo", photo))
        ... except lp.EntryTooLarge:
        ...     await producer.append(lp.put("photo", store_elsewhere(photo)))
    """


class ControlRefused(LogError, UserError):
    """A control entry does not follow from the decisions before it; it was not appended.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await log.append([decision])
        ... except lp.ControlRefused:
        ...     decision = decide_again(await log.info())
    """


class ControlJammed(LogError, UserError):
    """The newest decision of the log cannot be read, so none can follow it until the log is repaired.

    Attributes:
        why: Why it cannot be read.

    Example:
        >>> lp.ControlJammed("the newest decision is damaged").why
        'the newest decision is damaged'
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why or message


class Trimmed(LogError):
    """The index lies below the trim point.

    Attributes:
        first: The first index that can be read.

    Example:
        >>> lp.Trimmed("entry 1 was trimmed", first=43).first
        43
    """

    def __init__(self, message: str, first: int) -> None:
        super().__init__(message)
        self.first = first


class CorruptEntry(LogError):
    """An entry's checksum does not match what was appended.

    Attributes:
        index: The index of the entry.

    Example:
        >>> lp.CorruptEntry("entry 7 is damaged", index=7).index
        7
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class DamagedLog(LogError):
    """A log or a backup of one is not whole, so it was not backed up, or not restored.

    Attributes:
        faults: The index and a sentence for every place where something is wrong.

    Example:
        >>> lp.DamagedLog("the backup is not whole", faults=[(7, "it is missing")]).faults
        [(7, 'it is missing')]
    """

    def __init__(self, message: str, faults: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.faults = list(faults)


class LogDiverged(LogError):
    """The log does not have what was read from it: it was restored from an older backup, or lost entries.

    Attributes:
        index: The first one where that was seen.

    Example:
        >>> lp.LogDiverged("entry 7 does not continue what was read", index=7).index
        7
    """

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


class LogFull(LogError):
    """No room on the disk. Nothing is lost; appends go on once there is room.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await log.append(entries)
        ... except lp.LogFull:
        ...     await log.trim(await lp.consistent_cut(targets, log=log))
    """


class LogFormatError(LogError, UserError):
    """The path holds another format or a newer version of ours.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await lp.restore_log("/backup/wal", "/var/lib/wal")
        ... except lp.LogFormatError:
        ...     print("name a new or empty directory")
    """


class Superseded(LogError):
    """Another writer holds the log; this one must step down.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await log.append(entries)
        ... except lp.Superseded:
        ...     await log.close()  # The other writer goes on.
    """


class OtherLog(LogError):
    """A log server answers, with another log than the one that the caller has opened. Nothing was read or changed.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await log.info()
        ... except lp.OtherLog:
        ...     log = await lp.open_log(address)  # If the new log is the right one.
    """


class NotALog(LogError, AddressError):
    """Another kind of server answers at the log's address.

    Example:
        >>> try:  # doctest: +SKIP
        ...     log = await lp.open_log("grpc://127.0.0.1:7201")
        ... except lp.NotALog:
        ...     log = await lp.open_log("grpc://127.0.0.1:7100")
    """


class LogUnavailable(LogError, Unavailable):
    """The log cannot be reached now.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await producer.append(lp.put("alice", "90"), timeout=5)
        ... except lp.LogUnavailable:
        ...     print("it may be in the log, or get there")
    """


class TargetError(LogPlayerError):
    """The target cannot do what was asked.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await receipt.applied(timeout=5)
        ... except lp.TargetError:
        ...     print("a shard does not have it yet")
    """


class Fenced(TargetError):
    """A newer player or session owns the target.

    Example:
        >>> issubclass(lp.Fenced, lp.TargetError)
        True
    """


class OutOfSync(TargetError):
    """The batch does not start at the target's index.

    Example:
        >>> issubclass(lp.OutOfSync, lp.TargetError)
        True
    """


class Poison(TargetError):
    """The store refuses this entry for good.

    Attributes:
        index: The index of the entry.

    Example:
        >>> raise lp.Poison("entry 7 breaks the constraint stock_not_negative", 7)  # In apply.
        Traceback (most recent call last):
        logplayer.errors.Poison: entry 7 breaks the constraint stock_not_negative
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class TargetUnavailable(TargetError, Unavailable):
    """The target cannot be reached now.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await lp.position("tcp://127.0.0.1:7201", "a")
        ... except lp.TargetUnavailable:
        ...     await lp.wait_for("tcp://127.0.0.1:7201", "a", index)  # It waits for the server, too.
    """


class NotATarget(TargetError, AddressError):
    """Another kind of server answers at the target's address, or one with another transport.

    Example:
        >>> try:  # doctest: +SKIP
        ...     await lp.position("tcp://127.0.0.1:7100", "a")
        ... except lp.NotATarget:
        ...     await lp.position("tcp://127.0.0.1:7201", "a")
    """


class VersionMismatch(LogError, TargetError, UserError):
    """The peer speaks no version of the protocol that this release speaks: one of the two must be upgraded.

    The message says which versions both speak, and which of them to upgrade. A player that meets it at a target goes on
    with the others, and tries that one again.

    Example:
        >>> try:  # doctest: +SKIP
        ...     log = await lp.open_log("grpc://127.0.0.1:7100")
        ... except lp.VersionMismatch:
        ...     print("upgrade the older one of the two")
    """
