"""Reports as they are answered: from the cache, else from the warehouse, one query at a time each.

Who asks for what is being fetched already waits for that answer, so that a crowd with one question
reaches the warehouse once per worker.
"""

import asyncio
import logging
from fractions import Fraction
from typing import Final, NamedTuple

import asyncpg
import msgspec

from snapbid.report.cache import Cache
from snapbid.report.window import Window
from snapbid.warehouse import reports
from snapbid.warehouse.away import AWAY

ANSWER_TIMEOUT_S: Final = 5.0
NOTHING: Final = reports.Day(bids=0, wins=0, win_cpm_micros=0, imps=0)

logger = logging.getLogger("snapbid")


class WarehouseAway(Exception):
    """The warehouse did not answer."""


class Report(NamedTuple):
    """A report's body, and its age in seconds where it comes from the cache."""

    body: bytes
    age_s: int | None = None


class Reports:
    """The reports of a worker."""

    def __init__(self, pool: asyncpg.Pool, cache: Cache) -> None:
        self._pool = pool
        self._cache = cache
        self._under_way: dict[tuple[str, Window], asyncio.Task[Report]] = {}

    async def get(self, ssp: str, window: Window, *, use_cache: bool) -> Report:
        """The report of a canonical SSP id. Raises WarehouseAway, within ANSWER_TIMEOUT_S."""
        key = (ssp, window)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._find(ssp, window, use_cache))
            self._under_way[key] = task
            task.add_done_callback(lambda task: self._end(key, task))
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await asyncio.shield(task)
        except TimeoutError as error:
            raise WarehouseAway from error

    def _end(self, key: tuple[str, Window], task: asyncio.Task[Report]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # which is told; everybody who asked may have given up before

    async def _find(self, ssp: str, window: Window, use_cache: bool) -> Report:
        # The look-up belongs to the task: who comes when it is over finds what it has stored.
        cached = await self._cache.get(ssp, window) if use_cache else None
        if cached is not None:
            return Report(cached.body, cached.age_s)
        try:
            days = await reports.fetch_days(self._pool, ssp, window.first, window.last)
        except AWAY as error:
            reason = str(error) or type(error).__name__
            logger.warning("the warehouse did not answer a report: %s", reason)
            raise WarehouseAway from error
        body = encode(ssp, window, days)
        if use_cache:
            await self._cache.put(ssp, window, body)
        return Report(body)


def encode(ssp: str, window: Window, days: reports.Days) -> bytes:
    """The body of document 1: one row per day of the window, also where nothing happened."""
    rows = [(day, days.get(day, NOTHING)) for day in window.days()]
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
    """A sum of CPMs (micro-USD per thousand) as what it costs: USD, half-even to 6 decimals.

    JSON's number without the noise of a float, and always with a decimal point.
    """
    micros = round(Fraction(cpm_micros, 1000))
    whole, rest = divmod(abs(micros), 1_000_000)
    decimals = f"{rest:06d}".rstrip("0") or "0"
    return f"{'-' if micros < 0 else ''}{whole}.{decimals}"
