"""`snapbid events` and `snapbid rates`: replay dead letters, import exchange rates."""

import os
from typing import TYPE_CHECKING

import click

from snapbid.base.settings import load
from snapbid.cli import console
from snapbid.cli.shell import ShellGroup

if TYPE_CHECKING:
    import asyncpg


@click.group(cls=ShellGroup)
def events() -> None:
    """Server events."""


@events.command("replay", examples=["snapbid events replay"])
def events_replay() -> None:
    """Replay dead-lettered events: queue them for the drain again."""
    from redis.exceptions import RedisError

    from snapbid.drain.replay import replay

    settings = console.check_ledger(console.with_stores(load(os.environ)))
    try:
        count = console.finish(replay(settings), settings.database_url)
    except RedisError as error:
        raise console.redis_failed(error, settings.redis_url) from error
    click.echo(f"{count} sent again")


@click.group(cls=ShellGroup)
def rates() -> None:
    """Your own exchange rates."""


@rates.command("import", examples=["snapbid rates import rates.json"])
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def rates_import(file: str) -> None:
    """Import rates, all or none; an existing rate of the same currency and date is replaced.

    FILE: .json holds an array or one object, anything else (and - for stdin) is JSON Lines.
    """
    from snapbid.warehouse import rates as table

    try:
        with click.open_file(file, "rb") as source:
            read = table.read_file(file, source.read())
    except table.RatesError as error:
        raise console.Refused("\n".join(map(str, error.mistakes))) from error
    except OSError as error:
        raise console.Refused(f"{file} cannot be read: {error.strerror}") from error

    async def work(connection: "asyncpg.Connection") -> None:
        await table.replace_many(connection, read)

    console.in_warehouse(work)
    click.echo(f"{console.counted(len(read), 'rate')} imported")
