"""Reads the report before and after a run, and compares its growth with what was sent (document 1).

The server caches reports for 5 minutes; a cached report states its `Age`. A report that is too old
is requested again with an earlier first day, since each range of days is cached separately.
"""

import asyncio
import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from snapbid.base.reasons import reason
from snapbid.loadtest.accounts import Account
from snapbid.loadtest.result import ComparedFigure, Reconciliation

WAITS_S: Final = (1.5, 3.0, 6.0, 12.0, 15.0)  # before each attempt, until both sides agree
PATIENCE_S: Final = 330.0  # until the cache gives a fresh report
CACHED_S: Final = 300  # document 1, Caching
TIMEOUT_S: Final = 10.0
TRIES: Final = 3
MAX_DAYS: Final = 7

EXACT, WITHIN, DIFFERENT, NOT_DONE = "exact", "within bounds", "different", "not done"
Say = Callable[[str], None]


class ReportError(RuntimeError):
    """The report cannot be fetched or read; the message says why."""


class DateRange(NamedTuple):
    """The first and the last day of a report, both included."""

    first: date
    last: date


class ReportRow(msgspec.Struct):
    """The fields of a report's row that are compared; amounts keep their decimals as received."""

    date: str
    bids: int
    wins: int
    imps: int
    totalCpmUsd: Decimal


class ReceivedReport(msgspec.Struct):
    """The body of a report response."""

    days: list[ReportRow]


class SspTotals(NamedTuple):
    """An SSP's totals over the days of the run; money in micro-USD."""

    bids: int = 0
    wins: int = 0
    imps: int = 0
    micros: Decimal = Decimal(0)


class ReportReader:
    """Reads the reports of SSPs; `tokens` maps canonical ids to tokens. Raises ReportError."""

    def __init__(self, host: str, port: int, tokens: Mapping[str, str], say: Say) -> None:
        self._host = host
        self._port = port
        self._tokens = tokens
        self._say = say
        self._first = datetime.now(UTC).date()

    async def fetch_all(self) -> dict[str, SspTotals]:
        """Fetch the totals of every SSP, from reports made after this call."""
        return {ssp: await self._fetch(ssp) for ssp in self._tokens}

    async def _fetch(self, ssp: str) -> SspTotals:
        asked = time.monotonic()
        ages: dict[DateRange, int] = {}
        for days in _ranges(self._first):
            report, ages[days] = await self._get(ssp, days)
            if time.monotonic() - ages[days] > asked:
                return _totals(report, self._first)
        while time.monotonic() - asked < PATIENCE_S:
            days = max(ages, key=ages.__getitem__)
            wait_s = max(1, CACHED_S + 1 - ages[days])
            self._say(f"every report of {ssp} is cached: waiting {wait_s} s for one to expire")
            await asyncio.sleep(wait_s)
            ages = {other: age + wait_s for other, age in ages.items()}
            report, ages[days] = await self._get(ssp, days)
            if time.monotonic() - ages[days] > asked:
                return _totals(report, self._first)
        raise ReportError(f"{ssp}: received no fresh report within {PATIENCE_S:.0f} s")

    async def _get(self, ssp: str, days: DateRange) -> tuple[ReceivedReport, int]:
        """Fetch a report and its age in seconds, rounded up; 0 if it was not cached."""
        for _ in range(TRIES):
            status, headers, body = await asyncio.to_thread(self._request, ssp, days)
            if status == 200:
                age = headers.get("Age")
                return _parse(ssp, body), 0 if age is None else int(age) + 1
            if status != 429:
                raise ReportError(
                    f"{ssp}: the report endpoint answered {status}:"
                    f" {body[:200].decode(errors='replace')}"
                )
            wait_s = min(61, int(headers.get("Retry-After", 60)) + 1)
            self._say(f"the report's rate limit is reached: waiting {wait_s} s")
            await asyncio.sleep(wait_s)
        raise ReportError(f"{ssp}: still over the report's rate limit after {TRIES} tries")

    def _request(self, ssp: str, days: DateRange) -> tuple[int, http.client.HTTPMessage, bytes]:
        client = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            path = f"/api/v1/ssp/{ssp}/report?from={days.first}&to={days.last}"
            client.request("GET", path, headers={"Authorization": f"Bearer {self._tokens[ssp]}"})
            answer = client.getresponse()
            return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException) as error:
            why = reason(error, f"http://{self._host}:{self._port}")
            raise ReportError(f"{ssp}: the report cannot be fetched: {why}") from error
        finally:
            client.close()


def _ranges(first: date) -> Iterator[DateRange]:
    """Yield ranges that end today; the first begins on `first`, each further one a day earlier."""
    today = datetime.now(UTC).date()
    for days in range(MAX_DAYS - (today - first).days):
        yield DateRange(first - timedelta(days), today)


def _parse(ssp: str, body: bytes) -> ReceivedReport:
    try:
        return msgspec.json.decode(body, type=ReceivedReport)
    except msgspec.DecodeError as error:
        raise ReportError(f"{ssp}: {error}") from error


def _totals(report: ReceivedReport, first: date) -> SspTotals:
    days = [day for day in report.days if day.date >= first.isoformat()]
    return SspTotals(
        sum(day.bids for day in days),
        sum(day.wins for day in days),
        sum(day.imps for day in days),
        sum((day.totalCpmUsd for day in days), Decimal(0)) * 1_000_000,
    )


async def reconcile(
    reports: ReportReader,
    before: Mapping[str, SspTotals],
    accounts: Mapping[str, Account],
    say: Say,
) -> Reconciliation:
    """Compare the report with the accounts, repeatedly, since the drain takes a few seconds.

    Stops when they agree, when the report exceeds what was sent, or after the last of `WAITS_S`. If
    the report cannot be read, the status is `NOT_DONE`.
    """
    rows: list[ComparedFigure] = []
    for wait_s in WAITS_S:
        await asyncio.sleep(wait_s)
        try:
            after = await reports.fetch_all()
        except ReportError as error:
            return Reconciliation(NOT_DONE, rows, f"the report cannot be read: {error}")
        rows = [
            row for ssp, account in sorted(accounts.items())
            for row in compare(ssp, account, before[ssp], after[ssp])
        ]  # fmt: skip
        if all(row.agrees for row in rows) or any(_exceeds(row) for row in rows):
            break
        say("the report does not agree yet: retrying")
    return summarise(rows)


def compare(
    ssp: str, account: Account, before: SspTotals, after: SspTotals
) -> list[ComparedFigure]:
    """Compare an SSP's four figures in the client's account with their growth in the report.

    The report rounds money to the micro-USD both before and after the run, so the growth may be off
    by 1 micro-USD, or by 0.5 if it starts from 0.
    """
    counts = [
        ("bids", account.bids, after.bids - before.bids, account.maybe_bids),
        ("wins", account.wins, after.wins - before.wins, account.maybe_wins),
        ("imps", account.imps, after.imps - before.imps, account.maybe_imps),
    ]
    rows = [
        ComparedFigure(ssp, what, sent, reported, maybe, sent <= reported <= sent + maybe)
        for what, sent, reported, maybe in counts
    ]
    sent, maybe = Decimal(account.cpm_micros) / 1000, Decimal(account.maybe_cpm_micros) / 1000
    reported = after.micros - before.micros
    rounding = Decimal("0.5") if before.micros == 0 else Decimal(1)
    agrees = sent - rounding <= reported <= sent + maybe + rounding
    rows.append(
        ComparedFigure(ssp, "micro-USD", round(sent), round(reported), round(maybe), agrees)
    )
    return rows


def _exceeds(row: ComparedFigure) -> bool:
    """Return whether the report has more than was sent, so that waiting cannot help."""
    return not row.agrees and row.reported > row.sent + row.unanswered


def summarise(rows: list[ComparedFigure]) -> Reconciliation:
    """Build the reconciliation, with the status that follows from the figures."""
    wrong = [row for row in rows if not row.agrees]
    if wrong:
        row = wrong[0]
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        detail = f"{row.ssp} {row.what}: {row.sent} sent, {row.reported} reported{more}"
        return Reconciliation(DIFFERENT, rows, detail)
    unanswered = sum(row.unanswered for row in rows if row.what != "micro-USD")
    if unanswered:
        detail = f"{unanswered} requests were never answered, and may or may not count"
        return Reconciliation(WITHIN, rows, detail)
    return Reconciliation(EXACT, rows, "bids, wins, imps and money are equal to the unit")
