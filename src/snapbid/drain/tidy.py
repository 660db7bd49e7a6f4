"""Remove counters of past days from Redis, and their absorbed values from the warehouse."""

import datetime
from collections.abc import Sequence
from typing import Final

import asyncpg

from snapbid.drain.counters import ShardCounters
from snapbid.ledger.bids.segment import ShardState
from snapbid.warehouse import absorb
from snapbid.warehouse.absorb import CounterValue

KEPT_DAYS: Final = 3  # days for which counters stay in Redis, the first included
RETIRED_DAYS: Final = 35  # days after which lost data of Redis counts as lost for good


async def tidy(
    connection: asyncpg.Connection,
    shard: ShardCounters,
    state: ShardState,
    current: int,
    today: datetime.date,
) -> None:
    """Remove the counters of past days, and their absorbed values.

    The counters are removed first. Later counts on these days (from a spooled notice, for example)
    belong to another generation, so they are absorbed as new, even if the absorbed values are still
    there. `current`: the source of the current run.
    """
    empty = set(await shard.fetch_segments()) - {state.segment}
    sources = await absorb.sources_of(connection, state.epoch, shard.number)
    for segment, source in sources.items():
        if await _tidy_segment(connection, shard, state.epoch, segment, source, today):
            empty.discard(segment)
    if empty:
        await shard.drop_segments(empty)
    unseen_since = today - datetime.timedelta(days=RETIRED_DAYS)
    await absorb.retire(connection, current, unseen_since, today)


async def _tidy_segment(
    connection: asyncpg.Connection,
    shard: ShardCounters,
    epoch: str,
    segment: str,
    source: int,
    today: datetime.date,
) -> bool:
    """Remove the counters of a run's past days; return whether the run has counters left.

    `source`: the number that the warehouse gave to the run.
    """

    async def check(counters: Sequence[CounterValue]) -> list[int]:
        return await absorb.differing(connection, source, counters)

    over = today - datetime.timedelta(days=KEPT_DAYS - 1)
    is_left = False
    for day in await absorb.fetch_days(connection, source):
        generation = None
        if day < over:
            generation = await shard.remove_day(segment, day, epoch, check)
        if generation is None:
            is_left = True
        else:
            await absorb.forget(connection, source, day, generation)
    return is_left
