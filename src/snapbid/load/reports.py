"""The report before and after a run, and what lies between (document 1).

A report may come from a cache that is 5 minutes old, and says so (`Age`). One that is too old is
asked for again with an earlier first day, which is another entry of that cache.
"""

import asyncio
import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from snapbid.load.books import Account
from snapbid.load.result import Compared, Reconciliation

WAITS_S: Final = (1.5, 3.0, 6.0, 12.0, 15.0)  # before each look, until both sides agree
PATIENCE_S: Final = 330.0  # with the cache
TIMEOUT_S: Final = 10.0
MAX_DAYS: Final = 7

EXACT, WITHIN, DIFFERENT, NOT_DONE = "exact", "within bounds", "different", "not done"
Tell = Callable[[str], None]


class ReportError(RuntimeError):
    """The report cannot be read; the message says why."""


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
        told = False
        while True:
            for first, last in _windows(self._first):
                report, age_s = await asyncio.to_thread(self._get, ssp, first, last)
                if age_s is None or time.monotonic() - age_s - 1 > asked:
                    return _sums(report, self._first)
            if time.monotonic() - asked > PATIENCE_S:
                raise ReportError(f"{ssp}: only old reports for {PATIENCE_S:.0f} s")
            if not told:
                self._tell(f"every report of {ssp} is cached: waiting for one to expire (5 min)")
                told = True
            await asyncio.sleep(15)

    def _get(self, ssp: str, first: date, last: date) -> tuple[Any, int | None]:
        """A report and its age in seconds, where it comes from the cache."""
        path = f"/api/v1/ssp/{ssp}/report?from={first}&to={last}"
        client = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            for _ in range(3):
                headers = {"Authorization": f"Bearer {self._tokens[ssp]}"}
                client.request("GET", path, headers=headers)
                answer = client.getresponse()
                body = answer.read()
                if answer.status == 429:
                    time.sleep(min(61, int(answer.headers.get("Retry-After", 60)) + 1))
                    continue
                if answer.status != 200:
                    raise ReportError(f"{ssp}: status {answer.status}: {body[:200].decode()}")
                age = answer.headers.get("Age")
                return json.loads(body, parse_float=Decimal), None if age is None else int(age)
            raise ReportError(f"{ssp}: the report's rate limit does not let us in")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ReportError(f"{ssp}: {error or type(error).__name__}") from error
        finally:
            client.close()


def _windows(first: date) -> Iterator[tuple[date, date]]:
    """Windows that hold every day from `first` to today."""
    today = datetime.now(UTC).date()
    for days in range(MAX_DAYS - (today - first).days):
        yield first - timedelta(days), today


def _sums(report: Any, first: date) -> Sums:
    days = [day for day in report["days"] if day["date"] >= first.isoformat()]
    micros = sum((Decimal(day["totalCpmUsd"]) * 1_000_000 for day in days), Decimal(0))
    bids, wins, imps = (sum(day[name] for day in days) for name in ("bids", "wins", "imps"))
    return Sums(bids, wins, imps, micros)


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
        if all(row.agrees for row in rows):
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
