"""The days that a report covers (document 1, "Window rules"; contract 6, "Dates")."""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from snapbid.base.errors import BadDate, BadWindow

MAX_DAYS: Final = 7
_FORM: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_SHOWN_CHARACTERS: Final = 40  # of an invalid value
_KEPT: Final = 256  # parsed queries; on any day, many partners send the same one
_KEPT_BYTES: Final = 64  # longer queries are not kept


class ReportWindow(NamedTuple):
    """A range of UTC days, inclusive."""

    first: date
    last: date

    def days(self) -> Iterator[date]:
        """Yield each day, ascending."""
        for offset in range((self.last - self.first).days + 1):
            yield self.first + timedelta(offset)


def parse(query: bytes, today: date) -> ReportWindow:
    """Parse the window of a query string.

    Raises BadDate, which lists all mistakes in the dates, or, if the dates are valid, BadWindow,
    which lists all mistakes in the window.
    """
    return (_parse_usual if len(query) <= _KEPT_BYTES else _parse)(query, today)


def _parse(query: bytes, today: date) -> ReportWindow:
    values: dict[str, list[str]] = {"from": [], "to": []}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in values:
            values[name].append(value)
    dates = {name: _date(given) for name, given in values.items()}
    if mistakes := [f"{name}: {rule}" for name, rule in dates.items() if isinstance(rule, str)]:
        raise BadDate("; ".join(mistakes))
    first, last = dates["from"], dates["to"]
    assert isinstance(first, date)
    assert isinstance(last, date)
    if mistakes := list(_mistakes(first, last, today)):
        raise BadWindow("; ".join(mistakes))
    return ReportWindow(first, last)


_parse_usual: Final = lru_cache(_KEPT)(_parse)


def _date(given: list[str]) -> date | str:
    """Parse a date, or return the broken rule; `date.fromisoformat` alone would be too lenient."""
    if len(given) != 1:
        return f"must be given once, found {len(given)} times" if given else "is missing"
    text = given[0]
    if _FORM.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            return f"must be a day of the calendar, found {text!r}"
    return f"must be a date in the form YYYY-MM-DD, found {text[:_SHOWN_CHARACTERS]!a}"


def _mistakes(first: date, last: date, today: date) -> Iterator[str]:
    length = (last - first).days + 1
    if length > MAX_DAYS:
        yield f"the window is {length} days long, more than {MAX_DAYS}"
    if length < 1:
        yield f"to: {last} is before from, {first}"
    if last > today:
        yield f"to: {last} is after today, {today} (UTC)"
