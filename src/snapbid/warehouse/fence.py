"""What the warehouse knows of the ledger that belongs to it (contract 5, point 3).

Three things: the identity of the warehouse, which data sets are its ledger, and the last batch of
counters that it absorbed of each. A restored backup has that of its time, and so differs from what
the ledger remembers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg


class Batch(NamedTuple):
    """A batch of counters: `segment` was counted in when it was read."""

    number: int
    segment: str


async def identity(connection: asyncpg.Connection) -> str:
    """Fetch the id of the warehouse, which its backups share."""
    return str(await connection.fetchval("select id from warehouse_identity"))


async def owner(connection: asyncpg.Connection, shard: int) -> tuple[str, str | None]:
    """Fetch the id of the warehouse, and its own data set of a shard; None where it has no such."""
    row = await connection.fetchrow(
        "select id, (select epoch from ledger_shard where shard = $1) from warehouse_identity",
        shard,
    )
    return str(row[0]), row[1]


async def own_ledger(connection: asyncpg.Connection) -> list[str]:
    """Fetch the data sets of the warehouse's own ledger by shard, none where it has none yet."""
    rows = await connection.fetch("select epoch from ledger_shard order by shard")
    return [row["epoch"] for row in rows]


async def set_ledger(connection: asyncpg.Connection, epochs: Sequence[str]) -> None:
    """Have these data sets be the warehouse's own ledger."""
    async with connection.transaction():
        await connection.execute("lock table ledger_shard in exclusive mode")
        await connection.execute("delete from ledger_shard")
        await connection.execute(
            "insert into ledger_shard select place - 1, epoch"
            " from unnest($1::text[]) with ordinality as l (epoch, place)",
            list(epochs),
        )


async def set_shard(connection: asyncpg.Connection, shard: int, epoch: str) -> None:
    """Have this data set be that of a shard which had none yet."""
    await connection.execute(
        "update ledger_shard set epoch = $2 where shard = $1 and epoch = ''", shard, epoch
    )


async def former(connection: asyncpg.Connection, epochs: Sequence[str]) -> set[int]:
    """Fetch the shards of which the warehouse has absorbed these data sets, its own ones too."""
    rows = await connection.fetch(
        "select shard from drain_fence"
        " join unnest($1::text[]) with ordinality as l (epoch, place) using (epoch)"
        " where shard = place - 1",
        list(epochs),
    )
    return {row["shard"] for row in rows}


async def absorbed_batch(connection: asyncpg.Connection, epoch: str, shard: int) -> Batch:
    """Fetch the last batch that was absorbed of a data set, number 0 for a new one."""
    await connection.execute(
        "insert into drain_fence (epoch, shard) values ($1, $2) on conflict do nothing",
        epoch,
        shard,
    )
    row = await connection.fetchrow(
        "select batch, segment from drain_fence where epoch = $1 and shard = $2", epoch, shard
    )
    return Batch(*row)


async def set_batch(connection: asyncpg.Connection, epoch: str, shard: int, batch: Batch) -> None:
    """Go on after this batch: it added nothing, or the ledger still names all that it had."""
    await connection.execute(
        "update drain_fence set batch = $3, segment = $4 where epoch = $1 and shard = $2",
        epoch,
        shard,
        *batch,
    )


async def outdate(
    connection: asyncpg.Connection, epoch: str, shard: int, segments: Sequence[str]
) -> None:
    """Record that the ledger's data of these segments was replaced by an older copy.

    Of them only what is more than was absorbed is added from now on, and nothing of the days whose
    counters had been absorbed and forgotten.
    """
    await connection.execute(
        "update drain_source set outdated = true, retired_on = greatest(retired_on, forgotten_to)"
        " where epoch = $1 and shard = $2 and segment = any($3)",
        epoch,
        shard,
        list(segments),
    )


async def spend_of_day(connection: asyncpg.Connection, day: int) -> dict[int, tuple[int, int]]:
    """Fetch what campaigns, by number, have spent in all and on a day (since 1970-01-01).

    Nano-USD, of counted rows: as the CPMs of wins add up.
    """
    rows = await connection.fetch(
        "select n.number, sum(t.win_cpm_micros),"
        " coalesce(sum(t.win_cpm_micros) filter (where t.day = date '1970-01-01' + $1::int), 0)"
        " from campaign_daily t join campaign_number n on n.id = t.campaign"
        " where t.counted group by n.number having sum(t.win_cpm_micros) > 0",
        day,
    )
    return {number: (int(total), int(today)) for number, total, today in rows}
