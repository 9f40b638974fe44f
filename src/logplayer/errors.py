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
    """The root of everything that is expected to go wrong. It can be sent to another process as it is."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (type(self), self.args, self.__dict__)


def _same(kind: type[LogPlayerError], args: tuple[Any, ...], facts: dict[str, Any]) -> LogPlayerError:
    """An error with the facts of another one, whatever its class wants to be made with."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class UserError(LogPlayerError):
    """The input is wrong. The message says what happened, where, and what to do next."""


class ConfigError(UserError):
    """A configuration value is wrong."""


class AddressError(UserError):
    """An address of a log or a target cannot be understood."""


class Unavailable(LogPlayerError):
    """What is needed is away, or somebody else has it now; trying again may help, so supervisors restart.

    Never together with UserError, whose exit code tells a supervisor that a restart cannot help.
    """


class Malformed(LogPlayerError):
    """Bytes from a peer or from the log cannot be understood."""


class LogError(LogPlayerError):
    """The log cannot do what was asked."""


class SequenceGap(LogError, UserError):
    """A producer skipped a sequence number; nothing was appended.

    ``producer`` sent ``sequence``, but ``newest`` is its newest sequence in the log, so ``expected`` comes next.
    """

    def __init__(self, message: str, newest: int = 0, producer: str = "", sequence: int = 0) -> None:
        super().__init__(message)
        self.newest = newest
        self.producer = producer
        self.sequence = sequence

    @property
    def expected(self) -> int:
        return self.newest + 1


class ProducerConflict(LogError, UserError):
    """A producer's sequence number stands in the log with another payload; nothing was appended.

    Two processes use one producer's name, or one counts from the start again. ``index`` is where the log has
    ``sequence`` of ``producer``; 0 if both payloads came in one call, so that neither is in the log.
    """

    def __init__(self, message: str, index: int = 0, producer: str = "", sequence: int = 0) -> None:
        super().__init__(message)
        self.index = index
        self.producer = producer
        self.sequence = sequence


class EntryTooLarge(LogError, UserError):
    """The entry is over the log's limit; it was not appended."""


class ControlRefused(LogError, UserError):
    """A control entry does not follow from the decisions before it; it was not appended."""


class ControlJammed(LogError, UserError):
    """The newest decision of the log cannot be read, so none can follow it until the log is repaired."""

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why or message


class Trimmed(LogError):
    """The index lies below the trim point."""

    def __init__(self, message: str, first: int) -> None:
        super().__init__(message)
        self.first = first


class CorruptEntry(LogError):
    """An entry's checksum does not match what was appended."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class DamagedLog(LogError):
    """A log or a backup of one is not whole, so it was not backed up, or not restored.

    ``faults`` has the index and a sentence for every place where something is wrong.
    """

    def __init__(self, message: str, faults: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.faults = list(faults)


class LogDiverged(LogError):
    """The log does not have what was read from it: it was restored from an older backup, or lost entries.

    ``index`` is the first where that was seen.
    """

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


class LogFull(LogError):
    """No room on the disk. Nothing is lost; appends go on once there is room."""


class LogFormatError(LogError, UserError):
    """The path holds another format or a newer version of ours."""


class Superseded(LogError):
    """Another writer holds the log; this one must step down."""


class OtherLog(LogError):
    """A log server answers, with another log than the one that the caller has opened. Nothing was read or changed."""


class NotALog(LogError, AddressError):
    """Another kind of server answers at the log's address."""


class LogUnavailable(LogError, Unavailable):
    """The log cannot be reached now."""


class TargetError(LogPlayerError):
    """The target cannot do what was asked."""


class Fenced(TargetError):
    """A newer player or session owns the target."""


class OutOfSync(TargetError):
    """The batch does not start at the target's index."""


class Poison(TargetError):
    """The store refuses this entry for good."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class TargetUnavailable(TargetError, Unavailable):
    """The target cannot be reached now."""


class NotATarget(TargetError, AddressError):
    """Another kind of server answers at the target's address, or one with another transport."""


class VersionMismatch(LogError, TargetError, UserError):
    """The peer speaks no version of the protocol that this release speaks: one of the two must be upgraded.

    The message says which versions both speak, and which of them to upgrade. A player that meets it at a target goes on
    with the others, and tries that one again.
    """
