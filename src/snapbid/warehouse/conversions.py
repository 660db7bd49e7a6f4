"""Clicks and conversions: keys of click ids, last clicks, and sums by day (contract 12)."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Final, NamedTuple

import asyncpg
import msgspec

from snapbid.campaigns.click_id import Click, ClickKey

WINDOW_DAYS: Final = 30  # days for which a click counts, unless its campaign says otherwise
EXPIRED: Final = 5_000  # links deleted at once


class BoughtClick(NamedTuple):
    """The bid behind a click, and the events for which the click counts."""

    campaign: str
    creative: str
    descriptor: str
    days: int  # for which it counts
    product: str | None  # None: events of any product


class ClickLink(NamedTuple):
    """A person's last click."""

    clicked_at: datetime
    expires_at: datetime
    campaign: str
    creative: str
    descriptor: str
    has_deposited: bool = False


class ConversionKey(NamedTuple):
    """The key of a row of conversion_daily."""

    day: date
    campaign: str
    creative: str
    descriptor: str
    event: str


class ConversionSum(NamedTuple):
    """The amounts to add to a row of conversion_daily."""

    conversions: int = 0
    value_micros: int = 0
    first_deposits: int = 0
    unvalued: int = 0  # conversions whose value is unknown


class Performance(NamedTuple):
    """A campaign's costs and returns, as in the view campaign_performance; amounts are in USD."""

    campaign: str
    bids: int
    wins: int
    imps: int
    spend: Decimal
    conversions: dict[str, int]
    registrations: int
    first_deposits: int
    net_deposits: Decimal
    gross_revenue: Decimal
    cost_per_registration: Decimal | None
    cost_per_first_deposit: Decimal | None
    return_on_spend: Decimal | None
    unvalued: int


# A number that the warehouse does not know, since a backup was restored, is kept as `#NUMBER`.
_BOUGHT: Final = f"""
select coalesce(n.id, '#' || i.campaign) as campaign,
    coalesce(k.creative, encode(i.creative, 'hex')) as creative,
    coalesce(s.descriptor, '#' || i.descriptor) as descriptor,
    coalesce(c.attribution_days, g.attribution_days, {WINDOW_DAYS}) as days,
    coalesce(c.document ->> 'product', g.product) as product
from unnest($1::bigint[], $2::bytea[], $3::bigint[]) with ordinality
    as i (campaign, creative, descriptor, position)
left join campaign_number n on n.number = i.campaign
left join campaign c on c.id = n.id
left join campaign_gone g on g.id = n.id and c.id is null
left join click_creative k on k.campaign = n.id and k.digest = i.creative
left join ssp_number s on s.number = i.descriptor
order by position
"""
_LINKS: Final = """
select l.* from unnest($1::bigint[]) as i (person)
cross join lateral (select * from click_link where person = i.person offset 0) as l
"""
_LINK: Final = """
insert into click_link as t (
    person, clicked_at, expires_at, campaign, creative, descriptor, has_deposited
)
select * from unnest(
    $1::bigint[], $2::timestamptz[], $3::timestamptz[], $4::text[], $5::text[], $6::text[],
    $7::boolean[]
)
on conflict (person) do update set
    clicked_at = excluded.clicked_at, expires_at = excluded.expires_at,
    campaign = excluded.campaign, creative = excluded.creative, descriptor = excluded.descriptor,
    has_deposited = excluded.has_deposited
"""
# In the order of the key, so that drains cannot deadlock. Sums are clamped instead of overflowing,
# since an event that was accepted must be stored.
_COUNT: Final = """
insert into conversion_daily as t (
    day, campaign, creative, descriptor, event, conversions, value_micros, first_deposits, unvalued,
    counted
)
select *, true from unnest(
    $1::date[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[]
) as i order by 1, 2, 3, 4, 5
on conflict (day, campaign, creative, descriptor, event) where counted do update set
    conversions = t.conversions + excluded.conversions,
    value_micros = greatest(-9223372036854775807, least(
        9223372036854775807, t.value_micros::numeric + excluded.value_micros))::bigint,
    first_deposits = t.first_deposits + excluded.first_deposits,
    unvalued = t.unvalued + excluded.unvalued
"""

_PREVIOUS_END: Final = """
select max(since) + make_interval(days => greatest($1, (
    select max(attribution_days) from (
        select attribution_days from campaign union all select attribution_days from campaign_gone
    ) windows
)))
from click_key having count(*) > 1
"""


async def fetch_keys(connection: asyncpg.Connection) -> dict[int, ClickKey]:
    """Fetch the valid keys of click ids by number, the newest last."""
    rows = await connection.fetch("select number, secret from click_key order by number")
    keys = [ClickKey(row["number"], bytes(row["secret"])) for row in rows]
    return {key.number: key for key in keys}


async def fetch_signing_key(connection: asyncpg.Connection) -> tuple[int, bytes] | None:
    """Fetch the number and secret of the key that signs click ids; None if all were deleted."""
    row = await connection.fetchrow(
        "select number, secret from click_key order by number desc limit 1"
    )
    return None if row is None else (row["number"], bytes(row["secret"]))


async def fetch_previous_end(connection: asyncpg.Connection) -> datetime | None:
    """Fetch the time at which the last click signed with the previous key stops counting.

    None if there is only one key. The longest window of any campaign, even a deleted one, applies.
    """
    end: datetime | None = await connection.fetchval(_PREVIOUS_END, WINDOW_DAYS)
    return end


async def rotate_keys(connection: asyncpg.Connection) -> None:
    """Start signing click ids with a new key; of older keys, only the previous one stays valid."""
    await connection.execute(
        "delete from click_key where number < (select max(number) from click_key)"
    )
    await connection.execute("insert into click_key default values")


async def fetch_bought(
    connection: asyncpg.Connection, clicks: Sequence[Click]
) -> list[BoughtClick]:
    """Fetch the bids behind these clicks, in the same order."""
    rows = await connection.fetch(
        _BOUGHT,
        [click.campaign for click in clicks],
        [click.creative for click in clicks],
        [click.descriptor for click in clicks],
    )
    return [BoughtClick(*row) for row in rows]


async def fetch_links(
    connection: asyncpg.Connection, persons: Collection[int]
) -> dict[int, ClickLink]:
    """Map these persons to their last clicks; persons without one are left out."""
    rows = await connection.fetch(_LINKS, list(persons))
    return {row["person"]: ClickLink(*tuple(row)[1:]) for row in rows}


async def set_links(connection: asyncpg.Connection, links: Mapping[int, ClickLink | None]) -> None:
    """Store the last click of each person; None removes it."""
    gone = [person for person, link in links.items() if link is None]
    if gone:
        await connection.execute("delete from click_link where person = any($1)", gone)
    rows = [(person, *link) for person, link in links.items() if link is not None]
    if rows:
        await connection.execute(_LINK, *map(list, zip(*rows, strict=True)))


async def count(
    connection: asyncpg.Connection, sums: Mapping[ConversionKey, ConversionSum]
) -> None:
    """Add conversions to the daily sums."""
    rows = [(*key, *added) for key, added in sums.items()]
    await connection.execute(_COUNT, *map(list, zip(*rows, strict=True)))


async def fetch_performance(
    connection: asyncpg.Connection,
    first: date = date.min,
    last: date = date.max,
    campaigns: Sequence[str] | None = None,
) -> list[Performance]:
    """Fetch the performance of campaigns from `first` to `last`, highest spend first.

    `campaigns`: their ids; None for all.
    """
    rows = await connection.fetch(
        "select * from campaign_performance($1, $2, $3) order by spend desc, campaign",
        first,
        last,
        None if campaigns is None else list(campaigns),
    )
    return [
        Performance(**{**row, "conversions": msgspec.json.decode(row["conversions"])})
        for row in rows
    ]


async def delete_expired(connection: asyncpg.Connection, moment: datetime) -> int:
    """Delete a batch of persons' last clicks that expired before `moment`.

    Returns how many clicks were deleted.
    """
    status: str = await connection.execute(
        "delete from click_link where person in"
        " (select person from click_link where expires_at < $1 limit $2"
        " for update skip locked)",
        moment,
        EXPIRED,
    )
    return int(status.split()[1])


async def forget(connection: asyncpg.Connection, persons: Collection[int]) -> int:
    """Delete the last clicks of persons; return how many were deleted."""
    status: str = await connection.execute(
        "delete from click_link where person = any($1)", list(persons)
    )
    return int(status.split()[1])
