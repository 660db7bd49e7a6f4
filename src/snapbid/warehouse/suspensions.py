"""Creatives suspended at an SSP, and the rejections that count towards suspension (contract 11)."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import asyncpg
import msgspec

from snapbid.campaigns.suspensions import CreativeSuspension

_MOST: Final = 10_000  # rejections counted in one transaction

# Matches suspensions that have ended, and rejections that led to none for the time of one.
_OVER: Final = """
until <= now() or (until is null and counted_at < now() - make_interval(secs => $1))
"""
_COLUMNS: Final = (
    "ssp, campaign, creative, reason, losses,"
    " ceil(extract(epoch from since))::bigint, ceil(extract(epoch from until))::bigint"
)


class SuspensionRule(NamedTuple):
    """The conditions for suspending a creative at an SSP; all must hold."""

    losses: int  # the least number of rejections; 0: never suspend
    share: float  # the least share of rejections in its bids since the first one
    bids: int = 20  # the least number of these bids


class Rejection(NamedTuple):
    """A count of an SSP's rejections of a creative, or of bids that offered it the creative.

    Bids are counted from the first rejection on. A row has either `losses` and their `reason`, or
    `bids`. `ssp` is the canonical id; `mark` stands for the creative (`campaigns/suspensions.py`).
    """

    ssp: str
    campaign: str
    mark: int
    reason: int | None
    losses: int
    bids: int


class RejectedCreative(NamedTuple):
    """One creative's `Rejection`s, summed, with its id instead of its mark."""

    ssp: str
    campaign: str
    creative: str
    reason: int | None
    losses: int
    bids: int


async def is_due(connection: asyncpg.Connection, suspend_s: int) -> bool:
    """Return whether `count` has work: new rejections to count, or expired rows to drop."""
    return bool(
        await connection.fetchval(
            "select exists (select from creative_rejection)"
            f" or exists (select from creative_suspension where {_OVER})",
            suspend_s,
        )
    )


async def lock_campaigns(connection: asyncpg.Connection) -> bool:
    """Lock campaigns against changes until commit; return False if the lock is taken."""
    return bool(await connection.fetchval("select catalog_try_lock()"))


async def take_rejections(connection: asyncpg.Connection) -> list[Rejection]:
    """Remove and return a batch of rejections; call `count` with them in the same transaction."""
    rows = await connection.fetch(
        "delete from creative_rejection where ctid in"
        " (select ctid from creative_rejection limit $1)"
        " returning ssp, campaign, mark, reason, losses, bids",
        _MOST,
    )
    return [Rejection(*row) for row in rows]


async def fetch_creatives(
    connection: asyncpg.Connection, campaigns: Iterable[str]
) -> dict[str, list[str]]:
    """Map campaigns to the ids of their creatives, from the current documents."""
    rows = await connection.fetch(
        "select id, jsonb_path_query_array(document, '$.creatives[*].id')::text as creatives"
        " from campaign where id = any($1)",
        list(campaigns),
    )
    return {
        row["id"]: [id for id in msgspec.json.decode(row["creatives"]) if isinstance(id, str)]
        for row in rows
    }


async def count(
    connection: asyncpg.Connection,
    rejected: Sequence[RejectedCreative],
    rule: SuspensionRule,
    suspend_s: int,
) -> int:
    """Count rejections, and suspend creatives by `rule`; return how many were suspended.

    Ignores rejections of creatives that are suspended or were just changed. First drops ended
    suspensions, and counts that were last raised over `suspend_s` ago. Requires a transaction.
    """
    await connection.execute(f"delete from creative_suspension where {_OVER}", suspend_s)
    await connection.executemany(
        "insert into creative_suspension as r (ssp, campaign, creative, reason, losses, bids)"
        " values ($1, $2, $3, coalesce($4, 200), greatest($5::bigint, 0), greatest($6::bigint, 0))"
        " on conflict (ssp, campaign, creative) do update set"
        " reason = coalesce($4, r.reason), losses = greatest(r.losses + $5, 0),"
        " bids = greatest(r.bids + $6, 0), counted_at = now()"
        " where r.until is null and r.counts_from <= now()",
        rejected,
    )
    begun = await connection.fetch(
        "update creative_suspension set since = now(), until = now() + make_interval(secs => $2)"
        " where until is null and losses >= $1::bigint and $1::bigint > 0"
        " and bids >= $3 and losses >= bids * $4::float8 returning creative",
        rule.losses,
        suspend_s,
        rule.bids,
        rule.share,
    )
    return len(begun)


async def fetch_suspended(
    connection: asyncpg.Connection, ssp: str | None = None
) -> list[CreativeSuspension]:
    """Fetch suspensions at one SSP (canonical id) or all, ordered by campaign and creative."""
    rows = await connection.fetch(
        f"select {_COLUMNS} from creative_suspension"
        " where until > now() and ($1::text is null or ssp = $1) order by campaign, creative, ssp",
        ssp,
    )
    return [CreativeSuspension(*row) for row in rows]


async def resume(
    connection: asyncpg.Connection,
    campaign: str,
    creative: str | None = None,
    ssp: str | None = None,
) -> list[CreativeSuspension]:
    """End the suspensions of a campaign's creatives, or of one creative, at one SSP or all SSPs.

    The rejections behind these suspensions are deleted. Returns the ended suspensions.
    """
    rows = await connection.fetch(
        "delete from creative_suspension where campaign = $1 and until > now()"
        " and ($2::text is null or creative = $2) and ($3::text is null or ssp = $3)"
        f" returning {_COLUMNS}",
        campaign,
        creative,
        ssp,
    )
    return sorted(
        [CreativeSuspension(*row) for row in rows], key=lambda row: (row.creative, row.ssp)
    )
