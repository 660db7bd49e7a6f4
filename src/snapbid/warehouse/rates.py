"""The operator's exchange rates, which override the European Central Bank's (contract 3 and 7).

An entry is `{"currency": "BTC", "date": "2026-01-31", "usd": 98765.43}`: USD per unit from that day
on, until the currency's next entry. Crypto symbols have no other rates.
"""

import re
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any, Final, TypeAlias

import asyncpg

from snapbid.campaigns.rules import Check, Mistakes, Path, object_of, report, shown
from snapbid.warehouse.unavailable import present

RateEntry: TypeAlias = tuple[str, date, Decimal]
RateTable: TypeAlias = dict[str, list[tuple[date, Decimal]]]

_CURRENCY: Final = re.compile(r"[A-Z0-9]{2,10}", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,18})?", re.ASCII)


def rule() -> Check:
    """Build a check for the rates of one file: only one per currency and date is allowed."""
    seen: set[tuple[str, date]] = set()

    def check(value: Any, at: Path, mistakes: Mistakes) -> RateEntry | None:
        entry: RateEntry | None = _ENTRY(value, at, mistakes)
        if entry is not None:
            if entry[:2] in seen:
                report(mistakes, (at, "date"), "occurs twice for this currency")
            seen.add(entry[:2])
        return entry

    return check


def _check_currency(value: Any, at: Path, mistakes: Mistakes) -> str:
    code = value.upper() if isinstance(value, str) and value.isascii() else ""
    if not _CURRENCY.fullmatch(code):
        report(mistakes, at, f"must be 2 to 10 letters and digits, found {shown(value)}")
    elif code == "USD":
        report(mistakes, at, "is USD, whose rate is 1")
    return code


def _check_date(value: Any, at: Path, mistakes: Mistakes) -> date | None:
    if isinstance(value, str) and _DATE.fullmatch(value):
        with suppress(ValueError):
            return date.fromisoformat(value)
    report(mistakes, at, f"must be a date YYYY-MM-DD, found {shown(value)}")
    return None


def _check_usd(value: Any, at: Path, mistakes: Mistakes) -> Decimal | None:
    """Read a rate, given as a number or a string; report a mistake if it is invalid."""
    is_text = isinstance(value, str) and _NUMBER.fullmatch(value)
    usd = Decimal(value) if is_text or type(value) is int else value
    if isinstance(usd, Decimal) and 0 < usd < 10**15 and int(usd.as_tuple().exponent) >= -18:
        return usd
    rule = "must be a number above 0 with at most 15 digits before and 18 after the point"
    report(mistakes, at, f"{rule}, found {shown(value)}")
    return None


def _entry(currency: str, date: date, usd: Decimal) -> RateEntry:
    return currency, date, usd


_ENTRY: Final = object_of(
    {"currency": _check_currency, "date": _check_date, "usd": _check_usd},
    _entry,
    required=("currency", "date", "usd"),
)


# -- the warehouse --------------------------------------------------------------------------------


async def replace_many(connection: asyncpg.Connection, entries: list[RateEntry]) -> None:
    """Add or replace rates, all or none."""
    currencies, days, rates = zip(*entries, strict=True)
    await connection.execute(
        "insert into operator_rate (currency, day, usd)"
        " select * from unnest($1::text[], $2::date[], $3::numeric[])"
        " on conflict (currency, day) do update set usd = excluded.usd",
        list(currencies),
        list(days),
        list(rates),
    )


async def remove(connection: asyncpg.Connection, currency: str, day: date | None) -> int:
    """Remove the operator's rates for a currency; return how many were removed.

    `day`: the day of the rate to remove; None for all days.
    """
    status: str = await connection.execute(
        "delete from operator_rate where currency = $1 and day = coalesce($2, day)", currency, day
    )
    return int(status.split()[1])


async def revision(connection: asyncpg.Connection) -> int:
    """Fetch a number that changes with every change to the rates."""
    number = await connection.fetchval("select revision from operator_rate_revision")
    return int(present(number, "operator_rate_revision"))


async def fetch_all(connection: asyncpg.Connection) -> RateTable:
    """Map each currency to pairs of (first day, USD per unit), ordered by day."""
    rows = await connection.fetch(
        "select currency, day, usd from operator_rate order by currency, day"
    )
    table: RateTable = {}
    for row in rows:
        table.setdefault(row["currency"], []).append((row["day"], row["usd"]))
    return table
