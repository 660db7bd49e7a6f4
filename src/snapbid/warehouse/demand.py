"""Demand signals: rules that tell SSPs which traffic campaigns can bid on (contract 11)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple

import asyncpg

CURRENT_FOR: Final = timedelta(minutes=15)  # the drain renews signals every ten
_STATE: Final = """
select greatest(
        (select max(revision) from campaign), (select max(revision) from campaign_gone), 0
    )::text
    || ' ' || coalesce(
        (select string_agg(descriptor || '=' || canonical, ' ' order by descriptor) from ssp), ''
    )
"""


class DemandSignal(NamedTuple):
    """Rules as JSON, and their entity tag."""

    etag: str
    rules: bytes


async def fetch_state(connection: asyncpg.Connection) -> str:
    """Fetch a fingerprint of campaigns and SSPs; if it changes, demand signals must be rebuilt."""
    return str(await connection.fetchval(_STATE))


async def store(connection: asyncpg.Connection, signals: Mapping[str, DemandSignal]) -> None:
    """Store the signals by canonical id; delete the signals of all other ids."""
    async with connection.transaction():
        await connection.execute("delete from demand_signal where ssp <> all($1)", list(signals))
        await connection.executemany(
            "insert into demand_signal as d (ssp, etag, rules) values ($1, $2, $3)"
            " on conflict (ssp) do update set"
            " etag = excluded.etag, rules = excluded.rules, made_at = now()",
            [(ssp, signal.etag, signal.rules) for ssp, signal in signals.items()],
        )


async def fetch(pool: asyncpg.Pool, ssp: str, timeout_s: float) -> DemandSignal | None:
    """Fetch the signal of a canonical id; None if it is missing or out of date.

    Raises asyncpg's errors, and OSError or TimeoutError if the warehouse is unreachable.
    """
    async with pool.acquire(timeout=timeout_s) as connection:
        row = await connection.fetchrow(
            "select etag, rules from demand_signal"
            " where ssp = $1 and made_at > now() - $2::interval",
            ssp,
            CURRENT_FOR,
            timeout=timeout_s,
        )
    return None if row is None else DemandSignal(row["etag"], row["rules"])
