"""Reads the claims in an SSP's log, one per line, in any supported format (contract 11).

Columns are recognised by common names, or named by the operator. claims.sql parses their values.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, tzinfo
from functools import partial
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from snapbid.operations.reconcile.exports import Line, LogError, opened

WIN: Final = "win"
BILLING: Final = "billing"
LOSS: Final = "loss"
BID: Final = "bid"

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {  # common names of columns, the likeliest first
    "auction": ("auctionid", "bidrequestid", "requestid", "transactionid", "auction", "aid", "id"),
    "imp": ("impid", "impressionid", "imp", "slotid"),
    "time": ("time", "timestamp", "ts", "eventtime", "datetime", "timeutc", "timestamputc",
             "datetimeutc", "date", "dateutc", "createdat"),
    "day": ("date", "day", "dateutc"),
    "price": ("price", "clearingprice", "clearprice", "winprice", "auctionprice", "settlementprice",
              "pricecpm", "priceusd", "cpm", "cpmusd", "amount", "cost"),
    "currency": ("currency", "cur", "currencycode", "bidcur", "bidcurrency", "pricecurrency"),
    "kind": ("kind", "event", "eventtype", "type", "notice"),
    "ssp": ("descriptor", "ssp", "sspid", "endpoint"),
}  # fmt: skip
KINDS: Final = {
    **dict.fromkeys(("win", "wins", "won", "nurl"), WIN),
    **dict.fromkeys(("billing", "bill", "billed", "burl", "imp", "impression", "view"), BILLING),
    **dict.fromkeys(("loss", "lost", "losses", "lurl"), LOSS),
    **dict.fromkeys(("bid", "bids", "response"), BID),
}
IN_USD: Final = frozenset(("priceusd", "cpmusd"))  # names of prices that say the currency
SIGNS: Final = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR",
                "C$": "CAD", "CA$": "CAD", "A$": "AUD", "AU$": "AUD", "R$": "BRL"}  # fmt: skip
NOTHING: Final = dict.fromkeys(
    ("NULL", "Null", "null", "None", "none", "\\N", "N/A", "n/a", "nan", "NaN", "NAN"), ""
)
"""Values that programs write for none -> none."""
SCALES: Final = {"cpm": 1_000_000, "impression": 1_000_000_000, "micros": 1}  # to micros of a CPM

BATCH: Final = 10_000  # lines added at once
MOST_SHOWN: Final = 20  # names of columns in a message
WHITE: Final = "".join(filter(str.isspace, map(chr, range(0x3001))))

_LINES: Final = f"""
CREATE TABLE lines (
    line BIGINT, unreadable BOOLEAN DEFAULT false, {", ".join(f"{name} VARCHAR" for name in FIELDS)}
)
"""
_LEAVE_TOTALS: Final = r"""
DELETE FROM lines
WHERE regexp_full_match(stripped(auction), '(?i)(totals?|grand total|subtotal|sum)\s*:?')
    AND coalesce(stripped(time), '') = '' AND coalesce(stripped(imp), '') = ''
"""
_TELLS: Final = {
    "time": "time_ms IS NOT NULL",
    "day": "coalesce(is_clock, false)",
    "price": "micros IS NOT NULL",
    "currency": "regexp_full_match(currency, '[[:alnum:]]{2,10}')",
    "kind": "known_kind IS NOT NULL",
}
"""Field -> SQL that tells whether a row of `readings` has a plausible value."""


class Form(NamedTuple):
    """The form of a log: names of columns by field, and defaults for missing columns."""

    columns: Mapping[str, str]  # "": ignore the field's column
    kind: str = WIN
    currency: str = "USD"
    scale: int = SCALES["cpm"]
    zone: tzinfo = UTC  # of times without a zone
    day_order: str | None = None  # of dates like 01/02/2026: "dmy" or "mdy"; None: inferred


class Seen(NamedTuple):
    """The result of reading a log: used columns by field, unused columns, and notes on the log.

    `totals`: the number of lines left out because they are totals of other lines.
    """

    columns: dict[str, str]
    unused: list[str]
    notes: list[str]
    totals: int = 0


def load(database: Any, path: Path, form: Form) -> Seen:
    """Load a log's claims as the view `claims_of_all_days`. Raises LogError or OSError."""
    database.execute(_LINES)
    with opened(path, partial(_has_auctions, form.columns)) as export:
        indices = _indices(export.names, form.columns)
        currency = form.currency
        if "currency" not in form.columns and _is_in_usd(export.names, indices):
            currency = "USD"
            indices.pop("currency", None)  # of another column, or of what was converted
        _add_lines(database, export.lines, indices)
    variables = {
        "kind": form.kind,
        "currency": currency,
        "scale": form.scale,
        "per_impression": form.scale == SCALES["impression"],
        "white": WHITE,
        "day_order": form.day_order,
    }
    set_variables(database, variables)
    for variable, values in (("kinds", KINDS), ("signs", SIGNS)):
        sql = f"SET VARIABLE {variable} = map($1::VARCHAR[], $2::VARCHAR[])"
        database.execute(sql, [list(values), list(values.values())])
    database.execute(f"SET TimeZone = '{form.zone}'")
    run(database, "claims.sql")
    (totals,) = database.execute(_LEAVE_TOTALS).fetchone()
    notes = []
    for field in _wrong_guesses(database, indices.keys() - form.columns):
        name = export.names[indices.pop(field)]
        if field != "day":  # times that include the day do not need it
            hint = _hint(database) if field == "time" else ""
            notes.append(f"the column {name!r} has no readable {field}{hint}")
        database.execute(f"UPDATE lines SET {field} = NULL")
    notes += [f"{count} lines {what}" for what, count in export.odd.items()]
    used = {field: export.names[at] for field, at in indices.items()}
    unused = [name for at, name in enumerate(export.names) if at not in indices.values()]
    return Seen(used, unused, notes, totals)


def run(database: Any, name: str) -> None:
    """Run an SQL file of this package."""
    database.execute(files(__package__).joinpath(name).read_text("utf-8"))


def set_variables(database: Any, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        database.execute(f"SET VARIABLE {name} = $1", [value])


def _add_lines(database: Any, lines: Iterator[Line], indices: Mapping[str, int]) -> None:
    readable = database.appender("lines", columns=["line", *indices])
    # With a column of kinds, a line that cannot be read is of no known one, so in no totals.
    empty = [field for field in ("auction", "kind") if field in indices]
    unreadable = database.appender("lines", columns=["line", "unreadable", *empty])
    while batch := list(islice(lines, BATCH)):
        readable.append_rows(
            (number, *[NOTHING.get(values[at].strip(), values[at]) for at in indices.values()])
            for number, values in batch
            if values is not None
        )
        readable.flush()
        unreadable.append_rows(
            (number, True, *[""] * len(empty)) for number, values in batch if values is None
        )
        unreadable.flush()


def _hint(database: Any) -> str:
    """Suggest an option that may help with unreadable times; "" if there is none."""
    unordered = f"SELECT bool_or(has_day_and_month(time)) FROM (FROM lines LIMIT {BATCH})"
    (is_unordered,) = database.execute(unordered).fetchone()
    return ": pass --day-order dmy or mdy" if is_unordered else ""


def _wrong_guesses(database: Any, guessed: Collection[str]) -> list[str]:
    """Return the `guessed` fields that have only implausible values in the log's first lines."""
    fits = ", ".join(f"bool_or({fits}) FILTER ({field} <> '')" for field, fits in _TELLS.items())
    found = database.execute(f"SELECT {fits} FROM (FROM readings LIMIT {BATCH})").fetchone()
    return [field for field, fits in zip(_TELLS, found, strict=True)
            if field in guessed and fits is False]  # fmt: skip


def _has_auctions(columns: Mapping[str, str], names: list[str]) -> bool:
    """Return whether one of the columns may hold auction ids."""
    if "auction" in columns:
        return columns["auction"] in names
    return _guessed("auction", _plain(names)) is not None


def _indices(names: list[str], columns: Mapping[str, str]) -> dict[str, int]:
    """Map each field that has a column to the column's index.

    Raises LogError if a named column is missing, or if there is no column of auction ids.
    """
    indices: dict[str, int] = {}
    plain = _plain(names)
    for field in FIELDS:
        if columns.get(field) == "":
            continue
        if field in columns:
            if columns[field] not in names:
                raise LogError(
                    f"there is no column {columns[field]!r}; the columns are {_listed(names)}"
                )
            indices[field] = names.index(columns[field])
        else:
            guessed = _guessed(field, plain)
            if guessed is not None and guessed not in indices.values():
                indices[field] = guessed
    if "auction" not in indices:
        if not names:
            raise LogError("it has no lines")
        raise LogError(
            "no column of auction ids was found: name it with --column auction=NAME, one of"
            f" {_listed(names)}"
        )
    return indices


def _is_in_usd(names: list[str], indices: Mapping[str, int]) -> bool:
    """Return whether the price column has a name that says USD."""
    return "price" in indices and _reduced(names[indices["price"]]) in IN_USD


def _plain(names: list[str]) -> dict[str, int]:
    """Map names, reduced to lower-case letters and digits, to their indices."""
    plain: dict[str, int] = {}
    for at, name in enumerate(names):
        plain.setdefault(_reduced(name), at)
    return plain


def _reduced(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _guessed(field: str, plain: Mapping[str, int]) -> int | None:
    return next((plain[guess] for guess in FIELDS[field] if guess in plain), None)


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:MOST_SHOWN])
    return shown + (f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else "")
