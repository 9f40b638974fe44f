"""The options of ``format("logplayer")``, understood once and with an error that says what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from logplayer.config import Config, load, read
from logplayer.errors import ConfigError
from logplayer.log.open import LogPlace, parse
from logplayer.player.maps import parse_map

KNOWN = {
    "log": "the log's address",
    "logs": "several logs in one query: NAME=ADDRESS,NAME=ADDRESS",
    "raw": "true: one row per entry, with its payload",
    "includeHeaders": "true: a column with the transaction's headers",
    "startingIndex": "earliest, latest or an index",
    "endingIndex": "latest or an index (batch only)",
    "startingTimestamp": "the first entry that was committed at this time or later",
    "endingTimestamp": "only entries before the first that was committed at this time or later (batch only)",
    "archive": "where archived entries are",
    "map": "the first shard map, if the log has none",
    "targets": "only rows for these, separated by commas",
    "maxEntriesPerTrigger": "the most entries of one micro-batch",
    "maxBytesPerTrigger": "about the most bytes of one micro-batch",
    "minEntriesPerTrigger": "wait until there are so many entries",
    "maxTriggerDelay": "but no longer than this: 15m",
    "bytesPerTask": "about how much one task reads",
    "tasks": "at least this many tasks, if there are entries for them",
    "pollMs": "how long a micro-batch waits for news",
    "failOnDataLoss": "false: go on after what was trimmed",
    "mode": "read, or play",
    "groups": "how many players (mode=play)",
    "leaseSeconds": "how long one micro-batch plays (mode=play)",
    "staging": "where the sink keeps its state (default: in the checkpoint)",
    "producer": "the name of the sink's entries in the log",
    "addresses": "targets to deliver to: a=grpc://host:port,b=...",
    "to": "log or targets (sink)",
    "config": "a logplayer.toml on the driver: all its settings, where no option says otherwise",
    "tlsCa": "trust servers with a certificate from this CA file; system: the system's roots",
    "tlsCert": "show the certificate in this file (mutual TLS)",
    "tlsKey": "the certificate's private key, a file",
    "tokenFile": "show the token in this file",
    "token": "show this token",
    "user": "the user of an etcd or NATS cluster",
    "passwordFile": "the user's password is in this file",
    "nkeyFile": "sign in to a NATS cluster with this .creds file or nkey seed",
    "insecure": "true: allow plain text beyond loopback",
    "driverHost": "where executors reach the driver, as in spark.driver.host (mode=play)",
}
_KNOWN = {name.lower(): name for name in KNOWN}
# What Spark adds to the options: a path, what a streaming query says, and what every table of a catalog has.
_CATALOGS = ("comment", "location", "provider", "owner", "external", "collation", "is_managed_location", "table_type")
_SPARKS = frozenset(("path", "checkpointlocation", "queryname", "transient_lastddltime", *_CATALOGS))


@dataclass(frozen=True)
class SparkOptions:
    """See :data:`KNOWN`."""

    config: Config = field(default_factory=Config)  # Whole: what a task must know of a setting, it has.
    logs: tuple[tuple[str, str], ...] = ()  # (name, address)
    raw: bool = False
    headers: bool = False
    starting: str = "earliest"
    ending: str = "latest"
    starting_at_us: int | None = None
    ending_at_us: int | None = None
    archive: str = ""
    targets: tuple[str, ...] = ()
    entries_max: int = 0  # 0: no limit.
    bytes_max: int = 0  # 0: no limit.
    entries_min: int = 0
    delay_ms_max: int = 15 * 60_000  # How long entries wait for others, if there is a minimum.
    task_bytes: int = 32 << 20
    tasks: int = 4
    poll_ms: int = 50
    fail_on_data_loss: bool = True
    mode: str = "read"
    groups: int = 1
    lease_seconds: float = 20.0
    staging: str = ""
    producer: str = "spark"
    to: str = "log"
    driver_host: str = "127.0.0.1"


def parse_options(given: Mapping[str, str]) -> SparkOptions:
    """Understand the options; a word that is not known is a typing error and not ignored."""
    low = _ours(given)
    logs = _logs(low)
    config = _config(low, several=bool(logs))
    _require_one_start(low)
    checkpoint = low.get("checkpointlocation", "")
    return SparkOptions(
        config=config,
        logs=logs,
        raw=_flag(low, "raw", False),
        headers=_flag(low, "includeheaders", False),
        starting=_index(low, "startingindex", "earliest", ("earliest", "latest")),
        ending=_index(low, "endingindex", "latest", ("latest",)),
        starting_at_us=parse_time(low, "startingTimestamp"),
        ending_at_us=parse_time(low, "endingTimestamp"),
        archive=low.get("archive", ""),
        targets=tuple(name.strip() for name in low.get("targets", "").split(",") if name.strip()),
        entries_max=_number(low, "maxentriespertrigger", 0),
        bytes_max=_number(low, "maxbytespertrigger", 0),
        entries_min=_number(low, "minentriespertrigger", 0),
        delay_ms_max=_delay(low, "maxTriggerDelay", SparkOptions.delay_ms_max),
        task_bytes=max(1, _number(low, "bytespertask", SparkOptions.task_bytes)),
        tasks=max(1, _number(low, "tasks", SparkOptions.tasks)),
        poll_ms=_number(low, "pollms", SparkOptions.poll_ms),
        fail_on_data_loss=_flag(low, "failondataloss", True),
        mode=_choice(low, "mode", ("read", "play")),
        groups=max(1, _number(low, "groups", config.spark.groups)),
        lease_seconds=max(1, _number(low, "leaseseconds", 20)),
        staging=low.get("staging") or (f"{checkpoint.rstrip('/')}/logplayer-sink" if checkpoint else ""),
        producer=low.get("producer", "spark"),
        to=_choice(low, "to", ("log", "targets")),
        driver_host=low.get("driverhost") or SparkOptions.driver_host,
    )


def _ours(given: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in lower case, without what Spark adds.

    A table of a catalog has properties: Spark hands over its options twice, as such and with the prefix ``option.``,
    and all that others keep there. By custom those have a dot in their names, and no option of ours has.
    """
    low = {key.lower(): value for key, value in given.items()}
    low = {key.removeprefix("option."): value for key, value in low.items()} | low
    low = {key: value for key, value in low.items() if key not in _SPARKS or key == "checkpointlocation"}
    for key in [key for key in low if key not in _KNOWN and key != "checkpointlocation"]:
        if "." not in key:
            raise ConfigError(_unknown(key))
        del low[key]
    return low


def _unknown(key: str) -> str:
    close = difflib.get_close_matches(key, _KNOWN, n=1, cutoff=0.7)
    hint = f"did you mean {_KNOWN[close[0]]}?" if close else f"it has {', '.join(KNOWN)}"
    return f"format logplayer has no option {key!r}; {hint}"


def _logs(low: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The option logs: ``a=grpc://host:1,b=file:///wal``."""
    logs = parse_addresses(low.get("logs", ""))
    for name, address in logs:
        parse(address)
        if sum(other == name for other, _ in logs) > 1:
            raise ConfigError(f"option logs has two logs with the name {name!r}; the column log tells them apart by it")
    if logs and low.get("log"):
        raise ConfigError("options log and logs both name a log; leave one out")
    for key in ("archive", "addresses"):
        if logs and low.get(key):
            raise ConfigError(f"option {key} is about one log, and logs has {len(logs)}; read each with option log")
    for key in ("startingindex", "endingindex"):
        if logs and low.get(key, "").isdigit():
            raise ConfigError(
                f"option {_KNOWN[key]} is an index, and an index of one log means nothing in another; write earliest "
                "or latest, or use startingTimestamp and endingTimestamp"
            )
    return logs


def _require_one_start(low: Mapping[str, str]) -> None:
    for index, time in (("startingindex", "startingtimestamp"), ("endingindex", "endingtimestamp")):
        if low.get(index) and low.get(time):
            raise ConfigError(f"options {_KNOWN[index]} and {_KNOWN[time]} both say the same thing; leave one out")


def _config(low: Mapping[str, str], *, several: bool) -> Config:
    """The one configuration: what the option config names, with the other options on top. It travels whole."""
    config = _file(low)
    if low.get("log"):
        parse(low["log"])
    return replace(
        config,
        log=low.get("log") or ("" if several else config.log),
        map=parse_map(low["map"]) if low.get("map") else config.map,
        targets=dict(parse_addresses(low.get("addresses", ""))) or config.targets,
        group=low.get("producer") or config.group,
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
    if not options.config.log:
        raise ConfigError(
            'format logplayer needs option("log", ADDRESS), for example file:///var/lib/wal. If this is a table of a '
            "catalog: Spark does not give its options to a Python source; write FROM table WITH (log = 'ADDRESS')"
        )
    return LogPlace(options.config.log, options.config.security)


def parse_time(low: Mapping[str, str], name: str) -> int | None:
    """A time in milliseconds since 1970, as for Kafka, or in ISO 8601; in microseconds, as the log has it."""
    value = low.get(name.lower(), "")
    if not value:
        return None
    if value.isdigit():
        return int(value) * 1000
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise ConfigError(
            f"option {name} is {value!r}; write milliseconds since 1970, or a time like 2026-11-18T09:30:00+00:00"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def _delay(low: Mapping[str, str], name: str, default: int) -> int:
    value = low.get(name.lower(), f"{default}ms")
    found = re.fullmatch(r"(\d+) ?(ms|s|m|min|h)", value)
    if not found:
        raise ConfigError(f"option {name} is {value!r}; write a number and a unit: 500ms, 30s, 15m, 1h")
    return int(found[1]) * _UNITS[found[2]]


def _flag(low: Mapping[str, str], key: str, default: bool) -> bool:
    value = low.get(key, str(default)).lower()
    if value not in ("true", "false"):
        raise ConfigError(f"option {_KNOWN[key]} is {value!r}; write true or false")
    return value == "true"


def _number(low: Mapping[str, str], key: str, default: int) -> int:
    value = low.get(key, str(default))
    if not value.isdigit():
        raise ConfigError(f"option {_KNOWN[key]} is {value!r}; write a whole number")
    return int(value)


def _index(low: Mapping[str, str], key: str, default: str, words: tuple[str, ...]) -> str:
    value = low.get(key, default).lower()
    if value not in words and not value.isdigit():
        raise ConfigError(f"option {_KNOWN[key]} is {value!r}; write {', '.join(words)} or an index")
    return value


def _choice(low: Mapping[str, str], key: str, words: tuple[str, ...]) -> str:
    value = low.get(key, words[0]).lower()
    if value not in words:
        raise ConfigError(f"option {_KNOWN[key]} is {value!r}; write {' or '.join(words)}")
    return value
