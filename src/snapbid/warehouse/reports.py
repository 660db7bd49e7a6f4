"""The figures of an SSP family by UTC day, for the daily report (contract 5 and 6)."""

from datetime import date
from typing import Final, NamedTuple, TypeAlias

import asyncpg

POOL_SIZE: Final = 4  # connections of one worker
TIMEOUT_S: Final = 2.0  # for a connection, and again for the answer

# Bids and wins are stored by descriptor, impressions by its canonical id of that day: a day is
# reported for the family of that day, whatever the registry says now (ssp_family). The union
# precedes the sums, so that a day with only one of the kinds is included. Several rows may have the
# same day and key.
_DAYS: Final = """
select day, sum(bids) as bids, sum(wins) as wins, sum(win_cpm_micros) as win_cpm_micros,
       sum(imps) as imps
from (
    select b.day, b.bids, b.wins, b.win_cpm_micros, 0 as imps
    from ssp_family f join bid_daily b on b.descriptor = f.descriptor
      and b.day between f.since and f.until
    where f.canonical = $1 and b.day between $2::date and $3::date
      and b.descriptor = any(array(select descriptor from ssp_family where canonical = $1))
    union all
    select day, 0, 0, 0, imps from impression_daily
    where ssp = $1 and day between $2::date and $3::date
) as united
group by day
"""


class DayFigures(NamedTuple):
    """The figures of a day; `win_cpm_micros` is the exact sum of the wins' CPMs in micro-USD."""

    bids: int
    wins: int
    win_cpm_micros: int
    imps: int


FiguresByDay: TypeAlias = dict[date, DayFigures]


async def open_pool(dsn: str) -> asyncpg.Pool:
    """Open a pool for reports alone, so that no other work delays them.

    It connects on first use.
    """
    return await asyncpg.create_pool(dsn, min_size=0, max_size=POOL_SIZE, timeout=TIMEOUT_S)


async def fetch_days(pool: asyncpg.Pool, ssp: str, first: date, last: date) -> FiguresByDay:
    """Fetch the figures of a canonical id's family for each day from `first` to `last`.

    Days without figures are left out. Raises asyncpg's errors, and OSError or TimeoutError if the
    warehouse is unreachable.
    """
    async with pool.acquire(timeout=TIMEOUT_S) as connection:
        return await fetch(connection, ssp, first, last)


async def fetch(connection: asyncpg.Connection, ssp: str, first: date, last: date) -> FiguresByDay:
    """Fetch the days from `first` to `last` for which a canonical id's family has figures."""
    rows = await connection.fetch(_DAYS, ssp, first, last, timeout=TIMEOUT_S)
    return {row["day"]: DayFigures(*map(int, list(row)[1:])) for row in rows}
