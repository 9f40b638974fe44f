from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATA: _ClassVar[Kind]
    CONTROL: _ClassVar[Kind]
DATA: Kind
CONTROL: Kind

class Record(_message.Message):
    __slots__ = ("index", "kind", "producer", "sequence", "committed_at_us", "payload", "chain", "crc")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    index: int
    kind: Kind
    producer: str
    sequence: int
    committed_at_us: int
    payload: bytes
    chain: bytes
    crc: int
    def __init__(self, index: _Optional[int] = ..., kind: _Optional[_Union[Kind, str]] = ..., producer: _Optional[str] = ..., sequence: _Optional[int] = ..., committed_at_us: _Optional[int] = ..., payload: _Optional[bytes] = ..., chain: _Optional[bytes] = ..., crc: _Optional[int] = ...) -> None: ...

class NewEntry(_message.Message):
    __slots__ = ("producer", "sequence", "payload", "kind")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    producer: str
    sequence: int
    payload: bytes
    kind: Kind
    def __init__(self, producer: _Optional[str] = ..., sequence: _Optional[int] = ..., payload: _Optional[bytes] = ..., kind: _Optional[_Union[Kind, str]] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[NewEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[NewEntry, _Mapping]]] = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("indexes",)
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    indexes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, indexes: _Optional[_Iterable[int]] = ...) -> None: ...

class AppendCalls(_message.Message):
    __slots__ = ("first", "entries", "counts")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    first: int
    entries: _containers.RepeatedCompositeFieldContainer[NewEntry]
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[NewEntry, _Mapping]]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class AppendAnswers(_message.Message):
    __slots__ = ("first", "count", "indexes", "refusals")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    indexes: _containers.RepeatedScalarFieldContainer[int]
    refusals: _containers.RepeatedCompositeFieldContainer[AppendRefusal]
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ..., indexes: _Optional[_Iterable[int]] = ..., refusals: _Optional[_Iterable[_Union[AppendRefusal, _Mapping]]] = ...) -> None: ...

class AppendRefusal(_message.Message):
    __slots__ = ("number", "error", "message", "value", "facts")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    error: str
    message: str
    value: int
    facts: str
    def __init__(self, number: _Optional[int] = ..., error: _Optional[str] = ..., message: _Optional[str] = ..., value: _Optional[int] = ..., facts: _Optional[str] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InfoReply(_message.Message):
    __slots__ = ("log_id", "first", "last", "control", "bytes", "chain", "trimmed_chain", "unfenced", "version")
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_CHAIN_FIELD_NUMBER: _ClassVar[int]
    UNFENCED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    log_id: str
    first: int
    last: int
    control: int
    bytes: int
    chain: bytes
    trimmed_chain: bytes
    unfenced: bool
    version: int
    def __init__(self, log_id: _Optional[str] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., control: _Optional[int] = ..., bytes: _Optional[int] = ..., chain: _Optional[bytes] = ..., trimmed_chain: _Optional[bytes] = ..., unfenced: _Optional[bool] = ..., version: _Optional[int] = ...) -> None: ...

class NewestRequest(_message.Message):
    __slots__ = ("producer",)
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    producer: str
    def __init__(self, producer: _Optional[str] = ...) -> None: ...

class NewestReply(_message.Message):
    __slots__ = ("sequence", "index")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    index: int
    def __init__(self, sequence: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class TrimRequest(_message.Message):
    __slots__ = ("up_to", "index", "chain")
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    up_to: int
    index: int
    chain: bytes
    def __init__(self, up_to: _Optional[int] = ..., index: _Optional[int] = ..., chain: _Optional[bytes] = ...) -> None: ...

class AliveRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AliveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
