"""Compares an SSP's claims with the auction log, auction by auction (contract 11).

A claim agrees if the auction log has the bid and a counted notice of its kind, on the same UTC day
and at the same price: a CPM is compared with our CPM, and a price per impression with our cost of
the impression, which includes `qty.multiplier` (contract 3). Everything else is a dispute, with one
of `CAUSES`; a claim may be disputed for two causes. Contract 5 decides what counts: a notice
belongs to the day of its bid or, if that day was closed (the log's verdict is then `late`), to the
day of its row in the log.

If only a range of days is compared, lines of the adjacent days are also read, since they may claim
what our log counts within the range. A line without an impression claims any counted impression
of its auction that no other line claims. A column without a single matching value is reported once.

All of this is SQL: claims.sql reads the SSP's log, own.sql reads ours, and compare.sql compares
both. DuckDB spills to disk what does not fit into memory.
"""

import glob
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, TypeAlias

import duckdb
from msgspec import Struct

from snapbid.auctionlog.files import as_os_error, files_of
from snapbid.auctionlog.table import COLUMNS, LOGGED
from snapbid.operations.reconcile import claims
from snapbid.operations.reconcile.claims import Form, Seen, set_variables
from snapbid.warehouse.registry import FamilySpan

CAUSES: Final = {
    "no_id_fits": "no value in a column of the SSP's log is ours: another column may have the ids",
    "unreadable": "the line cannot be read",
    "unknown_ssp": "the line names an endpoint that is not this SSP's",
    "unknown_currency": "there is no exchange rate for the line's currency",
    "not_won_here": "no bid of ours in this auction for this impression",
    "test": "our bid answered a test request, which is not counted",
    "notice_missing": "we bid, but received no notice",
    "late": "the notice came after the bid had expired",
    "pending": "the notice is spooled until Redis is back",
    "duplicate": "the auction is in the SSP's log more often than it was counted",
    "price_differs": "the prices differ",
    "other_day": "it was counted on another UTC day",
    "not_in_their_log": "counted here, but not in the SSP's log",
    "in_a_gap": "our log has a gap at that time, or lacks what the report has: it is unknown",
}
GAP_MARGIN_MS: Final = 5_000  # by which the SSP's clock may differ from ours
FEW: Final = 10  # lines, below which none may fit by chance
_CONFIG: Final[dict[str, Any]] = {
    "threads": 1,
    "memory_limit": "250MB",
    "preserve_insertion_order": False,
}
_EPOCH: Final = date(1970, 1, 1)
_DAY_MS: Final = 86_400_000

Convert: TypeAlias = Callable[[str, date], Fraction | None]
"""Returns USD per unit of a currency on a day."""


class ReportedDay(NamedTuple):
    """The report's figures for a kind of notice on a day; no `cost_nanos` for billing notices."""

    number: int
    cost_nanos: int | None


Reported: TypeAlias = dict[tuple[str, date], ReportedDay]
FetchReport: TypeAlias = Callable[[date, date], Reported]
"""Returns the report's figures by kind and day, from a first day to a last."""

REPORTED: Final = {"win": ReportedDay(0, 0), "billing": ReportedDay(0, None)}
"""A day without figures; the report counts answers rather than bids, and no losses."""


class Terms(NamedTuple):
    """The terms of a comparison: the SSP, the days, the exchange rates and the price tolerance."""

    ssp: str
    descriptors: frozenset[str]  # the SSP's endpoints
    convert: Convert
    tolerance: int = 5_000  # micros of a CPM
    first: date | None = None
    last: date | None = None
    family: tuple[FamilySpan, ...] = ()  # days on which each descriptor is the SSP's; empty: all
    today: date = date.max  # whose rates lines without a day have, if no days are compared

    @property
    def spans(self) -> Sequence[FamilySpan]:
        """The days on which each descriptor's bids belong to the SSP."""
        return self.family or [FamilySpan(name, date.min, date.max) for name in self.descriptors]

    def rate(self, currency: str, day: date) -> Fraction | None:
        """Return USD per unit of a currency on a day; None if unknown."""
        return Fraction(1) if currency == "USD" else self.convert(currency, day)


class Dispute(NamedTuple):
    """A disputed auction; `line` is its line number in the SSP's log, None if it is missing there.

    Prices are CPMs in micros of their currency, or costs in nanos if the log has prices per
    impression.
    """

    cause: str
    kind: str
    auction: str
    imp: str | None
    line: int | None
    their_ms: int | None
    their_price: int | None
    their_currency: str
    our_ms: int | None
    our_price: int | None
    our_currency: str
    verdict: str
    detail: str


class LogGap(NamedTuple):
    """A gap in the auction log; `missing`: the most rows that may be lost, None if unknown.

    If `kind` is set, the gap is a whole day's shortfall: `missing` notices of this kind are in the
    report, but not in the log.
    """

    since_ms: int
    until_ms: int
    missing: int | None
    kind: str = ""

    def may_have(self, dispute: Dispute) -> bool:
        """Return whether the disputed notice may have been lost in the gap."""
        time_ms = dispute.their_ms
        if self.kind and dispute.kind != self.kind:
            return False
        if time_ms is None:
            return self.kind != ""  # on any of the days
        return self.since_ms - GAP_MARGIN_MS <= time_ms <= self.until_ms + GAP_MARGIN_MS


class DayTotals(Struct):
    """One day's totals for one kind of notice.

    `theirs` and `ours` count the notices in the SSP's log and in ours, `agreed` those in both that
    agree. `agreed_price_nanos` is the cost of the agreed notices with a price according to the
    SSP's log, converted at the rates of our bids' days; `agreed_cost_nanos` is their cost according
    to our log.
    """

    theirs: int = 0
    agreed: int = 0
    ours: int = 0
    cost_nanos: int = 0  # in our log
    price_nanos: int = 0  # in the SSP's log, leaving out prices without an exchange rate
    agreed_price_nanos: int = 0
    agreed_cost_nanos: int = 0


class Comparison:
    """The result of a comparison, complete once `disputes` is exhausted.

    `totals`: by kind and day; the day is None for lines without a time. `reported`: the report's
    figures; None unless days are compared and `fetch_report` is given.
    """

    def __init__(self, terms: Terms, fetch_report: FetchReport | None = None) -> None:
        self.terms = terms
        self._fetch_report = fetch_report
        self.reported: Reported | None = None
        self.seen = Seen({}, [], [])
        self.causes: Counter[str] = Counter()
        self.kinds: set[str] = set()
        self.lines = self.outside = 0
        self.without_price = self.without_time = 0  # among the lines that should have one
        self.without_rate: Counter[str] = Counter()  # lines with a price, by currency
        self.first, self.last = terms.first, terms.last
        self.gaps: list[LogGap] = []
        self.shortfalls: list[LogGap] = []  # notices that the report has and our log lacks
        self.totals: defaultdict[tuple[str, date | None], DayTotals] = defaultdict(DayTotals)

    def disputes(self, log: Path, form: Form, directory: Path) -> Iterator[Dispute]:
        """Compare an SSP's log with the auction log in a directory. Raises LogError or OSError."""
        with TemporaryDirectory(prefix="snapbid-reconcile-") as scratch, as_os_error():
            path = Path(scratch, "comparison.duckdb")
            with duckdb.connect(path, config=_CONFIG) as database:
                self._take_claims(database, log, form)
                load_own(database, files_of(directory, self.first, self.last), self.terms.spans)
                self.gaps = [LogGap(*gap) for gap in database.execute("FROM gaps").fetchall()]
                self._add_ours(database, "own_days")
                self._take_report()
                strange = self._strange_columns(database)
                for detail in strange.values():
                    yield self._counted(_of_column(detail))
                if "auction" not in strange:
                    for dispute in self._compare(database, strange):
                        yield self._counted(dispute)

    def _counted(self, dispute: Dispute) -> Dispute:
        self.causes[dispute.cause] += 1
        return dispute

    def _take_claims(self, database: Any, log: Path, form: Form) -> None:
        terms = self.terms
        self.seen = claims.load(database, log, form)
        variables = {"first_day": terms.first, "last_day": terms.last, "tolerance": terms.tolerance}
        set_variables(database, variables | {"descriptors": list(terms.descriptors)})
        database.execute("CREATE TABLE claims AS FROM claims_of_days")
        database.execute(_KINDS)
        self.kinds = {kind for (kind,) in database.execute("FROM kinds").fetchall()}
        (lines,) = database.execute("SELECT count(*) FROM lines").fetchone()
        self.lines, self.without_price, self.without_time, first, last = database.execute(
            _SUMMARY
        ).fetchone()
        database.execute("DROP TABLE lines CASCADE")
        self.outside = lines - self.lines
        if first is not None:
            self.first, self.last = self.first or first, self.last or last
        set_variables(database, {"first_seen": self.first, "last_seen": self.last})
        for kind, day, currency, number, priced, price in database.execute(_THEIR_DAYS).fetchall():
            self.totals[kind, day].theirs += number
            if not self._add_theirs(kind, day, currency, price) and priced:
                self.without_rate[currency] += priced

    def _add_theirs(self, kind: str, day: date | None, currency: str, price: int) -> bool:
        """Convert a sum of prices in the SSP's log to USD, and add it to the totals.

        Returns False, and adds nothing, if the currency has no rate.
        """
        usd = self.terms.rate(currency, day or self.first or self.terms.today)
        if usd is not None:
            self.totals[kind, day].price_nanos += round(price * usd)
        return usd is not None

    def _add_ours(self, database: Any, view: str) -> None:
        for kind, day, number, cost in database.execute(f"FROM {view}").fetchall():
            self.totals[kind, day].ours += number
            self.totals[kind, day].cost_nanos += cost

    def _take_report(self) -> None:
        """Fetch the report of the compared days, and count the notices that our log lacks."""
        if self._fetch_report is None or self.first is None or self.last is None:
            return
        fetched = self._fetch_report(self.first, self.last)
        self.reported = {key: day for key, day in fetched.items() if key[0] in self.kinds}
        for (kind, day), (number, _) in self.reported.items():
            ours = self.totals[kind, day].ours
            if number > ours:
                since_ms = (day - _EPOCH).days * _DAY_MS
                gap = LogGap(since_ms, since_ms + _DAY_MS, number - ours, kind)
                self.shortfalls.append(gap)

    def _strange_columns(self, database: Any) -> dict[str, str]:
        """Return a note on each field that has no matching value in the SSP's log."""
        strange: dict[str, str] = {}
        if self.gaps:  # the missing rows might match
            return strange
        missing = sum(gap.missing or 0 for gap in self.shortfalls)
        for field, (sql, what) in _FITS.items():
            number, fitting = database.execute(sql).fetchone()
            if field == "imp" and not fitting:
                database.execute(_WHOLE_IMPS)
                number, fitting = database.execute(sql).fetchone()
            if number - missing >= FEW and not fitting:
                names = self.seen.columns
                name = f"the column {names[field]!r}" if field in names else f"the {field}s"
                strange[field] = f"none of {number} values of {name} is {what}"
                if field == "auction":
                    break
        return strange

    def _compare(self, database: Any, ignored: dict[str, str]) -> Iterator[Dispute]:
        """Yield the disputes, as if the SSP's log did not have the fields in `ignored`."""
        for field in ignored:
            database.execute(f"UPDATE claims SET {field} = NULL")
        self._add_rates(database)
        claims.run(database, "compare.sql")
        for kind, day, number, price, cost in database.execute("FROM agreed_days").fetchall():
            of = self.totals[kind, day]
            of.agreed += number
            of.agreed_price_nanos += price
            of.agreed_cost_nanos += cost
        for row in database.execute("FROM multiplied_days").fetchall():
            self._add_theirs(*row)
        self._add_ours(database, "other_days")
        found = database.execute("FROM disputes")
        left = [[gap.missing for gap in gaps] for gaps in (self.gaps, self.shortfalls)]
        while rows := found.fetchmany(1_000):
            for *values, may_be_in_gap in rows:
                dispute = Dispute(*values)
                if may_be_in_gap and self._is_in_gap(dispute, left):
                    dispute = dispute._replace(cause="in_a_gap")
                yield dispute

    def _add_rates(self, database: Any) -> None:
        database.execute("CREATE TABLE rates (currency VARCHAR, day DATE, usd DOUBLE)")
        with database.cursor() as reading:
            found = reading.execute(_CURRENCIES)
            with database.appender("rates") as rates:
                while rows := found.fetchmany(1_000):
                    known = ((*row, self.terms.rate(*row)) for row in rows)
                    rates.append_rows((*row, float(usd)) for *row, usd in known if usd is not None)

    def _is_in_gap(self, dispute: Dispute, left: list[list[int | None]]) -> bool:
        """Return whether our log may have lost the disputed notice; if so, deduct it from `left`.

        `left`: the number of rows still missing in each gap, and in the total of each day (None if
        unknown). A row lost in a gap is also missing from its day's total, so it may be deducted
        from both.
        """
        found = False
        for gaps, missing in zip((self.gaps, self.shortfalls), left, strict=True):
            for number, gap in enumerate(gaps):
                rows = missing[number]
                if rows != 0 and gap.may_have(dispute):
                    missing[number] = None if rows is None else rows - 1
                    found = True
                    break
        return found


def load_own(database: Any, paths: Sequence[Path], family: Sequence[FamilySpan]) -> None:
    """Load bids, the notices to compare and gaps from the auction log's files (own.sql)."""
    database.execute("CREATE TABLE family (descriptor VARCHAR, first_day DATE, last_day DATE)")
    database.executemany("INSERT INTO family VALUES ($1, $2, $3)", family)
    if paths:
        set_variables(database, {"paths": [glob.escape(str(path)) for path in paths]})
        database.execute("CREATE VIEW rows AS FROM read_parquet(getvariable('paths'))")
    else:
        database.execute(LOGGED)
        database.execute(
            f"CREATE TABLE rows AS {COLUMNS}".replace("$machine", "''").replace("$worker", "''")
        )
    claims.run(database, "own.sql")


# Kinds of all days, since the SSP's log may have no line on the days compared.
_KINDS: Final = """
CREATE TABLE kinds AS
WITH readable AS (FROM claims_of_all_days WHERE mistake IS NULL)
SELECT DISTINCT kind FROM readable
UNION ALL
SELECT getvariable('kind') WHERE NOT EXISTS (FROM readable)
"""
_SUMMARY: Final = """
SELECT
    count(*), count(*) FILTER (mistake IS NULL AND kind <> 'loss' AND price IS NULL),
    count(*) FILTER (mistake IS NULL AND time_ms IS NULL), min(day), max(day)
FROM claims WHERE is_inside
"""
_THEIR_DAYS: Final = """
SELECT
    kind, day, currency, count(*), count(price) FILTER (has_money),
    coalesce(sum(price) FILTER (has_money), 0)::HUGEINT
FROM (SELECT *, kind <> 'loss' AND auction <> '' AS has_money FROM claims)
WHERE is_inside AND NOT of_unknown_kind GROUP BY ALL
"""
_CURRENCIES: Final = """
SELECT DISTINCT claims.currency, day_of(bids.time_ms)
FROM claims JOIN bids USING (auction) WHERE claims.currency <> bids.currency
"""
# A data frame writes a column of integers with an empty cell as floats: 1 becomes 1.0.
_WHOLE_IMPS: Final = r"UPDATE claims SET imp = regexp_replace(imp, '^(\d+)\.0$', '\1')"
_FITS: Final = {
    "auction": (
        "SELECT (SELECT count(*) FROM claims WHERE auction <> ''), "
        "(SELECT count(*) FROM claims SEMI JOIN bids USING (auction))",
        "the id of an auction with a bid of ours on these days",
    ),
    "imp": (
        "SELECT (SELECT count(imp) FROM claims SEMI JOIN bids USING (auction)), "
        "(SELECT count(*) FROM claims SEMI JOIN bids USING (auction, imp))",
        "the id of an impression of its auction that we have bid on",
    ),
    "ssp": (
        "SELECT count(ssp), "
        "count(*) FILTER (list_contains(getvariable('descriptors'), ssp)) "
        "FROM claims WHERE auction <> ''",
        "an endpoint of this SSP",
    ),
}
"""Field -> SQL that counts claims with a value and with a matching value, and what matches."""


def _of_column(detail: str) -> Dispute:
    return Dispute(
        "no_id_fits", "", "", None, None, None, None, "", None, None, "", "", detail
    )  # fmt: skip
