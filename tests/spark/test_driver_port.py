"""How tasks reach their driver: a token always, TLS beyond loopback, plain text there only where it is meant."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logplayer.admin.app import Facts
from logplayer.admin.http_client import ask
from logplayer.config import Config
from logplayer.errors import ConfigError, LogError
from logplayer.log.open import open_log
from logplayer.spark import event_loop
from logplayer.spark.options import parse_options
from logplayer.spark.resident.driver import Resident
from logplayer.spark.resident.driver_port import _driver_side, listen, task_side
from logplayer.wire.security import Security
from tests.spark.spark_support import FileWal

BEYOND = "192.0.2.1"  # Reserved for documentation: nobody has it.
TLS = Security(ca="ca.pem", cert="c.pem", key="c.key", token="of the log")


def nothing(question: Any) -> dict[str, Any]:
    return {}


async def test_plain_text_beyond_loopback_is_refused_unless_it_is_meant() -> None:
    for security in (Security(), Security(token="t"), Security(ca="ca.pem")):
        with pytest.raises(ConfigError, match=f"the driver's host {BEYOND} is not loopback.*--tls-cert.*--insecure"):
            await listen(nothing, BEYOND, security, "run")
    plain = Security(insecure=True)
    assert _driver_side(plain, BEYOND, "run") == task_side(plain, f"{BEYOND}:1", "run")


@pytest.mark.parametrize("host", ["127.0.0.1", BEYOND])
async def test_only_this_runs_token_lets_a_task_speak(host: str) -> None:
    """A heartbeat decides how far the log is trimmed and a lease who plays: the driver must not even look at others."""
    heard: list[Facts] = []

    def answer(question: Facts) -> Facts:
        heard.append(question)
        return {"heard": True}

    security = Security(token="of the log", insecure=True)
    server, address = await listen(answer, host, security, "run", bind="127.0.0.1")
    here = f"127.0.0.1:{address.rpartition(':')[2]}"
    try:
        for path in ("/beat", "/lease"):
            for token in ("", "wrong", "ru", "run2", "of the log"):
                with pytest.raises(ConfigError, match="the token is missing or wrong"):
                    await ask(here, path, {"group": 0}, Security(token=token, insecure=True))
            assert heard == []
            assert await ask(here, path, {"group": 0}, task_side(security, address, "run")) == {"heard": True}
            assert heard == [{"group": 0, "do": path[1:]}]
            heard.clear()
    finally:
        await server.stop()


def test_both_sides_speak_tls_beyond_loopback() -> None:
    """The driver asks for this run's token, not for the log's: whoever may read the log may not end the job."""
    assert _driver_side(TLS, BEYOND, "run") == Security(cert="c.pem", key="c.key", token="run")
    assert task_side(TLS, f"{BEYOND}:1", "run") == Security(ca="ca.pem", token="run")
    by_system = Security(cert="c.pem", key="c.key")
    assert task_side(by_system, f"{BEYOND}:1", "run") == Security(ca="system", token="run")


async def test_on_loopback_the_certificate_is_not_needed() -> None:
    """It need not be valid for 127.0.0.1, and its files need not even be there."""
    server, address = await listen(nothing, "127.0.0.1", TLS, "run")
    await server.stop()
    assert address.startswith("127.0.0.1:")
    assert task_side(TLS, address, "run") == Security(token="run")


def test_a_log_that_the_driver_serves_asks_for_the_token(wal: FileWal) -> None:
    """Its tasks show it, also where TLS is configured for the targets."""
    wal.close()
    made: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: {"spark.driver.host": "127.0.0.1"}))
    resident = Resident(made, Config(wal.address, security=TLS))
    assert resident._open_log()
    try:
        with pytest.raises(LogError, match="token"):
            event_loop.run(open_log(resident.log_address))
        opened = event_loop.run(open_log(resident.log_address, resident._log_security))
        event_loop.run(opened.close())
    finally:
        resident._close()


def test_options_give_the_security(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    file = tmp_path / "x.toml"
    file.write_text(
        f'[log]\naddress = "grpc://h:1"\n[targets]\na = "tcp://h:2"\n[security]\ntoken_file = "{tmp_path}/token"\n'
    )
    made = parse_options({"config": str(file), "tlsCa": "system"})
    assert (made.config.log, made.config.targets) == ("grpc://h:1", {"a": "tcp://h:2"})
    assert made.config.security == Security(ca="system", token="s3cret")
    assert parse_options({"config": str(file), "token": "other"}).config.security.token == "other"
    assert parse_options({"insecure": "true"}).config.security == Security(insecure=True)
    assert "s3cret" not in repr(made)
    with pytest.raises(ConfigError, match="both give a token") as error:
        parse_options({"token": "s3cret", "tokenFile": "x"})
    assert "s3cret" not in str(error.value)
