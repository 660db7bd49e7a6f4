"""`GET /api/v1/ssp/{sspId}/report` over HTTP (document 1; contract 6).

The dates are checked (400) after the gate has admitted the request.
"""

from typing import Final

import asyncpg
from redis.asyncio import Redis

from snapbid.base.errors import Problem
from snapbid.base.http import Answer, Receive, Scope, answer
from snapbid.report import window
from snapbid.report.cache import TTL_S, ReportCache
from snapbid.report.gate import Clock, Fields, Registry, TokenGate
from snapbid.report.reports import ReportSource, WarehouseUnavailable

PREFIX: Final = "/api/v1/ssp/"
SUFFIX: Final = "/report"

ROUTE: Final = "report"
"""Value of the label `route` of `snapbid_http_requests_total`."""

# A client may cache a report for as long as we do; `Age` is the time already elapsed.
CACHE_CONTROL: Final = (b"cache-control", b"private, max-age=%d" % TTL_S)


def report_path(ssp: str, suffix: str = SUFFIX) -> str:
    """Return the path of an SSP's report, or of another of its documents, by the suffix."""
    return f"{PREFIX}{ssp}{suffix}"


def ssp_of(path: str, suffix: str = SUFFIX) -> str | None:
    """Extract the SSP id from a path with this suffix; None for any other path."""
    if not path.startswith(PREFIX) or not path.endswith(suffix):
        return None
    ssp = path[len(PREFIX) : -len(suffix)]
    return ssp if ssp and "/" not in ssp else None


def is_report_path(path: str) -> bool:
    """Whether `ReportEndpoint` answers this path."""
    return ssp_of(path) is not None


def route_of(path: str) -> str | None:
    """The name under which requests to a path are counted; None for other rooms' paths."""
    return ROUTE if path.startswith(PREFIX) else None


class ReportEndpoint:
    """Answers report requests, with the gate's arguments. Raises Problem for an error answer."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        redis: Redis,
        *,
        key: bytes,
        issuer: str,
        registry: Registry,
        clock: Clock | None = None,
    ) -> None:
        self._gate = TokenGate(redis, key=key, issuer=issuer, registry=registry, clock=clock)
        self._reports = ReportSource(pool, ReportCache(redis))

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        admitted = await self._gate.admit(scope, receive, ssp_of(scope["path"]))
        ssp, now, fields, use_cache = admitted
        try:
            days = window.parse(scope["query_string"], now.date())
        except Problem as problem:
            problem.headers = (*problem.headers, *fields)
            raise
        body, fields = await self._report(ssp, days, fields, use_cache=use_cache)
        reply = answer(200, body, headers=fields)
        return Answer(reply.start, b"") if scope["method"] == "HEAD" else reply

    async def _report(
        self, ssp: str, days: window.ReportWindow, fields: Fields, *, use_cache: bool
    ) -> tuple[bytes, Fields]:
        try:
            report = await self._reports.get(ssp, days, use_cache=use_cache)
        except WarehouseUnavailable as error:
            detail = "the report cannot be read now; retry after a short delay"
            raise Problem(detail, fields) from error
        if report.age_s is not None:
            fields = (*fields, (b"age", b"%d" % report.age_s))
        return report.body, (*fields, CACHE_CONTROL)
