"""Removes what is over: counters of past days, and what was absorbed of them."""

import datetime
from collections.abc import Sequence
from typing import Final

import asyncpg

from snapbid.drain.counters import ShardCounters
from snapbid.ledger.bids.segment import ShardState
from snapbid.warehouse import absorb
from snapbid.warehouse.absorb import CounterValue

KEPT_DAYS: Final = 3  # a day's counters stay in Redis until so many days later
RETIRED_DAYS: Final = 35  # after which lost Redis data is taken to be lost for good


async def tidy(
    connection: asyncpg.Connection,
    shard: ShardCounters,
    state: ShardState,
    current: int,
    today: datetime.date,
) -> None:
    """Remove the counters of days that are over, and what was absorbed of them.

    The counters go first, and their generation with them: should the day be counted in again (a
    notice from a spool, say), that is absorbed as new, whether the second step was reached or not.
    `current` is the source of the segment that is counted in.
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
    """Whether the segment has counters left."""

    async def check(counters: Sequence[CounterValue]) -> list[int]:
        return await absorb.differing(connection, source, counters)

    over = today - datetime.timedelta(days=KEPT_DAYS - 1)
    days = await absorb.days_before(connection, source, datetime.date.max)
    is_left = False
    for day in days:
        generation = None
        if day < over:
            generation = await shard.remove_day(segment, day, epoch, check)
        if generation is None:
            is_left = True
        else:
            await absorb.forget(connection, source, day, generation)
    return is_left
