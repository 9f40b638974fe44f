"""The log server with TLS and a token, through the API and the command line."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from logplayer.errors import ConfigError, LogUnavailable
from logplayer.log.file.log import FileLog
from logplayer.log.grpc_errors import LogNotAdmitted
from logplayer.log.open import open_log
from logplayer.log.protocol import NewEntry
from logplayer.log.server import LogServer
from logplayer.wire.security import Security
from tests.servers import Authority

TOKEN = "let-me-in"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "ca").mkdir()
    return Authority(tmp_path / "ca")


async def test_a_token_is_asked_for_on_every_call(tmp_path: Path) -> None:
    log = await FileLog.open(str(tmp_path / "log"))
    server = LogServer(log, Security(token=TOKEN))
    address = f"grpc://127.0.0.1:{await server.start()}"
    with pytest.raises(LogNotAdmitted, match="--token-file"):
        await open_log(address)
    with pytest.raises(LogNotAdmitted):
        await open_log(address, security=Security(token="guess"))
    client = await open_log(address, security=Security(token=TOKEN))
    assert await client.append([NewEntry("p", 1, b"x")]) == [1]
    assert [r.payload async for records in client.read(1, 1) for r in records] == [b"x"]
    await client.trim(1)
    assert (await client.info()).first == 2
    await client.close()
    await server.stop(0)
    await log.close()


async def test_tls_keeps_strangers_out_and_a_new_certificate_is_taken(tmp_path: Path, authority: Authority) -> None:
    cert, key = authority.issue("server")
    log = await FileLog.open(str(tmp_path / "log"))
    server = LogServer(log, Security(cert=cert, key=key))
    address = f"grpc://127.0.0.1:{await server.start()}"
    with pytest.raises(LogUnavailable):
        await open_log(address)
    client = await open_log(address, security=Security(ca=authority.ca))
    assert await client.append([NewEntry("p", 1, b"x")]) == [1]
    authority.issue("server")  # The files change while the first client stays connected.
    second = await open_log(address, security=Security(ca=authority.ca))
    assert await second.append([NewEntry("p", 2, b"y")]) == [2]
    assert await client.append([NewEntry("p", 3, b"z")]) == [3]
    await client.close()
    await second.close()
    await server.stop(0)
    await log.close()


async def test_plain_text_beyond_loopback_needs_a_word(tmp_path: Path) -> None:
    log = await FileLog.open(str(tmp_path / "log"))
    with pytest.raises(ConfigError, match="--insecure"):
        await LogServer(log).start("0.0.0.0")
    with pytest.raises(ConfigError, match="--insecure"):
        await open_log("grpc://192.0.2.1:7100")
    await log.close()


async def test_the_environment_of_a_command_names_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    log = await FileLog.open(str(tmp_path / "log"))
    server = LogServer(log, Security(token=TOKEN))
    address = f"grpc://127.0.0.1:{await server.start()}"
    command = [sys.executable, "-m", "logplayer.cli", "log", "info", "--log", address]
    for named, code in ((str(tmp_path / "token"), 0), ("", 2)):
        monkeypatch.setenv("LOGPLAYER_TOKEN_FILE", named)
        process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
        await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode == code
    await server.stop(0)
    await log.close()


def test_the_command_line_serves_and_shows_the_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    run = [sys.executable, "-m", "logplayer.cli", "log"]
    secret = ["--token-file", str(tmp_path / "token")]
    serving = [*run, "serve", "--log", f"file://{tmp_path}/log", "--listen", "127.0.0.1:0", *secret]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = next(word for word in server.stdout.readline().split() if word.startswith("grpc://"))
        info = [*run, "info", "--log", address]
        refused = subprocess.run(info, capture_output=True, text=True)
        admitted = subprocess.run([*info, *secret], capture_output=True, text=True)
        server.terminate()
    assert refused.returncode == 2
    assert "refused the token" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert admitted.returncode == 0, admitted.stderr
