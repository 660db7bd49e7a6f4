"""Report bodies, from the cache or else from the warehouse.

Concurrent requests for the same report share one fetch, so in a burst each worker asks the
warehouse only once.
"""

import asyncio
import contextlib
import logging
from fractions import Fraction
from typing import Final

import asyncpg
import msgspec

from snapbid.base.errors import Problem
from snapbid.base.reasons import text_of
from snapbid.base.repeats import RepeatedLog
from snapbid.report.cache import FetchedReport, ReportCache, redis_key
from snapbid.report.window import ReportWindow
from snapbid.warehouse import reports
from snapbid.warehouse.unavailable import UNAVAILABLE

ANSWER_TIMEOUT_S: Final = 5.0
NO_ACTIVITY: Final = reports.DayFigures(bids=0, wins=0, win_cpm_micros=0, imps=0)

repeated = RepeatedLog(logging.getLogger(__name__))


class ReportSource:
    """A worker's source of reports."""

    def __init__(self, pool: asyncpg.Pool, cache: ReportCache) -> None:
        self._pool = pool
        self._cache = cache
        self._fetches: dict[tuple[str, ReportWindow], asyncio.Task[FetchedReport | None]] = {}

    async def get(self, ssp: str, window: ReportWindow, *, use_cache: bool) -> FetchedReport:
        """Get the report of a canonical SSP id.

        Raises Problem if the report cannot be read within ANSWER_TIMEOUT_S.
        """
        key = (ssp, window)
        until = asyncio.get_running_loop().time() + ANSWER_TIMEOUT_S
        task = self._fetches.get(key)
        if task is None and use_cache:
            cached = await self._cache.get(redis_key(ssp, window))
            if cached is not None:
                return cached
            task = self._fetches.get(key)
        if task is None:
            task = asyncio.create_task(self._fetch(ssp, window, use_cache))
            self._fetches[key] = task
            task.add_done_callback(lambda task: self._end(key, task))
        report = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                report = await asyncio.shield(task)
        if report is None:
            raise Problem("the report cannot be read right now; retry after a short delay")
        return report

    def _end(self, key: tuple[str, ReportWindow], task: asyncio.Task[FetchedReport | None]) -> None:
        del self._fetches[key]
        if not task.cancelled():
            task.exception()  # retrieve it: all callers may have timed out

    async def _fetch(self, ssp: str, window: ReportWindow, use_cache: bool) -> FetchedReport | None:
        """Fetch a report from the cache, or else from the warehouse.

        Returns None if the warehouse is unavailable.
        """
        # Read the cache again within the task: another task may have finished meanwhile.
        cached = await self._cache.get(redis_key(ssp, window)) if use_cache else None
        if cached is not None:
            return cached
        try:
            days = await reports.fetch_days(self._pool, ssp, window.first, window.last)
        except UNAVAILABLE as error:
            repeated.warning(
                "failed to fetch a report: %(reason)s; answering 500 until the warehouse is back",
                {"reason": text_of(error)},
            )
            return None
        body = encode(ssp, window, days)
        if use_cache:
            await self._cache.put(redis_key(ssp, window), body)
        return FetchedReport(body)


def encode(ssp: str, window: ReportWindow, days: reports.FiguresByDay) -> bytes:
    """Encode a report's body (document 1): a row for every day of the window, zeros included."""
    rows = [(day, days.get(day, NO_ACTIVITY)) for day in window.days()]
    return msgspec.json.encode(
        {
            "ssp": ssp,
            "from": str(window.first),
            "to": str(window.last),
            "currency": "USD",
            "days": [
                {
                    "date": str(day),
                    "bids": figures.bids,
                    "wins": figures.wins,
                    "imps": figures.imps,
                    "totalCpmUsd": msgspec.Raw(usd(figures.win_cpm_micros).encode()),
                }
                for day, figures in rows
            ],
        }
    )


def usd(cpm_micros: int) -> str:
    """Format the cost of wins in USD; `cpm_micros` is the sum of their CPMs (micro-USD).

    The result is a JSON number without float noise, rounded half to even to 6 decimals, always with
    a decimal point.
    """
    micros = round(Fraction(cpm_micros, 1000))
    whole, rest = divmod(abs(micros), 1_000_000)
    decimals = f"{rest:06d}".rstrip("0") or "0"
    return f"{'-' if micros < 0 else ''}{whole}.{decimals}"
