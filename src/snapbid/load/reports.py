"""The report before and after a run, and what lies between (document 1).

A report may come from a cache that is 5 minutes old, and says so (`Age`). One that is too old is
asked for again with an earlier first day, which is another entry of that cache.
"""

import asyncio
import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from snapbid.load.books import Account
from snapbid.load.result import Compared, Reconciliation

WAITS_S: Final = (1.5, 3.0, 6.0, 12.0, 15.0)  # before each look, until both sides agree
PATIENCE_S: Final = 330.0  # with the cache
CACHED_S: Final = 300  # document 1, Caching
TIMEOUT_S: Final = 10.0
TRIES: Final = 3
MAX_DAYS: Final = 7

EXACT, WITHIN, DIFFERENT, NOT_DONE = "exact", "within bounds", "different", "not done"
Tell = Callable[[str], None]


class ReportError(RuntimeError):
    """The report cannot be read; the message says why."""


class Window(NamedTuple):
    """Days of a report, both inclusive."""

    first: date
    last: date


class Day(msgspec.Struct):
    """A row of a report, as far as it is compared; the money as the decimal that is written."""

    date: str
    bids: int
    wins: int
    imps: int
    totalCpmUsd: Decimal


class Report(msgspec.Struct):
    """A report."""

    days: list[Day]


class Sums(NamedTuple):
    """An SSP's counts over the run's days; money in micro-USD."""

    bids: int = 0
    wins: int = 0
    imps: int = 0
    micros: Decimal = Decimal(0)


class Reports:
    """Reads the reports of SSPs; `tokens` by canonical id. Raises ReportError."""

    def __init__(self, host: str, port: int, tokens: Mapping[str, str], tell: Tell) -> None:
        self._host = host
        self._port = port
        self._tokens = tokens
        self._tell = tell
        self._first = datetime.now(UTC).date()

    async def fetch_all(self) -> dict[str, Sums]:
        """The sums of every SSP, from now or later."""
        return {ssp: await self._fetch(ssp) for ssp in self._tokens}

    async def _fetch(self, ssp: str) -> Sums:
        asked = time.monotonic()
        ages: dict[Window, int] = {}
        for window in _windows(self._first):
            report, ages[window] = await asyncio.to_thread(self._get, ssp, window)
            if time.monotonic() - ages[window] > asked:
                return _sums(report, self._first)
        while time.monotonic() - asked < PATIENCE_S:
            window = max(ages, key=ages.__getitem__)
            wait_s = max(1, CACHED_S + 1 - ages[window])
            self._tell(f"every report of {ssp} is cached: waiting {wait_s} s for one to expire")
            await asyncio.sleep(wait_s)
            ages = {each: age + wait_s for each, age in ages.items()}
            report, ages[window] = await asyncio.to_thread(self._get, ssp, window)
            if time.monotonic() - ages[window] > asked:
                return _sums(report, self._first)
        raise ReportError(f"{ssp}: only old reports for {PATIENCE_S:.0f} s")

    def _get(self, ssp: str, window: Window) -> tuple[Report, int]:
        """A report and at most how many seconds old it is, rounded up; 0 where it is new."""
        for _ in range(TRIES):
            status, headers, body = self._ask(ssp, window)
            if status == 200:
                age = headers.get("Age")
                return _read(ssp, body), 0 if age is None else int(age) + 1
            if status != 429:
                raise ReportError(f"{ssp}: status {status}: {body[:200].decode(errors='replace')}")
            wait_s = min(61, int(headers.get("Retry-After", 60)) + 1)
            self._tell(f"the report's rate limit is reached: waiting {wait_s} s")
            time.sleep(wait_s)
        raise ReportError(f"{ssp}: the report's rate limit does not let us in")

    def _ask(self, ssp: str, window: Window) -> tuple[int, http.client.HTTPMessage, bytes]:
        client = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            path = f"/api/v1/ssp/{ssp}/report?from={window.first}&to={window.last}"
            client.request("GET", path, headers={"Authorization": f"Bearer {self._tokens[ssp]}"})
            answer = client.getresponse()
            return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ReportError(f"{ssp}: {error or type(error).__name__}") from error
        finally:
            client.close()


def _windows(first: date) -> Iterator[Window]:
    """Windows that hold every day from `first` to today."""
    today = datetime.now(UTC).date()
    for days in range(MAX_DAYS - (today - first).days):
        yield Window(first - timedelta(days), today)


def _read(ssp: str, body: bytes) -> Report:
    try:
        return msgspec.json.decode(body, type=Report)
    except msgspec.DecodeError as error:
        raise ReportError(f"{ssp}: {error}") from error


def _sums(report: Report, first: date) -> Sums:
    days = [day for day in report.days if day.date >= first.isoformat()]
    return Sums(
        sum(day.bids for day in days),
        sum(day.wins for day in days),
        sum(day.imps for day in days),
        sum((day.totalCpmUsd for day in days), Decimal(0)) * 1_000_000,
    )


async def reconcile(
    reports: Reports, before: Mapping[str, Sums], accounts: Mapping[str, Account], tell: Tell
) -> Reconciliation:
    """Waits for the drain, and compares until both sides agree or time is up."""
    rows: list[Compared] = []
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
        if all(row.agrees for row in rows) or any(_beyond(row) for row in rows):
            break
        tell("the report does not agree yet: looking again")
    return judged(rows)


def compare(ssp: str, account: Account, before: Sums, after: Sums) -> list[Compared]:
    """The four numbers of one SSP.

    The report rounds its sum of money to the micro-USD, once before and once after the run; the
    difference of the two is compared to within what that can make.
    """
    counts = [
        ("bids", account.bids, after.bids - before.bids, account.maybe_bids),
        ("wins", account.wins, after.wins - before.wins, account.maybe_wins),
        ("imps", account.imps, after.imps - before.imps, account.maybe_imps),
    ]
    rows = [
        Compared(ssp, what, sent, found, maybe, sent <= found <= sent + maybe)
        for what, sent, found, maybe in counts
    ]
    sent, maybe = Decimal(account.cpm_micros) / 1000, Decimal(account.maybe_cpm_micros) / 1000
    found = after.micros - before.micros
    rounding = Decimal("0.5") if before.micros == 0 else Decimal(1)
    agrees = sent - rounding <= found <= sent + maybe + rounding
    rows.append(Compared(ssp, "micro-USD", round(sent), round(found), round(maybe), agrees))
    return rows


def _beyond(row: Compared) -> bool:
    """More is reported than was sent, which no waiting mends."""
    return not row.agrees and row.reported > row.sent + row.unanswered


def judged(rows: list[Compared]) -> Reconciliation:
    """The status that the rows give."""
    wrong = [row for row in rows if not row.agrees]
    if wrong:
        row = wrong[0]
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        detail = f"{row.ssp} {row.what}: {row.sent} sent, {row.reported} reported{more}"
        return Reconciliation(DIFFERENT, rows, detail)
    unanswered = sum(row.unanswered for row in rows if row.what != "micro-USD")
    if unanswered:
        detail = f"{unanswered} requests were never answered, and may count or not"
        return Reconciliation(WITHIN, rows, detail)
    return Reconciliation(EXACT, rows, "bids, wins, imps and money are equal to the unit")
