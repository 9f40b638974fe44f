from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNKNOWN: _ClassVar[Reason]
    FENCED: _ClassVar[Reason]
    STALE_SESSION: _ClassVar[Reason]
    OUT_OF_SYNC: _ClassVar[Reason]
    BAD_BATCH: _ClassVar[Reason]
    WRONG_TARGET: _ClassVar[Reason]
    WRONG_LOG: _ClassVar[Reason]
    POISON: _ClassVar[Reason]
    DIVERGED: _ClassVar[Reason]
REASON_UNKNOWN: Reason
FENCED: Reason
STALE_SESSION: Reason
OUT_OF_SYNC: Reason
BAD_BATCH: Reason
WRONG_TARGET: Reason
WRONG_LOG: Reason
POISON: Reason
DIVERGED: Reason

class ToTarget(_message.Message):
    __slots__ = ("open", "batch", "probe", "auth", "position", "wait_for")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    WAIT_FOR_FIELD_NUMBER: _ClassVar[int]
    open: Open
    batch: Batch
    probe: Probe
    auth: Auth
    position: PositionRequest
    wait_for: WaitForRequest
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., auth: _Optional[_Union[Auth, _Mapping]] = ..., position: _Optional[_Union[PositionRequest, _Mapping]] = ..., wait_for: _Optional[_Union[WaitForRequest, _Mapping]] = ...) -> None: ...

class Versions(_message.Message):
    __slots__ = ("oldest", "newest")
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    oldest: int
    newest: int
    def __init__(self, oldest: _Optional[int] = ..., newest: _Optional[int] = ...) -> None: ...

class Auth(_message.Message):
    __slots__ = ("token", "versions")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    token: str
    versions: Versions
    def __init__(self, token: _Optional[str] = ..., versions: _Optional[_Union[Versions, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("target", "log_id", "epoch", "term", "versions")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    target: str
    log_id: str
    epoch: int
    term: int
    versions: Versions
    def __init__(self, target: _Optional[str] = ..., log_id: _Optional[str] = ..., epoch: _Optional[int] = ..., term: _Optional[int] = ..., versions: _Optional[_Union[Versions, _Mapping]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("prev", "to", "prev_chain", "to_chain", "deliveries")
    PREV_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    PREV_CHAIN_FIELD_NUMBER: _ClassVar[int]
    TO_CHAIN_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    prev: int
    to: int
    prev_chain: bytes
    to_chain: bytes
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    def __init__(self, prev: _Optional[int] = ..., to: _Optional[int] = ..., prev_chain: _Optional[bytes] = ..., to_chain: _Optional[bytes] = ..., deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("index", "payload", "quarantine", "chain")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    index: int
    payload: bytes
    quarantine: bool
    chain: bytes
    def __init__(self, index: _Optional[int] = ..., payload: _Optional[bytes] = ..., quarantine: _Optional[bool] = ..., chain: _Optional[bytes] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ToPlayer(_message.Message):
    __slots__ = ("opened", "ack", "refused", "position", "failed")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    ack: Ack
    refused: Refused
    position: PositionReply
    failed: Failed
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., position: _Optional[_Union[PositionReply, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("code", "detail")
    class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INTERNAL: _ClassVar[Failed.Code]
        UNAUTHENTICATED: _ClassVar[Failed.Code]
        INVALID: _ClassVar[Failed.Code]
        EXHAUSTED: _ClassVar[Failed.Code]
        VERSION: _ClassVar[Failed.Code]
    INTERNAL: Failed.Code
    UNAUTHENTICATED: Failed.Code
    INVALID: Failed.Code
    EXHAUSTED: Failed.Code
    VERSION: Failed.Code
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    code: Failed.Code
    detail: str
    def __init__(self, code: _Optional[_Union[Failed.Code, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("index", "digest", "chain", "version")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    index: int
    digest: bytes
    chain: bytes
    version: int
    def __init__(self, index: _Optional[int] = ..., digest: _Optional[bytes] = ..., chain: _Optional[bytes] = ..., version: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("index", "digest")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    index: int
    digest: bytes
    def __init__(self, index: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("reason", "detail", "index", "epoch", "chain")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    detail: str
    index: int
    epoch: int
    chain: bytes
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., detail: _Optional[str] = ..., index: _Optional[int] = ..., epoch: _Optional[int] = ..., chain: _Optional[bytes] = ...) -> None: ...

class PositionRequest(_message.Message):
    __slots__ = ("target", "versions")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    target: str
    versions: Versions
    def __init__(self, target: _Optional[str] = ..., versions: _Optional[_Union[Versions, _Mapping]] = ...) -> None: ...

class PositionReply(_message.Message):
    __slots__ = ("target", "log_id", "index", "digest", "epoch", "term", "connected", "chain", "quiet_ms", "version")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    QUIET_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    target: str
    log_id: str
    index: int
    digest: bytes
    epoch: int
    term: int
    connected: bool
    chain: bytes
    quiet_ms: int
    version: int
    def __init__(self, target: _Optional[str] = ..., log_id: _Optional[str] = ..., index: _Optional[int] = ..., digest: _Optional[bytes] = ..., epoch: _Optional[int] = ..., term: _Optional[int] = ..., connected: _Optional[bool] = ..., chain: _Optional[bytes] = ..., quiet_ms: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class WaitForRequest(_message.Message):
    __slots__ = ("target", "index", "versions")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    target: str
    index: int
    versions: Versions
    def __init__(self, target: _Optional[str] = ..., index: _Optional[int] = ..., versions: _Optional[_Union[Versions, _Mapping]] = ...) -> None: ...
