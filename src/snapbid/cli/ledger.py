"""`snapbid ledger`: a ledger and a warehouse that do not belong together."""

import os

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellGroup
from snapbid.settings import load


@click.group(cls=ShellGroup)
def ledger() -> None:
    """The ledger in Redis."""


@ledger.command("adopt", examples=["snapbid ledger adopt"])
def ledger_adopt() -> None:
    """Empty a ledger that belongs to another warehouse, for this one to use.

    Bids made so far are forgotten: their notices count nothing. First stop whatever still uses
    the other warehouse.
    """
    from redis.exceptions import RedisError

    from snapbid.drain.adopt import adopt

    settings = console.with_stores(load(os.environ))
    try:
        done = console.finish(adopt(settings), settings.database_url)
    except RedisError as error:
        raise console.redis_failed(error, settings.redis_url) from error
    if not done.shards:
        click.echo("the ledger belongs to this warehouse already")
        return
    click.echo(
        "the ledger belongs to this warehouse now; not carried to the other one: "
        f"{console.counted(done.dropped, 'changed counter')}"
    )
