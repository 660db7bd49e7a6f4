"""`snapbid forget`: remove a person's data, and store none of it in future."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    import asyncpg

    from snapbid.drain.forgetting import Forgotten
    from snapbid.ledger.bids.persons import ErasedUsers

TAKEN_UP_S = 3.0  # for all workers to learn the suppressed ids


@click.command(
    cls=ShellCommand,
    examples=[
        "snapbid forget --id user-81 --id click-4711 --dry-run",
        "snapbid forget --id user-81 --product demo-casino > receipt.json",
    ],
)
@click.option("--id", "ids", multiple=True, required=True, metavar="ID",
              help="A user, device or click id, an email address or phone number (+…), plain or as "
              "its SHA-256, or an eid as `SOURCE ID`; repeatable.")  # fmt: skip
@click.option("--product", "products", multiple=True, metavar="PRODUCT",
              help="A product that has these ids as user ids; repeatable.")  # fmt: skip
@click.option("--ssp", "ssps", multiple=True, metavar="SSP",
              help="An SSP that sends these ids as user.id; repeatable.")  # fmt: skip
@click.option("--everywhere", is_flag=True, help="The ids mean the same person at all products "
              "and SSPs.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only count what would be removed.")
@click.option("--yes", is_flag=True, help="Proceed even if events of several users are affected, "
              "or a self-exclusion ends.")  # fmt: skip
def forget(
    ids: tuple[str, ...],
    products: tuple[str, ...],
    ssps: tuple[str, ...],
    everywhere: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Forget a person: remove all data stored under any of the ids, and store no more.

    Server events are emptied but still count; conflicting payloads, the last click, audience
    memberships, frequency caps and the user of open bids are removed. Keyed hashes of the ids are
    kept, so that later events of this person are stored empty, and frequency caps do not recognise
    the user. Prints a receipt as JSON.

    A user id identifies a person only within a product or at an SSP. Name the product or SSP with
    --product or --ssp, unless only one of all products and SSPs knows the id. Device ids, click ids
    and hashes are forgotten everywhere. An email address, or a phone number with its `+`, is also
    forgotten under the SHA-256 that events contain; the receipt counts these ids as `hashed`.
    """
    import asyncio
    import secrets

    from redis.exceptions import RedisError

    from snapbid.drain import forgetting
    from snapbid.ledger.bids import persons as users
    from snapbid.redisclient.connection import Connections
    from snapbid.warehouse import audit

    if everywhere and (products or ssps):
        raise console.WrongInput("--everywhere cannot be combined with --product or --ssp")
    try:
        forgetting.check(ids)
    except forgetting.ForgetError as error:
        raise console.WrongInput(str(error)) from error
    settings = console.check_ledger()
    redis_url, shards = settings.redis_url, settings.shards
    asked = forgetting.Asked(ids, products, ssps, everywhere)
    receipt: dict[str, Any] = {"receipt": secrets.token_hex(8), "at": datetime.now(UTC)}

    async def erase_users(names: list[str]) -> "ErasedUsers":
        connections = Connections(redis_url, settings.redis_replicas)
        return await users.erase(connections, shards, names, dry_run=dry_run)

    async def erase_stored(connection: "asyncpg.Connection") -> "Forgotten":
        transaction = connection.transaction()
        await transaction.start()
        try:
            done = await forgetting.forget(connection, asked, consents=yes or dry_run)
        except BaseException:
            await transaction.rollback()
            raise
        await (transaction.rollback() if dry_run else transaction.commit())
        return done

    async def work(connection: "asyncpg.Connection") -> "Forgotten":
        done = await erase_stored(connection)
        if not dry_run:
            await asyncio.sleep(TAKEN_UP_S)
        removed = done.removed | (await erase_users(done.caps))._asdict()
        if not dry_run:
            detail = {name: [count, 0] for name, count in removed.items()}
            await audit.record(connection, "person", receipt["receipt"], "forgotten", detail)
        return done._replace(removed=removed)

    try:
        done = console.in_warehouse(work)
    except forgetting.ConsentError as error:
        raise console.Refused(f"{error}\nNothing was removed: pass --yes to proceed.") from error
    except forgetting.ForgetError as error:
        raise console.Refused(str(error)) from error
    except (RedisError, OSError) as error:
        raise console.redis_failed(error, redis_url) from error
    if not done.places:
        click.echo(
            "no id belongs to a known user: they are forgotten as ids of devices, clicks and bid"
            " requests, but as user ids only with --product or --ssp",
            err=True,
        )
    receipt |= {"ids": len(ids), "hashed": done.hashed}
    receipt |= {"dryRun": dry_run, "suppressed": not dry_run}
    receipt |= {"usersOf": done.places, "users": done.users, "exclusionsEnded": done.excluded}
    receipt["removed"] = done.removed
    console.print_object(receipt)
