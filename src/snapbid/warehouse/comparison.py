"""Compare figures that the warehouse keeps twice, for the self-audit (contract 11).

A comparison reads one snapshot, and returns only figures that differ.
"""

import datetime
from typing import Final, NamedTuple

import asyncpg

MOST: Final = 1_000  # differences fetched of each kind
LONG_S: Final = 120.0  # for a query that reads the events of an hour or a day

# The absorbed counters are added up as `absorb` adds their growth. Days on which a source's
# counters were dropped, or which it no longer changes, are left out: counters do not explain them.
_REPORTS: Final = f"""
with whole as (
    select coalesce(max(greatest(
        coalesce(forgotten_to, '-infinity'), coalesce(retired_on, '-infinity')
    )), '-infinity') as after
    from drain_source
),
sums as materialized (
    select a.day, a.kind, a.number, a.reason, sum(a.value) as value
    from drain_absorbed a, whole where a.day > whole.after
    group by a.day, a.kind, a.number, a.reason
),
counted as (
    select s.day, s.kind || ' of ' || n.descriptor as what, s.value
    from sums s join ssp_number n using (number) where s.kind in ('b', 'w', 'p')
    union all
    select s.day, s.kind || ' of ' || coalesce(f.canonical, n.canonical), sum(s.value)
    from sums s join ssp_number n using (number)
    left join ssp_family f on f.descriptor = n.descriptor and s.day between f.since and f.until
    where s.kind = 'i' group by 1, 2
    union all
    select s.day, s.kind || s.reason || ' of ' || n.descriptor, s.value
    from sums s join ssp_number n using (number) where s.kind = 'l'
    union all
    select s.day, s.kind || ' of ' || c.id, s.value
    from sums s join campaign_number c using (number) where s.kind in ('B', 'W', 'P', 'I')
    union all
    select s.day, 'spend of ' || c.id, rounded_thousandth(s.value::bigint)
    from sums s join campaign_number c using (number) where s.kind = 'P'
    union all
    select s.day, a.name || ' of ' || n.descriptor, s.value
    from sums s join ssp_number n using (number) join anomaly a on a.code = s.reason
    where s.kind = 'n'
),
reported as (
    select day, kind || ' of ' || descriptor as what, value
    from bid_daily cross join lateral (
        values ('b', bids::numeric), ('w', wins), ('p', win_cpm_micros)
    ) v (kind, value) where counted
    union all
    select day, 'i of ' || ssp, imps from impression_daily where counted
    union all
    select day, 'l' || reason || ' of ' || descriptor, losses from loss_daily where counted
    union all
    select day, kind || ' of ' || campaign, value
    from campaign_daily cross join lateral (
        values ('B', bids::numeric), ('W', wins), ('P', win_cpm_micros), ('I', imps),
            ('spend', spend_micros)
    ) v (kind, value) where counted
    union all
    select day, anomaly || ' of ' || descriptor, times from anomaly_daily where counted
)
select coalesce(c.day, r.day) as day, coalesce(c.what, r.what) as what,
    coalesce(c.value, 0)::numeric as first, coalesce(r.value, 0)::numeric as second
from counted c full join (select reported.* from reported, whole where day > whole.after) r
    on r.day = c.day and r.what = c.what
where coalesce(c.value, 0) <> coalesce(r.value, 0)
order by 1, 2 limit {MOST}
"""

# A win counts for its SSP and for its campaign, at the same price.
_CAMPAIGNS: Final = f"""
with of_ssps as (
    select day, sum(wins) as wins, sum(win_cpm_micros) as cpm from bid_daily
    where counted and day >= $1 group by day
),
of_campaigns as (
    select day, sum(wins) as wins, sum(win_cpm_micros) as cpm, sum(imps) as imps
    from campaign_daily where counted and day >= $1 group by day
),
of_families as (
    select day, sum(imps) as imps from impression_daily where counted and day >= $1 group by day
)
select day, what, first::numeric as first, second::numeric as second
from of_ssps full join of_campaigns c using (day) full join of_families f using (day)
cross join lateral (values
    ('wins', coalesce(of_ssps.wins, 0), coalesce(c.wins, 0)),
    ('CPM', coalesce(of_ssps.cpm, 0), coalesce(c.cpm, 0)),
    ('impressions', coalesce(f.imps, 0), coalesce(c.imps, 0))
) v (what, first, second)
where first <> second
order by day, what limit {MOST}
"""

_ABSORBED: Final = """
select kind, number, reason, value from drain_absorbed
where source = $1 and day = $2 and generation = $3
"""


# A late win of yesterday's bid is in today's figure here, but not in the ledger's.
_SPEND: Final = """
select n.number, n.id, coalesce(sum(t.win_cpm_micros), 0) as total,
    coalesce(sum(t.win_cpm_micros) filter (where t.day = $1), 0) as today,
    exists (
        select from anomaly_daily a where a.counted and a.day = $1 and a.anomaly = 'win_late'
    ) as may_be_late
from campaign_number n left join campaign_daily t on t.campaign = n.id and t.counted
group by n.number
"""


_CAMPAIGN_DAY: Final = """
select campaign, bids, wins, imps from campaign_daily where counted and day = $1
"""


_EVENTS: Final = """
select floor(extract(epoch from received_at) / 60)::bigint as minute, product, count(*) as count
from events where received_at >= $1 and received_at < $2
group by 1, 2
"""


# Compares nothing if events of the day may have been dropped: if no partition is as old.
_CONVERSIONS: Final = f"""
with stored as (
    select campaign, creative, descriptor, event, count(*) as conversions,
        greatest(-9223372036854775807, least(
            9223372036854775807, coalesce(sum(value_micros), 0))) as value,
        count(*) filter (where first_deposit) as firsts,
        count(*) filter (where value_micros is null) as unvalued
    from events
    where received_at >= $2 and received_at < $3 and campaign is not null
    group by campaign, creative, descriptor, event
),
counted as (
    select campaign, creative, descriptor, event, conversions, value_micros as value,
        first_deposits as firsts, unvalued
    from conversion_daily where counted and day = $1
)
select $1::date as day,
    concat_ws(' ', what, 'of', campaign, creative, descriptor, event) as what,
    first::numeric as first, second::numeric as second
from counted c full join stored s using (campaign, creative, descriptor, event)
cross join lateral (values
    ('conversions', coalesce(c.conversions, 0), coalesce(s.conversions, 0)),
    ('value', coalesce(c.value, 0), coalesce(s.value, 0)),
    ('first deposits', coalesce(c.firsts, 0), coalesce(s.firsts, 0)),
    ('unvalued', coalesce(c.unvalued, 0), coalesce(s.unvalued, 0))
) v (what, first, second)
where first <> second
    and not exists (select from event_partitions having min(first) > $2)
order by what limit {MOST}
"""


class Spend(NamedTuple):
    """A campaign's spend in nano-USD."""

    campaign: str
    total: int
    today: int
    may_be_late: bool  # `today` may include late wins of yesterday's bids


class CampaignDay(NamedTuple):
    """A campaign's figures for a day, from the report tables."""

    bids: int
    wins: int
    imps: int


class Differing(NamedTuple):
    """Two figures for the same day that should be equal but differ."""

    day: datetime.date
    what: str
    first: int
    second: int


async def compare_reports(connection: asyncpg.Connection) -> list[Differing]:
    """Compare the report tables with the counters absorbed into them by the drain."""
    return _differing(await connection.fetch(_REPORTS))


async def compare_campaigns(
    connection: asyncpg.Connection, since: datetime.date
) -> list[Differing]:
    """Compare daily sums over all SSPs with daily sums over all campaigns, from `since` on."""
    return _differing(await connection.fetch(_CAMPAIGNS, since))


async def fetch_spend(connection: asyncpg.Connection, today: datetime.date) -> dict[int, Spend]:
    """Fetch the spend of all campaigns, including deleted ones, by campaign number."""
    return {
        row["number"]: Spend(row["id"], int(row["total"]), int(row["today"]), row["may_be_late"])
        for row in await connection.fetch(_SPEND, today)
    }


async def fetch_absorbed(
    connection: asyncpg.Connection, source: int, day: datetime.date, generation: int
) -> dict[tuple[str, int, int], int]:
    """Fetch the values absorbed from a run's counters of a day.

    Returns them by kind of counter, number of the campaign or SSP, and loss reason.
    """
    rows = await connection.fetch(_ABSORBED, source, day, generation)
    return {(row["kind"], row["number"], row["reason"]): row["value"] for row in rows}


async def fetch_campaigns(
    connection: asyncpg.Connection, day: datetime.date
) -> dict[str, CampaignDay]:
    """Fetch a day's figures from the report tables, by campaign."""
    rows = await connection.fetch(_CAMPAIGN_DAY, day)
    return {campaign: CampaignDay(*figures) for campaign, *figures in rows}


async def count_events(connection: asyncpg.Connection, hour: int) -> dict[tuple[int, str], int]:
    """Count the events received in an hour by (minute, product).

    Hours and minutes are numbered from the epoch.
    """
    ends = (datetime.datetime.fromtimestamp(of * 3600, datetime.UTC) for of in (hour, hour + 1))
    rows = await connection.fetch(_EVENTS, *ends, timeout=LONG_S)
    return {(row["minute"], row["product"]): row["count"] for row in rows}


async def compare_conversions(
    connection: asyncpg.Connection, day: datetime.date
) -> list[Differing]:
    """Compare a day's conversion sums with the stored events that they count."""
    first = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    until = first + datetime.timedelta(days=1)
    rows = await connection.fetch(_CONVERSIONS, day, first, until, timeout=LONG_S)
    return _differing(rows)


def _differing(rows: list[asyncpg.Record]) -> list[Differing]:
    return [
        Differing(row["day"], row["what"], int(row["first"]), int(row["second"])) for row in rows
    ]
