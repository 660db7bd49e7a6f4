"""The warehouse's records of its own ledger (contract 5, point 3).

These are the warehouse's identity, the data sets that form its ledger, and the last batch of
counters absorbed from each. A restored backup has older records, which differ from the ledger's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from snapbid.warehouse.unavailable import present


class Batch(NamedTuple):
    """A batch of counters; `segment` is the run that was current when it was read."""

    number: int
    segment: str


class Step(NamedTuple):
    """A shard's last absorbed batch, and the next one, which will be recorded in its place."""

    epoch: str
    shard: int
    last: Batch
    next: Batch


class Owner(NamedTuple):
    """The warehouse's records of a shard of its ledger."""

    warehouse: str  # its own id
    epoch: str | None  # the data set recorded for the shard, None if there is none
    absorbed: Batch | None  # from the data set asked for; None if it is new


async def identity(connection: asyncpg.Connection) -> str:
    """Fetch the warehouse's id, which its backups share."""
    id = await connection.fetchval("select id from warehouse_identity")
    return str(present(id, "warehouse_identity"))


async def name_of(connection: asyncpg.Connection, table: str) -> str:
    """Fetch an identifier of a table's data; it changes if the data is restored or rewritten."""
    return str(
        await connection.fetchval(
            "select format('%s/%s/%s/%s', system_identifier, timeline_id, oid,"
            " pg_relation_filenode($1::text::regclass))"
            " from pg_control_system(), pg_control_checkpoint(), pg_database"
            " where datname = current_database()",
            table,
        )
    )


async def owner(connection: asyncpg.Connection, epoch: str, shard: int) -> Owner:
    """Fetch the warehouse's records of a shard.

    The last absorbed batch is returned only if it came from the data set `epoch`.
    """
    row = await connection.fetchrow(
        "select w.id, (select l.epoch from ledger_shard l where l.shard = $2), f.batch, f.segment"
        " from warehouse_identity w left join drain_fence f on f.epoch = $1 and f.shard = $2",
        epoch,
        shard,
    )
    row = present(row, "warehouse_identity")
    absorbed = None if row["batch"] is None else Batch(row["batch"], row["segment"])
    return Owner(str(row[0]), row[1], absorbed)


async def own_ledger(connection: asyncpg.Connection) -> list[str]:
    """Fetch the epochs of the warehouse's own ledger, by shard; empty if it has no ledger yet."""
    rows = await connection.fetch("select epoch from ledger_shard order by shard")
    return [row["epoch"] for row in rows]


async def set_ledger(connection: asyncpg.Connection, epochs: Sequence[str]) -> None:
    """Record these data sets as the warehouse's own ledger.

    Concurrent calls lock the rows in the same order, so the records never mix two ledgers.
    """
    await connection.execute(
        "with gone as (delete from ledger_shard where shard >= cardinality($1::text[]))"
        " insert into ledger_shard select position - 1, epoch"
        " from unnest($1::text[]) with ordinality as l (epoch, position) order by position"
        " on conflict (shard) do update set epoch = excluded.epoch",
        list(epochs),
    )


async def set_shard(connection: asyncpg.Connection, shard: int, epoch: str) -> None:
    """Record the epoch of a shard, unless an epoch is already recorded."""
    await connection.execute(
        "update ledger_shard set epoch = $2 where shard = $1 and epoch = ''", shard, epoch
    )


async def former(connection: asyncpg.Connection, epochs: Sequence[str]) -> set[int]:
    """Return the numbers of the shards from whose data sets the warehouse has absorbed counters.

    `epochs`: the shards' data sets, by shard number.
    """
    rows = await connection.fetch(
        "select shard from drain_fence"
        " join unnest($1::text[]) with ordinality as l (epoch, position) using (epoch)"
        " where shard = position - 1",
        list(epochs),
    )
    return {row["shard"] for row in rows}


async def absorbed_batch(connection: asyncpg.Connection, epoch: str, shard: int) -> Batch:
    """Fetch the last batch absorbed from a data set; its number is 0 if there was none yet."""
    await connection.execute(
        "insert into drain_fence (epoch, shard) values ($1, $2) on conflict do nothing",
        epoch,
        shard,
    )
    row = await connection.fetchrow(
        "select batch, segment from drain_fence where epoch = $1 and shard = $2", epoch, shard
    )
    return Batch(*row)


async def lacking(connection: asyncpg.Connection, batches: Sequence[tuple[str, int]]) -> list[int]:
    """Return the shards of a former ledger whose `batches` have not been absorbed.

    `batches`: the data set and the number of a batch of each shard, by shard number.
    """
    rows = await connection.fetch(
        "select position - 1 as shard from unnest($1::text[], $2::bigint[]) with ordinality"
        " as l (epoch, batch, position) left join drain_fence f"
        " on f.epoch = l.epoch and f.shard = position - 1"
        " where coalesce(f.batch, 0) < l.batch order by 1",
        [epoch for epoch, _ in batches],
        [number for _, number in batches],
    )
    return [row["shard"] for row in rows]


async def step(connection: asyncpg.Connection, steps: Sequence[Step]) -> bool:
    """Record the `next` batch of each step as absorbed; return whether all could be recorded.

    The batch on record must be the step's `last` or, on a repeat, its `next`. If it is any other,
    the warehouse's data was replaced, and the caller must roll back.
    """
    done = await connection.execute(
        "update drain_fence f set batch = s.number, segment = s.segment"
        " from unnest($1::text[], $2::int[], $3::bigint[], $4::text[], $5::bigint[], $6::text[])"
        " as s (epoch, shard, last_number, last_segment, number, segment)"
        " where f.epoch = s.epoch and f.shard = s.shard and (f.batch, f.segment) in"
        " ((s.last_number, s.last_segment), (s.number, s.segment))",
        *zip(*((*each[:2], *each.last, *each.next) for each in steps), strict=True),
    )
    return bool(done == f"UPDATE {len(steps)}")


async def outdate(
    connection: asyncpg.Connection, epoch: str, shard: int, segments: Sequence[str]
) -> None:
    """Record that the ledger's data for these runs was replaced with an older copy.

    From now on, a counter of these runs adds only its excess over the absorbed value, and nothing
    for days whose absorbed values were dropped.
    """
    await connection.execute(
        "update drain_source set outdated = true, retired_on = greatest(retired_on, forgotten_to)"
        " where epoch = $1 and shard = $2 and segment = any($3)",
        epoch,
        shard,
        list(segments),
    )


async def close_forgotten(
    connection: asyncpg.Connection, epoch: str, shard: int, current: str
) -> None:
    """Have counters of earlier runs add nothing for days up to the last whose values were dropped.

    `current`: the current run, which may still count on these days.
    """
    await connection.execute(
        "update drain_source set retired_on = greatest(retired_on, forgotten_to)"
        " where epoch = $1 and shard = $2 and segment <> $3",
        epoch,
        shard,
        current,
    )


async def spend_of_day(connection: asyncpg.Connection, day: int) -> dict[int, tuple[int, int]]:
    """Fetch the spend of campaigns, by number: (in total, on the day), in nano-USD.

    Campaigns without spend are left out. `day` counts from 1970-01-01. Spend is the exact sum of
    the CPMs of counted wins.
    """
    rows = await connection.fetch(
        "select n.number, sum(t.win_cpm_micros),"
        " coalesce(sum(t.win_cpm_micros) filter (where t.day = date '1970-01-01' + $1::int), 0)"
        " from campaign_daily t join campaign_number n on n.id = t.campaign"
        " where t.counted group by n.number having sum(t.win_cpm_micros) > 0",
        day,
    )
    return {number: (int(total), int(today)) for number, total, today in rows}
