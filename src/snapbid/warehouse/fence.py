"""What the warehouse knows of the ledger that belongs to it (contract 5, point 3).

Two things: the identity of the warehouse, and the last batch of counters that it absorbed of each
data set. A restored backup has that of its time, and so differs from what the ledger remembers.
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
