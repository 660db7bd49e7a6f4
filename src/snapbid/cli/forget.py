"""`snapbid forget`: remove a person's data, and accept no more of it."""

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from snapbid.base.settings import load
from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    import asyncpg

    from snapbid.ledger.bids.persons import ErasedUsers

TAKEN_UP_S = 3.0  # until all workers know the suppressed ids


class _DryRun(Exception):
    """Rolls back the transaction of a dry run."""


@click.command(
    cls=ShellCommand,
    examples=[
        "snapbid forget --id user-81 --id click-4711 --dry-run",
        "snapbid forget --id user-81 > receipt.json",
    ],
)
@click.option("--id", "ids", multiple=True, required=True, metavar="ID",
              help="A user, device or click id, a hashed address or number, or `SOURCE ID` of an "
              "eid; repeatable.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only count what would be removed.")
def forget(ids: tuple[str, ...], dry_run: bool) -> None:
    """Forget a person: remove all data stored under any of the ids, and accept no more of it.

    Server events are emptied but still count; conflicting payloads, the last click, memberships of
    audiences, frequency caps and the user of open bids are removed. Keyed hashes of the ids are
    kept: later events of this person are stored empty, and frequency caps do not recognise the
    user. Prints a receipt as JSON.
    """
    import asyncio
    import secrets

    import msgspec
    from redis.exceptions import RedisError

    from snapbid.base import suppression
    from snapbid.ledger.bids import persons as users
    from snapbid.redisclient.connection import Connections
    from snapbid.warehouse import audiences, audit, persons

    if any(not id or len(id) > 1024 for id in ids):
        raise console.WrongInput("--id must have 1 to 1024 characters")
    settings = console.check_ledger(console.with_stores(load(os.environ)))
    redis_url, shards = settings.redis_url, settings.shards
    known = {spelling for id in ids for spelling in (id, suppression.normal(id))}
    names = sorted({name for id in known for name in suppression.user_names(id)})
    receipt: dict[str, Any] = {"receipt": secrets.token_hex(8), "at": datetime.now(UTC)}

    async def erase_users() -> "ErasedUsers":
        connections = Connections(redis_url, settings.redis_replicas)
        return await users.erase(connections, shards, names, dry_run=dry_run)

    async def erase_stored(
        connection: "asyncpg.Connection", users: set[int], members: set[int]
    ) -> dict[str, int]:
        removed = {}
        try:
            async with connection.transaction():
                removed = (await persons.erase(connection, sorted(known)))._asdict()
                removed["persons"] = await audiences.erase(connection, users, members)
                if dry_run:
                    raise _DryRun
        except _DryRun:
            pass
        return removed

    async def work(connection: "asyncpg.Connection") -> dict[str, int]:
        users, members = await _hashes(connection, known)
        if not dry_run:
            key = (await persons.fetch_suppression(connection)).key
            kept = [*names, *map(suppression.event_name, known)]
            hashes = {suppression.hash_of(key, name) for name in kept}
            await persons.suppress(connection, hashes, members)
        removed = await erase_stored(connection, users, members)
        if not dry_run:
            await asyncio.sleep(TAKEN_UP_S)
        removed |= (await erase_users())._asdict()
        if not dry_run:
            detail = {name: [count, 0] for name, count in removed.items()}
            await audit.record(connection, "person", receipt["receipt"], "forgotten", detail)
        return removed

    try:
        removed = console.in_warehouse(work)
    except (RedisError, OSError) as error:
        raise console.redis_failed(error, redis_url) from error
    receipt |= {"ids": len(ids), "dryRun": dry_run, "suppressed": not dry_run, "removed": removed}
    click.echo(msgspec.json.format(msgspec.json.encode(receipt), indent=2).decode())


async def _hashes(connection: "asyncpg.Connection", ids: "set[str]") -> "tuple[set[int], set[int]]":
    """Return the hashes of persons and of ids in bid requests that any of the ids may be."""
    from snapbid.campaigns.persons import PersonKey
    from snapbid.warehouse import persons, products, registry

    key = PersonKey((await persons.fetch_suppression(connection)).key)
    named = await products.fetch_names(connection)
    families = {canonical for canonical, _ in (await registry.fetch_numbered(connection)).values()}
    users = {of(product, id) for of in (key.user, key.visitor) for product in named for id in ids}
    members = {key.member(kind, id) for kind in ("ifa", "buyeruid", "eid") for id in ids}
    members |= {key.member("user", id, family) for family in families for id in ids}
    pairs = (id.partition(" ") for id in ids)
    return users, members | {key.member("eid", id, source) for source, _, id in pairs if id}
