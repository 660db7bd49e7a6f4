"""`snapbid ledger`: adopt a ledger for this warehouse, or move it."""

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellGroup


@click.group(cls=ShellGroup)
def ledger() -> None:
    """The ledger in Redis."""


@ledger.command("adopt", examples=["snapbid ledger adopt"])
def ledger_adopt() -> None:
    """Assign the ledger in Redis to this warehouse, after a restore or a return to this ledger.

    A ledger that this warehouse has used before keeps its data, and spend recorded since with
    another ledger stays spent. Stop serve and the drain first, since holds may end before spooled
    notices are replayed. The ledger of another warehouse is emptied: its bids are forgotten, and
    their notices no longer count.
    """
    from redis.exceptions import RedisError

    from snapbid.drain.adopt import adopt

    settings = console.with_ledger()
    try:
        done = console.finish(adopt(settings), settings.database_url)
    except RedisError as error:
        raise console.redis_failed(error, settings.redis_url) from error
    if done.is_returned:
        click.echo(
            "the ledger belongs to this warehouse again; the drain will add the spend of the ledger"
            " used in between, whose open bids are now unknown, to its budgets"
        )
        return
    if not done.shards:
        click.echo("the ledger already belongs to this warehouse")
        return
    click.echo(
        "the ledger belongs to this warehouse now;"
        f" {console.counted(done.dropped, 'counter')} of the other warehouse dropped undrained"
    )


@ledger.command(
    "move",
    examples=[
        "snapbid ledger move --to redis://10.0.0.7:6379",
        "snapbid ledger move --to redis+cluster://10.0.0.7,10.0.0.8 --shards 8",
        "snapbid ledger move --to redis+cluster://10.0.0.7,10.0.0.8 --shards 8 --undo",
    ],
)
@click.option("--to", "url", required=True, help="The new SNAPBID_REDIS_URL.")
@click.option(
    "--shards",
    type=click.IntRange(1, 1024),
    help="New number of shards (default: one per primary there, but no fewer than now).",
)
@click.option(
    "--leave-unknown",
    is_flag=True,
    help="Skip counters of campaigns and SSPs that the warehouse does not know.",
)
@click.option("--undo", is_flag=True, help="Reopen the old ledger, and delete the new one's data.")
def ledger_move(url: str, shards: int | None, *, leave_unknown: bool, undo: bool) -> None:
    """Move the ledger to another Redis, or to a different number of shards.

    Until serve and the drain are restarted with the new settings, bid requests get a 204, notices
    are spooled and server events get a 503. If a move is interrupted, run it again or undo it.
    """
    import asyncio
    from functools import partial

    from redis.exceptions import RedisError

    from snapbid.base import addresses
    from snapbid.base.reasons import reason, text_of
    from snapbid.ledger.admin import moving

    try:
        addresses.parse(url)
    except ValueError as error:
        raise console.WrongInput(f"--to: {error}") from error
    settings = console.with_shards(console.with_redis())
    assert settings.redis_url is not None
    old = moving.LedgerPlace(settings.redis_url, settings.shards, settings.redis_replicas)
    try:
        count = asyncio.run(moving.count_shards(url, old.shards))
    except (RedisError, OSError) as error:
        why = reason(error, url)
        raise console.Refused(f"Redis (--to) failed: {why}; nothing was changed") from error
    new = moving.LedgerPlace(url, shards or count, settings.redis_replicas)
    try:
        if undo:
            asyncio.run(moving.undo(old, new))
            click.echo("the old ledger is open again")
            return
        tell = partial(click.echo, err=True)
        moved = asyncio.run(moving.move(old, new, tell, leave_unknown=leave_unknown))
    except moving.MoveError as error:
        raise console.Refused(str(error)) from error
    except (RedisError, OSError) as error:
        raise console.Refused(
            f"the move stopped ({text_of(error)}): run it again, or undo it with --undo"
        ) from error
    if moved is None:
        click.echo("the ledger has already been moved there")
    else:
        click.echo(
            f"moved to {new.name}: {console.counted(moved.records, 'record')} of bids,"
            f" {console.counted(moved.allowances, 'allowance')} of campaigns,"
            f" {console.counted(moved.impressions, 'capped impression')},"
            f" {console.counted(moved.events, 'request')} with server events"
        )
    click.echo(
        "now restart serve and the drain with its SNAPBID_REDIS_URL, without SNAPBID_LEDGER_SHARDS"
    )
