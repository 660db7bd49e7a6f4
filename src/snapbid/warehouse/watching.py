"""Queries for the dashboard (`operations/dashboard/`)."""

from datetime import date
from typing import Final, NamedTuple

import asyncpg
import msgspec

from snapbid.warehouse.campaigns import StoredCampaign, fetch_some

_BUDGETED: Final = """
with budgeted as materialized (
    select id from campaign where status = 'active' and document -> 'budget' <> 'null'
),
spend as (
    select campaign as id, sum(spend_micros) as micros from campaign_daily
    where day = $1 group by campaign
)
select id, (select count(*) from budgeted) as known from budgeted left join spend using (id)
order by micros desc nulls last, id limit $2
"""
_UNLIMITED: Final = """
select c.id, c.status, d.bids, d.wins, d.imps, d.micros / 1e6::float8 as spent_today
from (
    select campaign as id, sum(bids)::bigint as bids, sum(wins)::bigint as wins,
           sum(imps)::bigint as imps, sum(spend_micros)::bigint as micros
    from campaign_daily where day = $1 group by campaign
) d
join campaign c using (id)
where coalesce(c.document -> 'budget', 'null') = 'null'
order by d.micros desc, d.bids desc, c.id limit $2
"""


_CONVERTED: Final = """
select coalesce(sum(conversions), 0)::bigint as conversions,
    coalesce(sum(conversions) filter (where event = 'register'), 0)::bigint as registrations,
    coalesce(sum(first_deposits), 0)::bigint as first_deposits,
    coalesce(sum(value_micros) filter (where event in ('deposit', 'withdraw')), 0)::float8 / 1e6
        as net_deposits,
    coalesce(sum(value_micros) filter (where event = 'bet'), 0)::float8 / 1e6 as gross_revenue,
    campaign
from conversion_daily where day = $1 group by rollup (campaign)
order by campaign is not null, registrations desc, conversions desc, campaign limit $2
"""

# Of a day that is not over, the counters are of generation 0, so this reads one short range of the
# primary key for each run. Unlike bid_daily and impression_daily, it has each SSP's impressions.
_DRAINED: Final = """
select number,
    coalesce(sum(value) filter (where kind = 'b'), 0)::bigint as bids,
    coalesce(sum(value) filter (where kind = 'w'), 0)::bigint as wins,
    coalesce(sum(value) filter (where kind = 'p'), 0)::bigint as cpm_micros,
    coalesce(sum(value) filter (where kind = 'i'), 0)::bigint as imps
from drain_absorbed
where source = any(array(
        select source from drain_source where retired_on is null or retired_on < $1
    ))
    and day = $1 and generation = 0 and kind in ('b', 'w', 'p', 'i')
group by number
"""


class Conversions(msgspec.Struct, frozen=True):
    """One day's conversions from clicks; money in USD."""

    conversions: int
    registrations: int
    first_deposits: int
    net_deposits: float
    gross_revenue: float


class CampaignConversions(Conversions, frozen=True):
    """One day's conversions from a campaign's clicks; money in USD."""

    campaign: str


class ConversionDay(NamedTuple):
    """One day's conversions: of all campaigns, and of those with the most registrations."""

    total: Conversions
    most: list[CampaignConversions]


class CampaignDay(msgspec.Struct, frozen=True):
    """A campaign without a budget, and its figures for one day; money in USD."""

    campaign: str
    status: str
    bids_today: int
    wins_today: int
    imps_today: int
    spent_today: float


class Budgeted(NamedTuple):
    """The number of active campaigns with a budget, and the highest spenders among them."""

    known: int
    most: list[StoredCampaign]


async def fetch_time(connection: asyncpg.Connection) -> float:
    """Fetch the time by the server's clock (epoch s)."""
    return float(await connection.fetchval("select extract(epoch from clock_timestamp())"))


async def fetch_unlimited(
    connection: asyncpg.Connection, today: date, most: int
) -> list[CampaignDay]:
    """Fetch a day's figures of up to `most` campaigns without a budget, highest spend first."""
    return [CampaignDay(*row) for row in await connection.fetch(_UNLIMITED, today, most)]


async def fetch_drained(connection: asyncpg.Connection, today: date) -> list[tuple[int, ...]]:
    """Fetch today's SSP traffic as stored by drains, summed over all ledgers and their runs.

    Each row has an SSP's number, bids, wins, sum of the wins' CPM (micro-USD) and impressions.
    """
    return [tuple(row) for row in await connection.fetch(_DRAINED, today)]


async def fetch_converted(connection: asyncpg.Connection, today: date, most: int) -> ConversionDay:
    """Fetch a day's conversions, and those of the campaigns with the most registrations.

    `most`: how many campaigns to fetch.
    """
    total, *rows = await connection.fetch(_CONVERTED, today, most + 1)
    return ConversionDay(Conversions(*total[:-1]), [CampaignConversions(*row) for row in rows])


async def fetch_budgeted(connection: asyncpg.Connection, today: date, most: int) -> Budgeted:
    """Fetch up to `most` active campaigns with a budget, by descending spend on that day."""
    rows = await connection.fetch(_BUDGETED, today, most)
    known = {each.id: each for each in await fetch_some(connection, [row["id"] for row in rows])}
    most_spent = [known[row["id"]] for row in rows if row["id"] in known]  # the others are deleted
    return Budgeted(rows[0]["known"] if rows else 0, most_spent)
