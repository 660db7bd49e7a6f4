"""What the warehouse knows of the ledger that belongs to it (contract 5, point 3).

Three things: the identity of the warehouse, the last batch of counters that it absorbed of each
data set, and the highest numbers of SSPs and campaigns that the ledger has been told. A restored
backup has the figures of its time, and so differs from what the ledger remembers.
"""

from typing import NamedTuple

import asyncpg


class Numbers(NamedTuple):
    """The highest numbers of SSPs and of campaigns."""

    ssps: int
    campaigns: int


async def identity(connection: asyncpg.Connection) -> str:
    """Fetch the id of the warehouse, which its backups share."""
    return str(await connection.fetchval("select id from warehouse_identity"))


async def absorbed_batch(connection: asyncpg.Connection, epoch: str, shard: int) -> int:
    """Fetch the number of the last batch that was absorbed of a data set, 0 for a new one."""
    await connection.execute(
        "insert into drain_fence (epoch, shard) values ($1, $2) on conflict do nothing",
        epoch,
        shard,
    )
    return int(
        await connection.fetchval(
            "select batch from drain_fence where epoch = $1 and shard = $2", epoch, shard
        )
    )


async def set_batch(connection: asyncpg.Connection, epoch: str, shard: int, batch: int) -> None:
    """Continue from the ledger's batch number if the warehouse is the older of the two."""
    await connection.execute(
        "update drain_fence set batch = $3 where epoch = $1 and shard = $2", epoch, shard, batch
    )


async def outdate(connection: asyncpg.Connection, epoch: str, shard: int, segment: str) -> None:
    """Record that a data set was replaced by an older copy of itself, before `segment` began.

    From its other segments only what is more than was absorbed is added from now on, and nothing
    of the days whose counters had been absorbed and forgotten.
    """
    await connection.execute(
        "update drain_source set outdated = true, retired_on = greatest(retired_on, forgotten_to)"
        " where epoch = $1 and shard = $2 and segment <> $3",
        epoch,
        shard,
        segment,
    )


async def spend_of_day(connection: asyncpg.Connection, day: int) -> dict[int, tuple[int, int]]:
    """Fetch what campaigns, by number, have spent in all and on a day (since 1970-01-01).

    Nano-USD, of counted rows: as the CPMs of wins add up.
    """
    rows = await connection.fetch(
        "select n.number, sum(t.win_cpm_micros)::bigint,"
        " coalesce(sum(t.win_cpm_micros) filter (where t.day = date '1970-01-01' + $1::int), 0)"
        "::bigint from campaign_daily t join campaign_number n on n.id = t.campaign"
        " where t.counted group by n.number having sum(t.win_cpm_micros) > 0",
        day,
    )
    return {number: (total, today) for number, total, today in rows}


# -- numbers ---------------------------------------------------------------------------------------


async def highest_numbers(connection: asyncpg.Connection) -> Numbers:
    """Fetch the highest numbers assigned."""
    return Numbers(
        *await connection.fetchrow(
            "select coalesce((select max(number) from ssp_number), 0),"
            " coalesce((select max(number) from campaign_number), 0)"
        )
    )


async def told_numbers(connection: asyncpg.Connection) -> Numbers:
    """Fetch the numbers that the ledger was told, as far as this warehouse remembers."""
    return Numbers(
        *await connection.fetchrow(
            "select coalesce(ssps, 0), coalesce(campaigns, 0) from warehouse_identity"
        )
    )


async def tell_numbers(connection: asyncpg.Connection, numbers: Numbers) -> None:
    """Record the numbers that the ledger is about to receive."""
    await connection.execute("update warehouse_identity set ssps = $1, campaigns = $2", *numbers)


async def renumber(connection: asyncpg.Connection, ledger: Numbers) -> list[str]:
    """Give no number that the ledger knows from before the warehouse went back to a backup.

    Those that were given since then are given anew, above the highest that the ledger knows. Give
    the campaigns and SSPs that got another number.
    """
    async with connection.transaction():
        await connection.execute("select catalog_lock()")
        told = await connection.fetchrow("select ssps, campaigns from warehouse_identity")
        given = await highest_numbers(connection)
        renumbered = []
        for table, name, highest, known in (
            ("ssp_number", "descriptor", ledger.ssps, told["ssps"]),
            ("campaign_number", "id", ledger.campaigns, told["campaigns"]),
        ):
            most = max(highest, given.ssps if table == "ssp_number" else given.campaigns, 1)
            await connection.execute(
                "select setval(pg_get_serial_sequence($1, 'number'), $2::bigint)", table, most
            )
            rows = await connection.fetch(
                f"update {table} set number = default where number > $1 and number <= $2"
                f" returning {name}",
                highest if known is None else known,
                highest,
            )
            renumbered += [row[name] for row in rows]
        # So that whoever publishes campaigns reads them again.
        await connection.execute(
            "update campaign set document = document where id = any($1)", renumbered
        )
        await connection.execute("select pg_notify('snapbid_catalog', '')")
    return renumbered
