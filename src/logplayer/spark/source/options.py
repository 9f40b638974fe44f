"""The options of ``format("logplayer")``, understood once and with an error that says what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from logplayer.config import Config, load, read
from logplayer.core.entry import ShardMap
from logplayer.errors import ConfigError
from logplayer.log.open import LogPlace, parse
from logplayer.spark.jobs.routes import parse_map
from logplayer.wire.security import NONE, Security

KNOWN = {
    "log": "the log's address",
    "raw": "true: one row per entry, with its payload",
    "includeheaders": "true: a column with the transaction's headers",
    "startingindex": "earliest, latest or an index",
    "endingindex": "latest or an index (batch only)",
    "archive": "where archived entries are",
    "map": "the first shard map, if the log has none",
    "targets": "only rows for these, separated by commas",
    "maxentriespertrigger": "the most entries of one micro-batch",
    "bytespertask": "about how much one task reads",
    "tasks": "at least this many tasks, if there are entries for them",
    "pollms": "how long a micro-batch waits for news",
    "failondataloss": "false: go on after what was trimmed",
    "mode": "read, or play",
    "groups": "how many players (mode=play)",
    "leaseseconds": "how long one micro-batch plays (mode=play)",
    "staging": "where the sink keeps its state (default: in the checkpoint)",
    "producer": "the name of the sink's entries in the log",
    "addresses": "targets to deliver to: a=grpc://host:port,b=...",
    "to": "log or targets (sink)",
    "config": "a logplayer.toml on the driver: its log, targets, map and security, where no option says otherwise",
    "tlsca": "trust servers with a certificate from this CA file; system: the system's roots",
    "tlscert": "show the certificate in this file (mutual TLS)",
    "tlskey": "the certificate's private key, a file",
    "tokenfile": "show the token in this file",
    "token": "show this token",
    "user": "the user of an etcd or NATS cluster",
    "passwordfile": "the user's password is in this file",
    "nkeyfile": "sign in to a NATS cluster with this .creds file or nkey seed",
    "insecure": "true: allow plain text beyond loopback",
    "driverhost": "where executors reach the driver, as in spark.driver.host (mode=play)",
    "path": "not used",
    "checkpointlocation": "Spark's",
    "queryname": "Spark's",
}


@dataclass(frozen=True)
class SparkOptions:
    """See :data:`KNOWN`."""

    log: str = ""
    raw: bool = False
    headers: bool = False
    starting: str = "earliest"
    ending: str = "latest"
    archive: str = ""
    first_map: ShardMap | None = None
    targets: tuple[str, ...] = ()
    entries_max: int = 0  # 0: no limit.
    task_bytes: int = 32 << 20
    tasks: int = 4
    poll_ms: int = 50
    fail_on_data_loss: bool = True
    mode: str = "read"
    groups: int = 1
    lease_seconds: float = 20.0
    staging: str = ""
    producer: str = "spark"
    addresses: tuple[tuple[str, str], ...] = ()
    to: str = "log"
    security: Security = NONE
    driver_host: str = "127.0.0.1"


def parse_options(given: Mapping[str, str]) -> SparkOptions:
    """Understand the options; a word that is not known is a typing error and not ignored."""
    low = {key.lower(): value for key, value in given.items()}
    for key in low:
        if key not in KNOWN:
            raise ConfigError(f"format logplayer has no option {key!r}; it has {', '.join(KNOWN)}")
    file = _file(low)
    addresses = parse_addresses(low.get("addresses", ""))
    if low.get("log"):
        parse(low["log"])
    checkpoint = low.get("checkpointlocation", "")
    return SparkOptions(
        log=low.get("log") or file.log,
        raw=_flag(low, "raw", False),
        headers=_flag(low, "includeheaders", False),
        starting=_index(low, "startingindex", "earliest", ("earliest", "latest")),
        ending=_index(low, "endingindex", "latest", ("latest",)),
        archive=low.get("archive", ""),
        first_map=parse_map(low["map"]) if low.get("map") else file.map,
        targets=tuple(name.strip() for name in low.get("targets", "").split(",") if name.strip()),
        entries_max=_number(low, "maxentriespertrigger", 0),
        task_bytes=max(1, _number(low, "bytespertask", SparkOptions.task_bytes)),
        tasks=max(1, _number(low, "tasks", SparkOptions.tasks)),
        poll_ms=_number(low, "pollms", SparkOptions.poll_ms),
        fail_on_data_loss=_flag(low, "failondataloss", True),
        mode=_choice(low, "mode", ("read", "play")),
        groups=max(1, _number(low, "groups", 1)),
        lease_seconds=max(1, _number(low, "leaseseconds", 20)),
        staging=low.get("staging") or (f"{checkpoint.rstrip('/')}/logplayer-sink" if checkpoint else ""),
        producer=low.get("producer", "spark"),
        addresses=addresses or tuple(file.targets.items()),
        to=_choice(low, "to", ("log", "targets")),
        security=file.security,
        driver_host=low.get("driverhost") or SparkOptions.driver_host,
    )


def _file(low: Mapping[str, str]) -> Config:
    """What the option config names, with the security of the other options on top.

    Files are read here, in the driver; what is pickled for the tasks holds their content.
    """
    if low.get("token") and low.get("tokenfile"):
        raise ConfigError("options token and tokenFile both give a token; leave one out")
    secure = {
        "ca": low.get("tlsca", ""),
        "cert": low.get("tlscert", ""),
        "key": low.get("tlskey", ""),
        "token_file": low.get("tokenfile", ""),
        "insecure": _flag(low, "insecure", False),
        "user": low.get("user", ""),
        "password_file": low.get("passwordfile", ""),
        "nkey_file": low.get("nkeyfile", ""),
    }
    file = load(low["config"], secure) if low.get("config") else read({}, "", secure)
    return replace(file, security=replace(file.security, token=low["token"])) if low.get("token") else file


def parse_addresses(text: str) -> tuple[tuple[str, str], ...]:
    """``a=grpc://host:1,b=tcp://host:2`` as pairs."""
    pairs = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, address = part.partition("=")
        if not equals or not name or not address:
            raise ConfigError(f"{part!r} does not say where a target is; write NAME=grpc://HOST:PORT")
        pairs.append((name, address))
    return tuple(pairs)


def require_log(options: SparkOptions) -> LogPlace:
    """The log's place, without which nothing can be read."""
    if not options.log:
        raise ConfigError('format logplayer needs option("log", ADDRESS), for example file:///var/lib/wal')
    return LogPlace(options.log, options.security)


def _flag(low: Mapping[str, str], key: str, default: bool) -> bool:
    value = low.get(key, str(default)).lower()
    if value not in ("true", "false"):
        raise ConfigError(f"option {key} is {value!r}; write true or false")
    return value == "true"


def _number(low: Mapping[str, str], key: str, default: int) -> int:
    value = low.get(key, str(default))
    if not value.isdigit():
        raise ConfigError(f"option {key} is {value!r}; write a whole number")
    return int(value)


def _index(low: Mapping[str, str], key: str, default: str, words: tuple[str, ...]) -> str:
    value = low.get(key, default).lower()
    if value not in words and not value.isdigit():
        raise ConfigError(f"option {key} is {value!r}; write {', '.join(words)} or an index")
    return value


def _choice(low: Mapping[str, str], key: str, words: tuple[str, ...]) -> str:
    value = low.get(key, words[0]).lower()
    if value not in words:
        raise ConfigError(f"option {key} is {value!r}; write {' or '.join(words)}")
    return value
