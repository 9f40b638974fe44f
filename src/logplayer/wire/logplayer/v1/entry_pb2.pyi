from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Op(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PUT: _ClassVar[Op]
    DELETE: _ClassVar[Op]
    PATCH: _ClassVar[Op]
    DDL: _ClassVar[Op]
PUT: Op
DELETE: Op
PATCH: Op
DDL: Op

class Mutation(_message.Message):
    __slots__ = ("key", "value", "op", "target", "table", "columns")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    op: Op
    target: str
    table: str
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., op: _Optional[_Union[Op, str]] = ..., target: _Optional[str] = ..., table: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "value", "key")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: Value
    key: bool
    def __init__(self, name: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ..., key: _Optional[bool] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("boolean", "integer", "real", "decimal", "text", "binary", "timestamp_us", "local_timestamp_us", "date_days", "time_us", "uuid", "json", "array")
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    LOCAL_TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    DATE_DAYS_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    boolean: bool
    integer: int
    real: float
    decimal: str
    text: str
    binary: bytes
    timestamp_us: int
    local_timestamp_us: int
    date_days: int
    time_us: int
    uuid: bytes
    json: str
    array: Array
    def __init__(self, boolean: _Optional[bool] = ..., integer: _Optional[int] = ..., real: _Optional[float] = ..., decimal: _Optional[str] = ..., text: _Optional[str] = ..., binary: _Optional[bytes] = ..., timestamp_us: _Optional[int] = ..., local_timestamp_us: _Optional[int] = ..., date_days: _Optional[int] = ..., time_us: _Optional[int] = ..., uuid: _Optional[bytes] = ..., json: _Optional[str] = ..., array: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class Array(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, items: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("mutations", "headers")
    MUTATIONS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    mutations: _containers.RepeatedCompositeFieldContainer[Mutation]
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, mutations: _Optional[_Iterable[_Union[Mutation, _Mapping]]] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Control(_message.Message):
    __slots__ = ("takeover", "target_added", "target_removed", "map_changed", "quarantined", "checkpoint", "quarantine_revoked", "repaired", "nonce", "state")
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    TARGET_ADDED_FIELD_NUMBER: _ClassVar[int]
    TARGET_REMOVED_FIELD_NUMBER: _ClassVar[int]
    MAP_CHANGED_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_REVOKED_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    takeover: Takeover
    target_added: TargetAdded
    target_removed: TargetRemoved
    map_changed: MapChanged
    quarantined: Quarantined
    checkpoint: Checkpoint
    quarantine_revoked: QuarantineRevoked
    repaired: Repaired
    nonce: str
    state: Snapshot
    def __init__(self, takeover: _Optional[_Union[Takeover, _Mapping]] = ..., target_added: _Optional[_Union[TargetAdded, _Mapping]] = ..., target_removed: _Optional[_Union[TargetRemoved, _Mapping]] = ..., map_changed: _Optional[_Union[MapChanged, _Mapping]] = ..., quarantined: _Optional[_Union[Quarantined, _Mapping]] = ..., checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., quarantine_revoked: _Optional[_Union[QuarantineRevoked, _Mapping]] = ..., repaired: _Optional[_Union[Repaired, _Mapping]] = ..., nonce: _Optional[str] = ..., state: _Optional[_Union[Snapshot, _Mapping]] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Repaired(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Takeover(_message.Message):
    __slots__ = ("group", "player", "application")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PLAYER_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    group: str
    player: str
    application: int
    def __init__(self, group: _Optional[str] = ..., player: _Optional[str] = ..., application: _Optional[int] = ...) -> None: ...

class TargetAdded(_message.Message):
    __slots__ = ("target", "at", "address")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    target: str
    at: int
    address: str
    def __init__(self, target: _Optional[str] = ..., at: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class TargetRemoved(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: str
    def __init__(self, target: _Optional[str] = ...) -> None: ...

class MapChanged(_message.Message):
    __slots__ = ("map",)
    MAP_FIELD_NUMBER: _ClassVar[int]
    map: ShardMap
    def __init__(self, map: _Optional[_Union[ShardMap, _Mapping]] = ...) -> None: ...

class ShardMap(_message.Message):
    __slots__ = ("hash", "range", "explicit", "part_hash")
    HASH_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    EXPLICIT_FIELD_NUMBER: _ClassVar[int]
    PART_HASH_FIELD_NUMBER: _ClassVar[int]
    hash: HashMap
    range: RangeMap
    explicit: ExplicitMap
    part_hash: PartHashMap
    def __init__(self, hash: _Optional[_Union[HashMap, _Mapping]] = ..., range: _Optional[_Union[RangeMap, _Mapping]] = ..., explicit: _Optional[_Union[ExplicitMap, _Mapping]] = ..., part_hash: _Optional[_Union[PartHashMap, _Mapping]] = ...) -> None: ...

class ExplicitMap(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HashMap(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, targets: _Optional[_Iterable[str]] = ...) -> None: ...

class PartHashMap(_message.Message):
    __slots__ = ("targets", "by")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedScalarFieldContainer[str]
    by: str
    def __init__(self, targets: _Optional[_Iterable[str]] = ..., by: _Optional[str] = ...) -> None: ...

class RangeMap(_message.Message):
    __slots__ = ("bounds", "targets")
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedScalarFieldContainer[bytes]
    targets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bounds: _Optional[_Iterable[bytes]] = ..., targets: _Optional[_Iterable[str]] = ...) -> None: ...

class Quarantined(_message.Message):
    __slots__ = ("target", "index", "reason")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    target: str
    index: int
    reason: str
    def __init__(self, target: _Optional[str] = ..., index: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class QuarantineRevoked(_message.Message):
    __slots__ = ("target", "index", "reason")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    target: str
    index: int
    reason: str
    def __init__(self, target: _Optional[str] = ..., index: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("members", "maps", "quarantined")
    class Member(_message.Message):
        __slots__ = ("target", "at", "address")
        TARGET_FIELD_NUMBER: _ClassVar[int]
        AT_FIELD_NUMBER: _ClassVar[int]
        ADDRESS_FIELD_NUMBER: _ClassVar[int]
        target: str
        at: int
        address: str
        def __init__(self, target: _Optional[str] = ..., at: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...
    class MapVersion(_message.Message):
        __slots__ = ("after", "map")
        AFTER_FIELD_NUMBER: _ClassVar[int]
        MAP_FIELD_NUMBER: _ClassVar[int]
        after: int
        map: ShardMap
        def __init__(self, after: _Optional[int] = ..., map: _Optional[_Union[ShardMap, _Mapping]] = ...) -> None: ...
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[Snapshot.Member]
    maps: _containers.RepeatedCompositeFieldContainer[Snapshot.MapVersion]
    quarantined: _containers.RepeatedCompositeFieldContainer[Quarantined]
    def __init__(self, members: _Optional[_Iterable[_Union[Snapshot.Member, _Mapping]]] = ..., maps: _Optional[_Iterable[_Union[Snapshot.MapVersion, _Mapping]]] = ..., quarantined: _Optional[_Iterable[_Union[Quarantined, _Mapping]]] = ...) -> None: ...
