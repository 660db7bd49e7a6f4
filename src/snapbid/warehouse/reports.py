"""What the daily report reads: the figures of an SSP family by UTC day (contract 5, 6)."""

from datetime import date
from typing import Final, NamedTuple, TypeAlias

import asyncpg

POOL_SIZE: Final = 4  # connections of one worker
TIMEOUT_S: Final = 2.0  # for a connection, and again for the answer

# Bids and wins are stored under each descriptor of the family, impressions under its canonical id.
# United before they are summed, so that a day with one kind alone is there too. Several rows may
# hold the same day and key.
_DAYS: Final = """
select day, sum(bids) as bids, sum(wins) as wins, sum(win_cpm_micros) as win_cpm_micros,
       sum(imps) as imps
from (
    select day, bids, wins, win_cpm_micros, 0 as imps from bid_daily
    where descriptor in (select descriptor from ssp where canonical = $1)
      and day between $2 and $3
    union all
    select day, 0, 0, 0, imps from impression_daily
    where ssp = $1 and day between $2 and $3
) as united
group by day
"""


class Day(NamedTuple):
    """The figures of a day; `win_cpm_micros` is the exact sum of the wins' CPM in micro-USD."""

    bids: int
    wins: int
    win_cpm_micros: int
    imps: int


Days: TypeAlias = dict[date, Day]


async def open_pool(dsn: str) -> asyncpg.Pool:
    """A pool of the reports' own, so that they never wait for others; connects at first use."""
    return await asyncpg.create_pool(dsn, min_size=0, max_size=POOL_SIZE, timeout=TIMEOUT_S)


async def fetch_days(pool: asyncpg.Pool, ssp: str, first: date, last: date) -> Days:
    """The days from `first` to `last` on which the family of a canonical id has any figures.

    Raises asyncpg's errors, and OSError or TimeoutError where the warehouse is away.
    """
    async with pool.acquire(timeout=TIMEOUT_S) as connection:
        rows = await connection.fetch(_DAYS, ssp, first, last, timeout=TIMEOUT_S)
    return {row["day"]: Day(*map(int, list(row)[1:])) for row in rows}
