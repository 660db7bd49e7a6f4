"""SSPs' traffic by day, for their diagnosis (contract 11): the drain stores it, workers read it."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

import asyncpg
import msgspec

# Request statistics of a day only grow, so an older copy of Redis' data must not lower them.
_STORE: Final = """
insert into request_daily as t (day, descriptor, source, answers, counts, examples)
select i.day, s.descriptor, $1, i.answers, i.counts, i.examples
from unnest($2::int[], $3::date[], $4::bigint[], $5::jsonb[], $6::jsonb[])
    as i (number, day, answers, counts, examples)
join ssp_number s on s.number = i.number
on conflict (descriptor, day, source) do update set
    answers = excluded.answers, counts = excluded.counts, examples = excluded.examples
where t.answers <= excluded.answers
"""
# As in the report, a day belongs to the descriptor's family on that day: nobody sees another's.
_OF_FAMILY: Final = """
join ssp_family f on f.descriptor = t.descriptor and f.canonical = $1
    and t.day between f.since and f.until
where t.day between $2::date and $3::date
    and t.descriptor = any(array(select descriptor from ssp_family where canonical = $1))
"""
_REQUESTS: Final = f"""
select t.day, t.descriptor, t.counts::text, t.examples::text from request_daily t {_OF_FAMILY}
"""
# One row for each kind of count, day and descriptor; impressions are under the canonical id.
_NOTICES: Final = f"""
select t.day, t.descriptor, 'bids' as kind, sum(t.bids)::bigint as times
from bid_daily t {_OF_FAMILY} group by 1, 2
union all
select t.day, t.descriptor, 'win', sum(t.wins)::bigint from bid_daily t {_OF_FAMILY} group by 1, 2
union all
select day, ssp, 'billing', sum(imps)::bigint from impression_daily
where ssp = $1 and day between $2::date and $3::date group by 1, 2
union all
select t.day, t.descriptor, case t.reason when -1 then 'loss_unsaid' else 'loss' end,
    sum(t.losses)::bigint from loss_daily t {_OF_FAMILY} group by 1, 2, 3
union all
select t.day, t.descriptor, t.anomaly, sum(t.times)::bigint
from anomaly_daily t {_OF_FAMILY} group by 1, 2, 3
"""


class StoredDay(NamedTuple):
    """An SSP's requests on one day, as the drain stores them."""

    number: int  # the SSP's
    day: date
    answers: int  # of any status
    counts: Mapping[str, int]
    examples: Mapping[str, str]


class RequestDay(NamedTuple):
    """A descriptor's requests on one day: counts by name, and an example for each broken rule."""

    day: date
    descriptor: str
    counts: dict[str, int]
    examples: dict[str, str]


class NoticeDay(NamedTuple):
    """The number of a descriptor's bids, notices or anomalies of one kind on one day."""

    day: date
    descriptor: str
    kind: str  # bids, win, billing, loss, loss_unsaid (no reason), or an anomaly's name
    times: int


class DayHistory(NamedTuple):
    """An SSP family's requests and notices on each day of a period."""

    requests: list[RequestDay]
    notices: list[NoticeDay]


async def store(connection: asyncpg.Connection, source: str, days: Sequence[StoredDay]) -> None:
    """Store days as counted in the data set `source`, replacing earlier counts from it.

    A day with fewer answers than are stored for it is ignored, since its counts are older.
    """
    encode = msgspec.json.encode
    columns = [
        [day.number for day in days],
        [day.day for day in days],
        [day.answers for day in days],
        [encode(day.counts).decode() for day in days],
        [encode(day.examples).decode() for day in days],
    ]
    await connection.execute(_STORE, source, *columns)


async def fetch(
    pool: asyncpg.Pool,
    ssp: str,
    days: tuple[date, date],
    timeout_s: float,
) -> DayHistory:
    """Fetch the requests and notices of a canonical id's family for each day of a period.

    `days`: the first and the last day. Raises asyncpg's errors, and OSError or TimeoutError if the
    warehouse is unreachable.
    """
    async with pool.acquire(timeout=timeout_s) as connection:
        requests = await connection.fetch(_REQUESTS, ssp, *days, timeout=timeout_s)
        notices = await connection.fetch(_NOTICES, ssp, *days, timeout=timeout_s)
    decode = msgspec.json.decode
    return DayHistory(
        [
            RequestDay(
                row["day"],
                row["descriptor"],
                decode(row["counts"], type=dict[str, int]),
                decode(row["examples"], type=dict[str, str]),
            )
            for row in requests
        ],
        [NoticeDay(*row) for row in notices],
    )
