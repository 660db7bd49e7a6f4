"""`GET /api/v1/ssp/{sspId}/report` over HTTP (document 1; contract 6).

A request must pass the gate (`gate`) before its dates are checked (400).
"""

from typing import Final

import asyncpg
from redis.asyncio import Redis

from snapbid.base.http import Answer, Receive, Scope, answer
from snapbid.report import window
from snapbid.report.cache import TTL_S, ReportCache
from snapbid.report.gate import Admitted, TokenGate
from snapbid.report.reports import ReportSource

PREFIX: Final = "/api/v1/ssp/"
SUFFIX: Final = "/report"

ROUTE: Final = "report"
"""The label `route` of `snapbid_http_requests_total`."""

# A client may cache a report for as long as we do; `Age` is the time already elapsed.
CACHE_CONTROL: Final = (b"cache-control", b"private, max-age=%d" % TTL_S)


def ssp_of(path: str, suffix: str = SUFFIX) -> str | None:
    """Extract the SSP id from a path with this suffix; None for any other path."""
    if not path.startswith(PREFIX) or not path.endswith(suffix):
        return None
    ssp = path[len(PREFIX) : -len(suffix)]
    return ssp if ssp and "/" not in ssp else None


class ReportEndpoint:
    """The report endpoint. Raises Problem for an error answer."""

    def __init__(self, pool: asyncpg.Pool, redis: Redis, gate: TokenGate) -> None:
        self._gate = gate
        self._reports = ReportSource(pool, ReportCache(redis))

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        return await self._gate.serve(scope, receive, ssp_of(scope["path"]), self._make)

    async def _make(self, scope: Scope, admitted: Admitted) -> Answer:
        days = window.parse(scope["query_string"], admitted.now.date())
        report = await self._reports.get(admitted.ssp, days, use_cache=admitted.use_cache)
        return answer(200, report.body, headers=(*report.age(), CACHE_CONTROL))
