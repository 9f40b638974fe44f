"""``logplayer table``: changes of the targets' own schemas, as entries of the log."""

from __future__ import annotations

import json
from typing import Any

import click

from logplayer.cli.common import StoryGroup, json_option, run_loop
from logplayer.cli.options import common_options, merge
from logplayer.cli.security import security_options
from logplayer.config import Config
from logplayer.errors import ConfigError
from logplayer.log import control_chain as chain
from logplayer.log.mutations import ddl as make_ddl
from logplayer.log.open import open_log
from logplayer.log.producer import Producer


@click.group(cls=StoryGroup)
def table() -> None:
    """Tables of the targets' own schemas: change them at one place in the order of the log.

    \b
    logplayer table ddl "ALTER TABLE orders ADD note text" --targets a,b --log grpc://127.0.0.1:7100
    """


@table.command()
@common_options
@click.argument("sql")
@click.option("--targets", required=True, metavar="NAME,...", help="The targets that run it, of --store X-tables.")
@json_option
@security_options(server=False)
def ddl(config_path: str | None, log_address: str, sql: str, targets: str, as_json: bool, **secure: Any) -> None:
    """Append a statement that changes a schema: each target runs it once, after the entries before it.

    SQLite and PostgreSQL run it in the transaction that moves the target's index. MySQL cannot: the entry blocks the
    target, so that you can run the statement by hand and quarantine the entry.

    \b
    logplayer table ddl "ALTER TABLE orders ADD note text" --targets a,b --log grpc://127.0.0.1:7100
    """
    merged = merge(config_path, log_address, secure=secure)
    names = [name.strip() for name in targets.split(",") if name.strip()]
    index = run_loop(_append(merged, sql, names))
    shown = json.dumps({"index": index, "targets": names})
    click.echo(shown if as_json else f"entry {index}: {', '.join(names)} run the statement there")


async def _append(merged: Config, sql: str, names: list[str]) -> int:
    mutations = make_ddl(sql, names)
    log = await open_log(merged.log, security=merged.security)
    try:
        members = (await chain.load(log)).control(merged.map).members
        for name in names if members else ():
            if name not in members:
                raise ConfigError(f"{name} is not a member; the log knows {', '.join(members)}")
        producer = await Producer.open(log, "", None)
        receipt = await producer.append(*mutations)
        return receipt.index
    finally:
        await log.close()
