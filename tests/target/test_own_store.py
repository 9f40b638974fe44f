"""``target serve --store file.py:Class``: a user's own target behind the product's server, options and signals."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import logplayer as lp
from logplayer.errors import ConfigError
from logplayer.target.stores.own import open_own
from tests import ROOT
from tests.servers import Authority

[INVENTORY] = re.findall(r"```python\n# inventory.py\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.DOTALL)


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """The target of the API's page."""
    path = tmp_path / "inventory.py"
    path.write_text(f"{INVENTORY}\n\ndef print_nothing(path, name):\n    return None\n")
    return path


async def test_it_is_served_and_played_into(inventory: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logplayer.cli", "target", "serve", "--store", f"{inventory}:Inventory"]
    command += ["--path", str(tmp_path / "stock.db"), "--id", "inventory", "--listen-tcp", "127.0.0.1:0", "--json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    [address] = json.loads(await process.stdout.readline())["addresses"]
    async with lp.open_log(f"file://{tmp_path}/log") as log, lp.Player(log, targets={"inventory": address}):
        receipt = await (await log.producer()).append(lp.put("apple", "7"))
        await receipt.applied()
        assert (await lp.position(address, "inventory")).index >= receipt.index
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


@pytest.mark.parametrize("transport", ["--listen", "--listen-tcp"])
async def test_it_is_served_with_tls_and_a_token(
    inventory: Path, tmp_path: Path, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any other store, here by the name of its module: without the token nobody gets in, with it a player does."""
    monkeypatch.setenv("PYTHONPATH", str(inventory.parent))
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    (tmp_path / "token").write_text("s3cret\n")
    command = [sys.executable, "-m", "logplayer.cli", "target", "serve", "--store", "inventory:Inventory"]
    command += ["--path", str(tmp_path / "stock.db"), "--id", "inventory", transport, "127.0.0.1:0", "--json"]
    command += ["--tls-cert", cert, "--tls-key", key, "--token-file", str(tmp_path / "token")]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    [address] = json.loads(await process.stdout.readline())["addresses"]
    with pytest.raises(lp.TargetError):
        await lp.position(address, "inventory", timeout=5)  # In plain text.
    with pytest.raises(lp.LogPlayerError, match="token"):
        await lp.position(address, "inventory", security=lp.Security(ca=authority.ca, token="another"))
    mine = lp.Security(ca=authority.ca, token="s3cret")
    async with (
        lp.open_log(f"file://{tmp_path}/log", mine) as log,
        lp.Player(log, targets={"inventory": address}),
    ):
        receipt = await (await log.producer()).append(lp.put("apple", "7"))
        await receipt.applied()
        assert (await lp.position(address, "inventory", security=mine)).index >= receipt.index
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


def test_a_module_is_found_by_its_name(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(inventory.parent))
    assert open_own("inventory:Inventory", "a", ":memory:").position() == lp.Position()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("nowhere_at_all:Thing", "cannot be loaded: No module named"),
        ("missing.py:Thing", "cannot be loaded"),
        ("{file}:Thing", "has no class 'Thing'"),
        ("{file}:sqlite3", "has no class"),
        ("json:JSONDecodeError", "failed: TypeError"),
        ("{file}:print_nothing", "has the methods position"),
    ],
)
def test_what_is_wrong_is_said(inventory: Path, kind: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        open_own(kind.format(file=inventory), "a", "")
