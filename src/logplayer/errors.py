"""The exception tree. Expected trouble has a home here and a handler somewhere.

    LogPlayerError                 the root: catch this to catch everything expected
    ├── UserError                  the input is wrong: one clear line, exit code 2, nothing lost
    │   ├── ConfigError            a key in logplayer.toml or an option has a bad value
    │   └── AddressError           a log or target address cannot be understood
    ├── Malformed                  bytes from a peer or the log cannot be understood
    ├── LogError                   the log cannot do what was asked
    │   ├── SequenceGap            a producer skipped a sequence number
    │   ├── EntryTooLarge          an entry is over the limit
    │   ├── Trimmed                the index lies below the trim point: the entry is gone
    │   ├── CorruptEntry           a checksum does not match: the entry is named, never served
    │   ├── LogFull                the disk has no room; nothing is lost, appends go on once there is
    │   ├── LogFormatError         the path holds another format, or a newer version
    │   ├── Superseded             a rival writer holds the log
    │   └── LogUnavailable         the log cannot be reached now; try again
    └── TargetError                the target cannot do what was asked
        ├── Fenced                 a newer player or session owns the target
        ├── OutOfSync              the batch does not start where the target stands
        └── Poison                 the store refuses this entry for good

A broken invariant is not in this tree: see ``logplayer.core.invariant.InvariantViolation``.
"""

from __future__ import annotations


class LogPlayerError(Exception):
    """The root of everything that is expected to go wrong."""


class UserError(LogPlayerError):
    """The input is wrong. The message says what happened, where, and what to do next."""


class ConfigError(UserError):
    """A configuration value is wrong."""


class AddressError(UserError):
    """An address of a log or a target cannot be understood."""


class Malformed(LogPlayerError):
    """Bytes from a peer or from the log cannot be understood."""


class LogError(LogPlayerError):
    """The log cannot do what was asked."""


class SequenceGap(LogError, UserError):
    """A producer skipped a sequence number; the entry was not appended."""


class EntryTooLarge(LogError, UserError):
    """The entry is over the log's limit; it was not appended."""


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


class LogFull(LogError):
    """No room on the disk. Nothing is lost; appends go on once there is room."""


class LogFormatError(LogError, UserError):
    """The path holds another format or a newer version of ours."""


class Superseded(LogError):
    """A rival writer holds the log; this one must step down."""


class LogUnavailable(LogError):
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
