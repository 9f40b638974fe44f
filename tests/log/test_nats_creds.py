"""A NATS cluster whose users an operator's accounts admit: a client signs in with a .creds file."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from logplayer.errors import UserError
from logplayer.log.local_cluster import NODES
from logplayer.wire.security import NONE, Security
from tests.log.log_support import missing
from tests.log.test_cluster_security import use

NO_LIMIT = dict.fromkeys(("subs", "data", "payload"), -1)
NO_ACCOUNT_LIMIT = {**NO_LIMIT, **dict.fromkeys(("imports", "exports", "conn", "leaf"), -1), "wildcards": True}
STORES = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


class Identity:
    """A key pair of NATS, and the tokens that it signs."""

    def __init__(self, kind: str) -> None:
        import nkeys  # type: ignore[import-untyped]

        prefix = getattr(nkeys, f"PREFIX_BYTE_{kind.upper()}")
        self.kind = kind
        self.seed: bytes = nkeys.encode_seed(os.urandom(32), prefix)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public: str = self._pair.public_key.decode()

    def token(self, of: Identity, **facts: Any) -> str:
        """What this one says about another one, as a JWT of NATS."""
        claims: dict[str, Any] = {"iat": int(time.time()), "iss": self.public, "name": of.kind, "sub": of.public}
        claims["nats"] = {"type": of.kind, "version": 2, **facts}
        claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
        parts = [_encode(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims)]
        signed = ".".join(parts)
        return f"{signed}.{_encode(self._pair.sign(signed.encode()))}"


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def creds(account: Identity, user: Identity) -> str:
    """What the tools of NATS write for a user."""
    token = account.token(user, **NO_LIMIT)
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )


async def test_a_creds_file_admits_its_user_only(tmp_path: Path) -> None:
    try:
        from logplayer.log.nats.local_cluster import Cluster, find_server, free_cluster_port

        find_server()
        operator, account, system = Identity("operator"), Identity("account"), Identity("account")
    except (ImportError, UserError) as error:
        missing(str(error))
    (tmp_path / "operator.jwt").write_text(operator.token(operator, system_account=system.public))
    limits = {account.public: {**NO_ACCOUNT_LIMIT, **STORES}, system.public: NO_ACCOUNT_LIMIT}
    tokens = [f"{one.public}: {operator.token(one, limits=limits[one.public])}" for one in (account, system)]
    cluster = Cluster(tmp_path / "nats", free_cluster_port(1))
    for node in range(NODES):
        cluster.folder(node).mkdir(parents=True)
        (cluster.folder(node) / "nats.conf").write_text(
            cluster._config(node)
            + f'operator: "{tmp_path}/operator.jwt"\nsystem_account: {system.public}\n'
            + f"resolver: MEMORY\nresolver_preload: {{\n{chr(10).join(tokens)}\n}}\n"
        )
    await asyncio.to_thread(cluster.up)
    try:
        address = cluster.address("x")
        (tmp_path / "app.creds").write_text(creds(account, Identity("user")))
        by_file = Security(nkey=str(tmp_path / "app.creds"))
        await use(address, by_file)
        await use(address, pickle.loads(pickle.dumps(by_file)))
        (tmp_path / "stranger.creds").write_text(creds(Identity("account"), Identity("user")))
        for wrong in (NONE, Security(nkey=str(tmp_path / "stranger.creds"))):
            with pytest.raises(UserError, match="--nkey-file"):
                await use(address, wrong)
    finally:
        await asyncio.to_thread(cluster.down)
