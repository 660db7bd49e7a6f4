"""The operator's exchange rates, which override the European Central Bank's (contract 3 and 7).

An entry is `{"currency": "BTC", "date": "2026-01-31", "usd": 98765.43}`: USD per unit from that day
on, until the currency's next entry. Crypto symbols have no other rates.
"""

import json
import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

import asyncpg

RateEntry: TypeAlias = tuple[str, date, Decimal]
RateTable: TypeAlias = dict[str, list[tuple[date, Decimal]]]

_CURRENCY: Final = re.compile(r"[A-Z0-9]{2,10}", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,18})?", re.ASCII)
_FIELDS: Final = ("currency", "date", "usd")


class RatesMistake(NamedTuple):
    """A mistake in a rates file: the line (or entry, from 1), the field and the rule."""

    line: int
    field: str
    rule: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field + ' ' if self.field else ''}{self.rule}"


class RatesError(ValueError):
    """The rates file is invalid; `mistakes` lists every mistake in it."""

    def __init__(self, mistakes: list[RatesMistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes


def read_file(name: str, data: bytes) -> list[RateEntry]:
    """Read a rates file: a `.json` file has an array or one object, any other has JSON Lines.

    Raises RatesError with all mistakes.
    """
    mistakes: list[RatesMistake] = []
    entries: dict[tuple[str, date], RateEntry] = {}
    for line, document in _documents(name, data, mistakes):
        entry = _entry(line, document, mistakes)
        if entry is None:
            continue
        if entry[:2] in entries:
            mistakes.append(RatesMistake(line, "date", "occurs twice for this currency"))
        entries[entry[:2]] = entry
    if not entries and not mistakes:
        mistakes.append(RatesMistake(1, "", "the file contains no rates"))
    if mistakes:
        raise RatesError(sorted(mistakes))
    return list(entries.values())


def _documents(name: str, data: bytes, mistakes: list[RatesMistake]) -> Iterator[tuple[int, Any]]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        mistakes.append(RatesMistake(data.count(b"\n", 0, error.start) + 1, "", "is not UTF-8"))
        return
    if name.lower().endswith(".json"):
        try:
            whole = _decode(text)
        except (ValueError, RecursionError) as error:
            mistakes.append(RatesMistake(getattr(error, "lineno", 1), "", "is not JSON"))
            return
        yield from enumerate(whole if isinstance(whole, list) else [whole], 1)
        return
    for line, row in enumerate(text.split("\n"), 1):
        if row.strip():
            try:
                yield line, _decode(row)
            except (ValueError, RecursionError):
                mistakes.append(RatesMistake(line, "", "is not JSON"))


def _decode(text: str) -> Any:
    # Numbers stay text until their format is checked: a rate is an exact decimal.
    return json.loads(text, parse_float=_Number, parse_int=_Number)


class _Number(str):
    """A number as spelled in the file."""


def _entry(line: int, document: Any, mistakes: list[RatesMistake]) -> RateEntry | None:
    if not isinstance(document, dict):
        mistakes.append(RatesMistake(line, "", "must be an object"))
        return None
    broken = [
        RatesMistake(line, key[:60], "is not known") for key in document if key not in _FIELDS
    ]
    currency, day = document.get("currency"), document.get("date")
    usd = _usd(document.get("usd"))
    code = currency.upper() if isinstance(currency, str) and currency.isascii() else ""
    if isinstance(currency, _Number) or not _CURRENCY.fullmatch(code):
        broken.append(RatesMistake(line, "currency", "must be 2 to 10 letters and digits"))
    elif code == "USD":
        broken.append(RatesMistake(line, "currency", "is USD, whose rate is 1"))
    date_ = _date(day)
    if date_ is None:
        broken.append(RatesMistake(line, "date", "must be a date YYYY-MM-DD"))
    if usd is None:
        rule = "must be a number above 0 with at most 15 digits before and 18 after the point"
        broken.append(RatesMistake(line, "usd", rule))
    mistakes.extend(broken)
    return (code, date_, usd) if not broken and date_ is not None and usd is not None else None


def _date(value: object) -> date | None:
    if not isinstance(value, str) or isinstance(value, _Number) or not _DATE.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def _usd(value: object) -> Decimal | None:
    """Parse a rate, given as a number or as a string; None if it is invalid or zero."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return None
    return Decimal(value) or None


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
    return int(await connection.fetchval("select revision from operator_rate_revision"))


async def fetch_all(connection: asyncpg.Connection) -> RateTable:
    """Map each currency to pairs of (first day, USD per unit), ordered by day."""
    rows = await connection.fetch(
        "select currency, day, usd from operator_rate order by currency, day"
    )
    table: RateTable = {}
    for row in rows:
        table.setdefault(row["currency"], []).append((row["day"], row["usd"]))
    return table
