"""The result of a comparison: a CSV of the disputes, and a page, both to be sent to the SSP."""

import csv
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from snapbid.reconcile.compare import CAUSES, Comparison, Dispute

SHOWN: Final = 1_000  # disputes on the page; the CSV has all

COLUMNS: Final = (
    "cause", "kind", "auction_id", "imp_id", "line", "their_time", "their_price", "their_currency",
    "our_time", "our_price", "our_currency", "verdict", "detail",
)  # fmt: skip
_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { padding: .3rem .7rem; text-align: left; border-bottom: 1px solid #8885 }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto } code { overflow-wrap: anywhere }
"""


class ReportedDay(NamedTuple):
    """What the report has for a kind on a day; None where it has no such figure."""

    number: int
    cost_nanos: int | None


Reported = dict[tuple[str, date], ReportedDay]


class TotalsRow(NamedTuple):
    """A kind on a day: lines of theirs, those that agree, what the log and the report count."""

    kind: str
    day: date | None
    theirs: int
    agreed: int
    logged: int
    logged_usd: float
    reported: int | None
    reported_usd: float | None

    @property
    def differs(self) -> bool:
        """Whether the auction log and the report do."""
        return self.reported is not None and (
            self.logged != self.reported or self.logged_usd != self.reported_usd
        )


def totals(comparison: Comparison, reported: Reported | None) -> list[TotalsRow]:
    """Every day of the comparison, with the report's figures where there are some."""
    rows = []
    known = comparison.totals()
    for kind, day in sorted({*known, *(reported or ())}, key=lambda key: (key[0], str(key[1]))):
        of_day = known.get((kind, day))
        theirs, agreed, ours, cost = of_day or (0, 0, 0, 0)
        count = usd = None
        if reported is not None and day is not None:
            count, nanos = reported.get((kind, day), ReportedDay(0, 0))
            usd = cost / 1e9 if nanos is None else nanos / 1e9
        rows.append(TotalsRow(kind, day, theirs, agreed, ours, cost / 1e9, count, usd))
    return rows


def write_csv(path: Path, disputes: Iterable[Dispute]) -> Iterator[Dispute]:
    """Write disputes as they pass. Raises OSError."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for dispute in disputes:
            writer.writerow(cells(dispute))
            yield dispute


def cells(dispute: Dispute) -> tuple[object, ...]:
    """The values of a dispute under COLUMNS. Ids that a spreadsheet would run get a quote."""
    d = dispute
    return (
        d.cause, d.kind, _inert(d.auction), _inert(d.imp or ""), d.line, _time(d.their_ms),
        _units(d.their_price), _inert(d.their_currency), _time(d.our_ms), _units(d.our_price),
        d.our_currency, d.verdict, _inert(d.detail),
    )  # fmt: skip


def page(ssp: str, comparison: Comparison, rows: list[TotalsRow], shown: list[Dispute]) -> str:
    """The page: totals, causes, and the first disputes. It loads nothing."""
    title = f"Reconciliation with {ssp}"
    total = sum(comparison.causes.values())
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><p>{comparison.lines:,} lines, from {comparison.first} to "
        f"{comparison.last} (UTC); {total:,} in dispute.</p><h2>Totals</h2>",
        *_table(
            ("kind", "day", "your log", "agreed", "our log", "USD", "the report", "USD"),
            rows,
        ),
        "<h2>Causes</h2>",
        *_table(
            ("cause", "auctions", "what it means"),
            [(name, count, CAUSES[name]) for name, count in comparison.causes.most_common()],
        ),
        f"<h2>Disputes</h2><p>{min(total, SHOWN):,} of {total:,}.</p>",
        *_table(COLUMNS, map(cells, shown[:SHOWN])),
        "</body></html>\n",
    ]
    return "".join(parts)


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    yield "<div class=wide><table><tr>" + "".join(f"<th>{head}" for head in heads)
    for row in rows:
        yield "<tr>"
        for value in row:
            if isinstance(value, int | float):
                yield f"<td class=number>{value:,}"
            else:
                yield f"<td>{escape('' if value is None else str(value))}"
    yield "</table></div>"


def _inert(text: str) -> str:
    return f"'{text}" if text[:1] in "=+-@\t\r" and text else text


def _time(time_ms: int | None) -> str:
    if time_ms is None:
        return ""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _units(micros: int | None) -> str:
    return "" if micros is None else f"{micros / 1e6:.6f}".rstrip("0").rstrip(".")
