"""Absorb the ledger's counters into the report tables, in rows marked `counted` (contract 5).

Counters in Redis are cumulative. The absorbed value of each is kept beside the report tables, and
both change in one statement, so absorbing the same counters again changes nothing.

A source is the counters of one run of Redis in a shard's data set. When a bid is rolled back, its
counters decrease, and so do the figures in the rows. But once a source's data is replaced with an
older copy, the source is outdated: from then on, a value below the absorbed one changes nothing.

An impression counts for the family to which its SSP belongs on that day (ssp_family).

The changes of several sources are summed first, so each row of the report tables is written once.
"""

import datetime
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Final, NamedTuple

import asyncpg
import msgspec


class CounterValue(NamedTuple):
    """A counter in Redis; its name contains `kind`, `number` (of SSP or campaign) and `reason`."""

    day: datetime.date
    generation: int
    kind: str
    number: int
    reason: int
    value: int


class SourceCounters(NamedTuple):
    """A batch's counters from one source (see `source_of`)."""

    source: int
    counters: Sequence[CounterValue]


class GrownCount(NamedTuple):
    """Identifies a count of an SSP that grew: wins, impressions, losses or one kind of anomaly."""

    number: int  # the SSP's
    kind: str  # w, i, l or n (drain/names.py)
    code: int  # of the anomaly; -1: losses without a reason; otherwise 0


class Absorbed(NamedTuple):
    """The result of absorbing a batch: what changed, and counters of unknown SSPs or campaigns."""

    changed: int  # number of counters
    unknown: list[int]  # indices, over all sources, of counters of an unknown SSP or campaign
    grown: Mapping[GrownCount, int] = {}  # by how much


_INCOMING: Final = """
    select * from unnest(
        $1::text::int[], $2::text::date[], $3::text::int[], $4::text::text[], $5::text::int[],
        $6::text::int[], $7::text::bigint[]
    ) with ordinality as i (source, day, generation, kind, number, reason, value, position)
"""
# One index lookup per counter (ensured by `limit`), however many rows the table has.
_KNOWN: Final = """
    lateral (
        select a.value from drain_absorbed a
        where a.source = i.source and a.day = i.day and a.generation = i.generation
            and a.kind = i.kind and a.number = i.number and a.reason = i.reason
        limit 1
    )
"""
# Each counter is looked up once: its row keeps the previous value when it is raised. Names are
# looked up for sums only. Rows are written in the order of their index, so drains that write the
# same rows cannot deadlock.
_ABSORB: Final = f"""
with incoming as materialized (
    select i.*, s.number is not null or c.number is not null as is_known
    from ({_INCOMING}) as i
    left join ssp_number s on s.number = i.number and i.kind in ('b', 'w', 'p', 'i', 'l', 'n')
    left join campaign_number c on c.number = i.number and i.kind ~ '^[BWPIrq]'
),
changed as (
    insert into drain_absorbed as t (source, day, generation, kind, number, reason, value)
    select source, day, generation, kind, number, reason, value from incoming where is_known
    order by source, day, generation, kind, number, reason
    on conflict (source, day, generation, kind, number, reason)
    do update set value = excluded.value, before = t.value
    where excluded.value > t.value or excluded.value < t.value
        and not excluded.source = any(array(select source from drain_source where outdated))
    returning source, day, kind, number, reason, value, before
),
sums as materialized (
    select c.day, c.kind, c.number, c.reason, sum(c.value - coalesce(c.before, 0)) as more
    from changed c join drain_source o on o.source = c.source
    where c.value <> coalesce(c.before, 0)
        and (o.retired_on is null or c.day > o.retired_on)
    group by c.day, c.kind, c.number, c.reason
),
bids as (
    insert into bid_daily as t (day, descriptor, bids, wins, win_cpm_micros, counted)
    select day, descriptor,
        coalesce(sum(more) filter (where kind = 'b'), 0),
        coalesce(sum(more) filter (where kind = 'w'), 0),
        coalesce(sum(more) filter (where kind = 'p'), 0),
        true
    from sums join ssp_number using (number) where kind in ('b', 'w', 'p')
    group by day, descriptor order by day, descriptor
    on conflict (day, descriptor) where counted do update set
        bids = t.bids + excluded.bids,
        wins = t.wins + excluded.wins,
        win_cpm_micros = t.win_cpm_micros + excluded.win_cpm_micros
),
impressions as (
    insert into impression_daily as t (day, ssp, imps, counted)
    select s.day, coalesce(f.canonical, n.canonical), sum(more), true
    from sums s join ssp_number n using (number)
    left join ssp_family f on f.descriptor = n.descriptor and s.day between f.since and f.until
    where kind = 'i' group by 1, 2 order by 1, 2
    on conflict (day, ssp) where counted do update set imps = t.imps + excluded.imps
),
losses as (
    insert into loss_daily as t (day, descriptor, reason, losses, counted)
    select day, descriptor, reason, more, true
    from sums join ssp_number using (number) where kind = 'l'
    order by day, descriptor, reason
    on conflict (day, descriptor, reason) where counted
    do update set losses = t.losses + excluded.losses
),
anomalies as (
    insert into anomaly_daily as t (day, descriptor, anomaly, times, counted)
    select day, descriptor, a.name, sum(more), true
    from sums join ssp_number using (number) join anomaly a on a.code = reason
    where kind = 'n' group by day, descriptor, a.name order by day, descriptor, a.name
    on conflict (day, descriptor, anomaly) where counted
    do update set times = t.times + excluded.times
),
rejections as (
    insert into creative_rejection (ssp, campaign, mark, reason, losses, bids)
    select s.canonical, c.id, (r.named)[1]::int, (r.named)[2]::int,
        coalesce(sum(more) filter (where kind like 'r%'), 0),
        coalesce(sum(more) filter (where kind like 'q%'), 0)
    from sums
    join campaign_number c using (number)
    join ssp_number s on s.number = sums.reason
    cross join lateral (select regexp_match(kind, '^[rq](\\d+)(?:\\.(\\d+))?$') as named) r
    where kind like 'r%' or kind like 'q%' group by 1, 2, 3, 4
),
campaigns as (
    insert into campaign_daily as t
        (day, campaign, bids, wins, imps, win_cpm_micros, spend_micros, counted)
    select day, id, bids, wins, imps, cpm, rounded_thousandth(cpm), true
    from (
        select day, number,
            coalesce(sum(more) filter (where kind = 'B'), 0)::bigint as bids,
            coalesce(sum(more) filter (where kind = 'W'), 0)::bigint as wins,
            coalesce(sum(more) filter (where kind = 'I'), 0)::bigint as imps,
            coalesce(sum(more) filter (where kind = 'P'), 0)::bigint as cpm
        from sums where kind in ('B', 'W', 'P', 'I') group by day, number
    ) as of_number join campaign_number using (number) order by day, id
    on conflict (day, campaign) where counted do update set
        bids = t.bids + excluded.bids,
        wins = t.wins + excluded.wins,
        imps = t.imps + excluded.imps,
        win_cpm_micros = t.win_cpm_micros + excluded.win_cpm_micros,
        spend_micros = rounded_thousandth(t.win_cpm_micros + excluded.win_cpm_micros)
)
select (select count(*) from changed) as changed,
    array(select position from incoming where not is_known order by position) as unknown,
    (
        select json_agg(json_build_array(number, kind, code, more)) from (
            select number, kind, case when kind = 'n' or reason = -1 then reason else 0 end as code,
                sum(more)::bigint as more
            from sums where kind in ('w', 'i', 'l', 'n') group by 1, 2, 3
        ) as grown
    ) as grown
"""
_DIFFERING: Final = f"""
select i.position from ({_INCOMING}) as i
join drain_source o on o.source = i.source
left join {_KNOWN} a on true
where a.value is distinct from i.value
    and (a.value is null or i.value > a.value or not o.outdated)
"""


async def source_of(
    connection: asyncpg.Connection, epoch: str, segment: str, shard: int, today: datetime.date
) -> int:
    """Return the source number of a shard's run, assigning one to a new run."""
    return int(
        await connection.fetchval(
            "insert into drain_source as s (epoch, segment, shard, seen_on)"
            " values ($1, $2, $3, $4) on conflict (epoch, segment, shard)"
            " do update set seen_on = greatest(s.seen_on, excluded.seen_on) returning source",
            epoch,
            segment,
            shard,
            today,
        )
    )


async def sources_of(connection: asyncpg.Connection, epoch: str, shard: int) -> dict[str, int]:
    """Map the known runs of a shard's data set to their source numbers."""
    rows = await connection.fetch(
        "select segment, source from drain_source where epoch = $1 and shard = $2", epoch, shard
    )
    return {row["segment"]: row["source"] for row in rows}


async def absorb(connection: asyncpg.Connection, read: Sequence[SourceCounters]) -> Absorbed:
    """Update the report tables from counters, in one statement.

    Adds each counter's change since it was last absorbed. Raises asyncpg.DataError if a sum exceeds
    the range of its column.
    """
    row = await connection.fetchrow(_ABSORB, *_columns(read))
    grown = msgspec.json.decode(row["grown"] or "[]")
    return Absorbed(
        row["changed"],
        [position - 1 for position in row["unknown"]],
        {GrownCount(*named): more for *named, more in grown},
    )


async def differing(
    connection: asyncpg.Connection, source: int, counters: Sequence[CounterValue]
) -> list[int]:
    """Return the indices of the counters that are not fully absorbed."""
    columns = _columns([SourceCounters(source, counters)])
    rows = await connection.fetch(_DIFFERING, *columns)
    return [row["position"] - 1 for row in rows]


async def fetch_days(connection: asyncpg.Connection, source: int) -> list[datetime.date]:
    """Fetch the days for which a source has absorbed values, in order.

    Takes one index lookup per day, however many values there are.
    """
    rows = await connection.fetch(
        "with recursive days as ("
        " select min(day) as day from drain_absorbed where source = $1"
        " union all"
        " select (select min(a.day) from drain_absorbed a where a.source = $1 and a.day > d.day)"
        " from days d where d.day is not null"
        ") select day from days where day is not null",
        source,
    )
    return [row["day"] for row in rows]


async def forget(
    connection: asyncpg.Connection, source: int, day: datetime.date, generation: int
) -> None:
    """Drop a source's absorbed values for a day, up to and including a generation of counters.

    Call this once the counters of these generations have been removed from Redis.
    """
    async with connection.transaction():
        await connection.execute(
            "delete from drain_absorbed where source = $1 and day = $2 and generation <= $3",
            source,
            day,
            generation,
        )
        await connection.execute(
            "update drain_source set forgotten_to = greatest(forgotten_to, $2) where source = $1",
            source,
            day,
        )


async def retire(
    connection: asyncpg.Connection,
    current: int,
    unseen_since: datetime.date,
    today: datetime.date,
) -> None:
    """Drop the absorbed values of a shard's runs that were last seen before `unseen_since`.

    `current`: the source of the current run, which is kept. Should a dropped run reappear, its
    counters of days up to `today` are ignored.
    """
    async with connection.transaction():
        retired = await connection.fetch(
            "update drain_source set retired_on = $3 where seen_on < $2 and source <> $1"
            " and shard = (select shard from drain_source where source = $1)"
            " and retired_on is null returning source",
            current,
            unseen_since,
            today,
        )
        sources = [row["source"] for row in retired]
        await connection.execute("delete from drain_absorbed where source = any($1)", sources)


def _columns(read: Sequence[SourceCounters]) -> list[str]:
    """Format all counters' columns as PostgreSQL array literals.

    Encoding the elements one by one would take asyncpg several times as long.
    """
    rows = chain.from_iterable(each.counters for each in read)
    columns = [*zip(*rows, strict=True)] or [()] * len(CounterValue._fields)
    days, generations, kinds, *numbers = columns
    sources = chain.from_iterable(repeat(str(each.source), len(each.counters)) for each in read)
    texts = [sources, map(_isoformat, days), map(str, generations), kinds]
    texts += (map(str, column) for column in numbers)
    return [f"{{{','.join(text)}}}" for text in texts]


_isoformat: Final = lru_cache(64)(datetime.date.isoformat)
