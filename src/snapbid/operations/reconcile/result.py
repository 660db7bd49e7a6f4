"""Renders the result of a comparison for the SSP, as a CSV file of the disputes and as a page."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from snapbid.base.outputs import replaced
from snapbid.base.words import inert
from snapbid.operations.reconcile.compare import CAUSES, REPORTED, Comparison, DayTotals, Dispute

SHOWN: Final = 1_000  # disputes on the page; the CSV has all
SHOWN_CURRENCIES: Final = 5
MOST_DRIFT: Final = 0.01

COLUMNS: Final = (
    "cause", "kind", "auction_id", "imp_id", "line", "their_time", "their_price", "their_currency",
    "our_time", "our_price", "our_currency", "verdict", "detail",
)  # fmt: skip
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; font: 16px/1.5 system-ui, sans-serif }
body { margin: 0 }
main { max-width: 72rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.5rem }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3rem 1.25rem .3rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: break-word; white-space: pre-line }
td.number { text-align: right }
@media (max-width: 48rem) {
  thead { display: none }
  table, tbody, tr, td { display: block }
  tr { padding: .5rem 0; border-bottom: 1px solid var(--line) }
  td { border: 0; padding: .1rem 0; display: flex; justify-content: space-between; gap: 1rem;
    text-align: right; overflow-wrap: anywhere }
  td:empty { display: none }
  td::before { content: attr(data-label); opacity: .8; text-align: left; white-space: nowrap }
}
"""
_TOTALS: Final = (
    "kind", "day", "your log", "your log, USD", "agreed", "our log", "our log, USD", "the report",
    "the report, USD",
)  # fmt: skip
_SHOWN: Final = ("cause", "auction", "your log", "our log", "detail")


class TotalsRow(NamedTuple):
    """One day's totals for one kind of notice, in the SSP's log, our log and the report."""

    kind: str
    day: date | None
    theirs: int
    theirs_usd: float | None  # None if no price is known
    agreed: int
    logged: int
    logged_usd: float
    reported: int | None
    reported_usd: float | None

    @property
    def differs(self) -> bool:
        """Whether the auction log and the report differ."""
        return (self.reported is not None and self.logged != self.reported) or (
            self.reported_usd is not None and self.logged_usd != self.reported_usd
        )


def totals(comparison: Comparison) -> list[TotalsRow]:
    """Return the totals of all days, with the report's figures if the report was fetched."""
    rows = []
    known, reported = comparison.totals, comparison.reported
    first, last = comparison.first or date.min, comparison.last or date.max
    for kind, day in sorted({*known, *(reported or ())}, key=lambda key: (key[0], str(key[1]))):
        of = known.get((kind, day), DayTotals())
        their_usd = of.price_nanos / 1e9 if of.price_nanos else None
        our_usd = of.cost_nanos / 1e9
        count = usd = None
        if reported is not None and kind in REPORTED and day and first <= day <= last:
            count, nanos = reported.get((kind, day), REPORTED[kind])
            usd = None if nanos is None else nanos / 1e9
        row = TotalsRow(kind, day, of.theirs, their_usd, of.agreed, of.ours, our_usd, count, usd)
        rows.append(row)
    return rows


def differences(rows: Iterable[TotalsRow]) -> list[str]:
    """Describe each difference between our log and the report, by day and kind of notice."""
    return [
        f"the report differs: {row.kind} on {row.day}: our log "
        f"{_figures(row.logged, None if row.reported_usd is None else row.logged_usd)}, report "
        f"{_figures(row.reported, row.reported_usd)}{_shortfall(row)}"
        for row in rows
        if row.differs
    ]


def _shortfall(row: TotalsRow) -> str:
    lacking = (row.reported or 0) - row.logged
    if lacking <= 0:
        return ""
    return (
        f"; our log lacks {lacking} of the report's: rows are in it after some minutes (try again"
        " then), unless files are missing"
    )


def _figures(number: int | None, usd: float | None) -> str:
    return f"{number}" if usd is None else f"{number} ({_dollars(usd)})"


def drifts(comparison: Comparison) -> list[str]:
    """Name each kind of notice whose prices agree one by one, but differ by over 1% in total."""
    totals = comparison.totals.items()
    lines = []
    for kind in sorted({kind for kind, _ in comparison.totals}):
        theirs = sum(day.agreed_price_nanos for (of, _), day in totals if of == kind)
        ours = sum(day.agreed_cost_nanos for (of, _), day in totals if of == kind)
        if ours and abs(theirs - ours) > MOST_DRIFT * ours:
            lines.append(
                f"the agreed lines of kind {kind} come to {_dollars(theirs / 1e9)} by their prices"
                f" and {_dollars(ours / 1e9)} by ours ({(theirs - ours) / ours:+.1%}), though each"
                " is within --tolerance"
            )
    return lines


def _dollars(usd: float) -> str:
    return f"{usd:.9f}".rstrip("0").rstrip(".") + " USD"


def write_csv(path: Path, disputes: Iterable[Dispute]) -> Iterator[Dispute]:
    """Yield the disputes, after writing each to a file. Raises OSError.

    An earlier file is replaced once all are written.
    """
    with replaced(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for dispute in disputes:
            writer.writerow(cells(dispute))
            yield dispute


def cells(dispute: Dispute) -> tuple[object, ...]:
    """Return a dispute's values for COLUMNS, quoting text that a spreadsheet would execute."""
    d = dispute
    return (
        d.cause, d.kind, inert(d.auction), inert(d.imp or ""),
        "" if d.line is None else d.line, _time(d.their_ms),
        _units(d.their_price), inert(d.their_currency), _time(d.our_ms), _units(d.our_price),
        d.our_currency, d.verdict, inert(d.detail),
    )  # fmt: skip


class Coverage(NamedTuple):
    """The scope of a comparison: columns by field, unused columns, parts left out, and notes."""

    columns: dict[str, str]
    unused: list[str]
    missing: list[str]
    notes: list[str]

    def lines(self) -> Iterator[str]:
        """Yield the coverage as lines of text."""
        taken = ", ".join(f"{name!r} as {field}" for field, name in self.columns.items())
        yield f"columns: {taken}"
        if self.unused:
            yield f"not used: {', '.join(map(repr, self.unused))}"
        yield from (f"not compared: {each}" for each in self.missing)
        yield from (f"note: {each}" for each in self.notes)


def coverage(comparison: Comparison, *, prices: bool, times: bool) -> Coverage:
    """Describe the scope of a comparison; `prices`, `times`: whether it includes them."""
    missing, seen = [], comparison.seen
    for is_wanted, what, lacking in (
        (prices, "price", comparison.without_price),
        (times, "time", comparison.without_time),
    ):
        if not is_wanted:
            missing.append(f"{what}s (--no-{what}s)")
        elif what not in seen.columns and lacking:
            missing.append(f"{what}s: name their column (--column {what}=NAME), or --no-{what}s")
        elif lacking:
            missing.append(f"the {what}s of {lacking} lines, which have none")
    if "imp" not in seen.columns:
        missing.append("impressions: any of an auction may be meant")
    if comparison.without_rate:
        missing.append(_without_rate(comparison.without_rate))
    if comparison.first is None:
        missing.append("the report: the lines have no days, and none was named (--date)")
    notes = [*seen.notes]
    if seen.totals:
        notes.append(f"{seen.totals} lines are totals, which are left out")
    return Coverage(seen.columns, seen.unused, missing, notes)


def _without_rate(lines: Counter[str]) -> str:
    shown = lines.most_common(SHOWN_CURRENCIES)
    names = ", ".join(f"{currency[:10]!r} ({number})" for currency, number in shown)
    more = f" and {len(lines) - len(shown)} more" if len(lines) > len(shown) else ""
    return (
        f"the money of {lines.total()} lines, which is in no totals: there is no exchange rate for"
        f" {names}{more}"
    )


def is_complete(comparison: Comparison, *, prices: bool, times: bool) -> bool:
    """Return whether everything requested was compared and nothing odd in the log was noted."""
    lacking = (prices and comparison.without_price) or (times and comparison.without_time)
    return not (lacking or comparison.seen.notes)


def page(
    ssp: str,
    comparison: Comparison,
    rows: list[TotalsRow],
    shown: list[Dispute],
    covered: Coverage,
) -> str:
    """Render a self-contained page of a comparison: totals, causes, and the first disputes."""
    title = f"Reconciliation with {ssp}"
    total = sum(comparison.causes.values())
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{escape(title)}</h1><p>{comparison.lines:,} lines, from {comparison.first} to "
        f"{comparison.last} (UTC); {total:,} in dispute.</p>",
        *(f"<p>{escape(line)}</p>" for line in drifts(comparison)),
        *(f"<p>{escape(line)}</p>" for line in covered.lines()),
        "<h2>Totals</h2>",
        *_table(_TOTALS, rows),
        *(f"<p>{escape(line)}</p>" for line in differences(rows)),
        "<h2>Causes</h2>",
        *_table(
            ("cause", "disputes", "what it means"),
            [(name, count, CAUSES[name]) for name, count in comparison.causes.most_common()],
        ),
        f"<h2>Disputes</h2><p>{min(total, SHOWN):,} of {total:,}.</p>",
        *_table(_SHOWN, map(_brief, shown[:SHOWN])),
        "</main></body></html>\n",
    ]
    return "".join(parts)


def _brief(dispute: Dispute) -> tuple[str, ...]:
    """Return a dispute's values for the columns in _SHOWN."""
    d = dispute
    line = "" if d.line is None else f"line {d.line}"
    theirs = line, _time(d.their_ms), _priced(d.their_price, d.their_currency)
    ours = _time(d.our_ms), _priced(d.our_price, d.our_currency), d.verdict
    auction = d.auction, f"impression {d.imp}" if d.imp else "", d.kind
    return d.cause, _listed(auction), _listed(theirs), _listed(ours), d.detail


def _listed(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


def _priced(micros: int | None, currency: str) -> str:
    return "" if micros is None else f"{_units(micros)} {currency}"


def _table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield an HTML table. On a phone, each row is shown as a list of labelled values."""
    yield "<table><thead><tr>" + "".join(f"<th scope=col>{head}" for head in heads) + "<tbody>"
    for row in rows:
        yield "<tr>"
        for head, value in zip(heads, row, strict=True):
            text, is_number = _cell(value), isinstance(value, int | float)
            yield f'<td data-label="{head}"{" class=number" if is_number else ""}>{escape(text)}'
    yield "</table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.6f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def _time(time_ms: int | None) -> str:
    if time_ms is None:
        return ""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _units(micros: int | None) -> str:
    return "" if micros is None else f"{micros / 1e6:.6f}".rstrip("0").rstrip(".")
