"""Provides diagnoses as JSON, from the cache or else from the warehouse and Redis.

A window of days comes from the warehouse, the last few minutes from Redis. The latest answers, and
the latest example of each mistake, always come from Redis. Without Redis, a window of days has no
checklist, and the last few minutes are unavailable.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import asyncpg
import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.errors import Problem
from snapbid.base.reasons import text_of
from snapbid.base.redis_keys import REPORT_CACHE
from snapbid.base.repeats import RepeatedLog
from snapbid.operations.golive.store import RecentRequestStats, RequestStatsStore
from snapbid.partners.diagnosis.document import diagnose
from snapbid.partners.diagnosis.window import MINUTES, DiagnosisWindow
from snapbid.report.cache import TTL_S, FetchedReport, ReportCache
from snapbid.warehouse import diagnosis
from snapbid.warehouse.diagnosis import DayHistory
from snapbid.warehouse.reports import TIMEOUT_S
from snapbid.warehouse.unavailable import UNAVAILABLE

LAST_TTL_S: Final = 10  # short, since partners read the last minutes to see the effect of a change
ANSWER_TIMEOUT_S: Final = 0.5

Numbers = Callable[[], Mapping[str, int]]

repeated = RepeatedLog(logging.getLogger(__name__))


def ttl_s(window: DiagnosisWindow) -> int:
    """Return how long to cache a diagnosis (s)."""
    return LAST_TTL_S if window.days is None else TTL_S


class DiagnosisSource:
    """Builds diagnoses for a worker; `numbers()` maps descriptors to SSP numbers."""

    def __init__(self, pool: asyncpg.Pool, redis: Redis, numbers: Numbers, base_url: str) -> None:
        self._pool = pool
        self._request_stats = RequestStatsStore(redis)
        self._numbers = numbers
        self._base_url = base_url
        self._cache = ReportCache(redis)

    async def get(
        self,
        ssp: str,
        descriptors: list[str],
        window: DiagnosisWindow,
        now: datetime,
        *,
        use_cache: bool,
    ) -> FetchedReport:
        """Return the diagnosis of a canonical id and its descriptors.

        Raises Problem if the figures of the window cannot be read.
        """
        key = f"{REPORT_CACHE}{ssp}:diagnosis:{window.key}"
        cached = await self._cache.get(key, ttl_s(window)) if use_cache else None
        if cached is not None:
            return cached
        recent = await self._recent(descriptors, window, now)
        if recent is None and window.days is None:
            raise Problem(
                "the figures of the last few minutes cannot be read right now; retry after a short"
                " delay"
            )
        history = await self._history(ssp, window)
        document = diagnose(ssp, window, now, history, recent, self._base_url)
        body = msgspec.json.encode(document)
        if use_cache:
            await self._cache.put(key, body, ttl_s(window))
        return FetchedReport(body)

    async def _recent(
        self, descriptors: list[str], window: DiagnosisWindow, now: datetime
    ) -> dict[str, RecentRequestStats] | None:
        numbers = {name: number for name, number in self._numbers().items() if name in descriptors}
        minutes = MINUTES if window.days is None else 0
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                recent = await self._request_stats.read_recent(
                    list(numbers.values()), minutes, int(now.timestamp())
                )
        except (RedisError, OSError) as error:
            repeated.warning(
                "failed to read statistics for a diagnosis: %(reason)s; omitting the checklist and"
                " the most recent minutes until Redis is back",
                {"reason": text_of(error)},
            )
            return None
        return {name: recent[number] for name, number in numbers.items()}

    async def _history(self, ssp: str, window: DiagnosisWindow) -> DayHistory:
        if window.days is None:
            return DayHistory([], [])
        try:
            return await diagnosis.fetch(self._pool, ssp, window.days, TIMEOUT_S)
        except UNAVAILABLE as error:
            repeated.warning(
                "failed to read the daily figures for a diagnosis: %(reason)s; answering 500 until"
                " the warehouse is back",
                {"reason": text_of(error)},
            )
            raise Problem(
                "the daily figures cannot be read right now; retry after a short delay"
            ) from error
