"""`GET /api/v1/ssp/{sspId}/report` over HTTP (document 1; contract 6).

Checks come in this order: path (404), method (405), token (401), rate (429), dates (400). The id
in the path is only compared with the token's `sub`, so answers do not reveal which SSPs are
registered: without a token of its own, every id gets the same 401.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

import asyncpg
from redis.asyncio import Redis

from snapbid.errors import (
    InvalidToken,
    MethodNotAllowed,
    NotFound,
    Problem,
    RateLimited,
    SspMismatch,
)
from snapbid.http import Answer, Receive, Scope, answer, refused
from snapbid.ledger.rate import WINDOW_S
from snapbid.report import tokens, window
from snapbid.report.cache import TTL_S, ReportCache
from snapbid.report.limit import REQUESTS, Quota, TokenLimit
from snapbid.report.reports import ReportSource, WarehouseUnavailable
from snapbid.report.routes import ssp_of

Clock: TypeAlias = Callable[[], datetime]
Registry: TypeAlias = Callable[[], Mapping[str, str] | None]
Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]

# A client may cache a report for as long as we do; `Age` is the part of that already gone.
CACHE_CONTROL: Final = (b"cache-control", b"private, max-age=%d" % TTL_S)


class ReportEndpoint:
    """Answers reports. Raises Problem for an error answer.

    `registry` gives the current map of descriptor to canonical id, None until it is loaded.
    `clock` (UTC) stands in for the worker's clock and that of Redis. Raises ValueError for a key
    that cannot sign.
    """

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
        tokens.check_key(key)
        self._key = key
        self._issuer = issuer
        self._registry = registry
        self._clock = clock or _now
        self._limit = TokenLimit(redis, clock)
        self._reports = ReportSource(pool, ReportCache(redis))

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        ssp = ssp_of(scope["path"])
        if ssp is None:
            raise await refused(NotFound("there is nothing at this path"), receive)
        if scope["method"] not in ("GET", "HEAD"):
            raise await refused(MethodNotAllowed("GET, HEAD"), receive)
        now = self._clock()
        quota = await self._limit.take(self._authorize(scope, ssp, now).jti)
        fields = quota.headers() if quota is not None else ()
        if quota is not None and not quota.admitted:
            raise _rate_limited(quota, fields)
        try:
            days = window.parse(scope["query_string"], now.date())
        except Problem as problem:
            problem.headers = (*problem.headers, *fields)
            raise
        body, fields = await self._report(ssp, days, fields, use_cache=quota is not None)
        reply = answer(200, body, headers=fields)
        return Answer(reply.start, b"") if scope["method"] == "HEAD" else reply

    def _authorize(self, scope: Scope, ssp: str, now: datetime) -> tokens.Claims:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        claims = tokens.check(tokens.bearer(given), self._key, self._issuer, now)
        registry = self._registry()
        if registry is None:
            raise Problem("the SSP registry is not loaded yet; retry after a short delay")
        if registry.get(claims.sub) != claims.sub:
            raise InvalidToken("sub: the token is not for a canonical SSP id")
        if claims.sub != ssp:
            raise SspMismatch("the SSP id in the path must equal the token's sub")
        return claims

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


def _rate_limited(quota: Quota, fields: Fields) -> RateLimited:
    detail = (
        f"more than {REQUESTS} requests of this token in {WINDOW_S} seconds; "
        f"retry after {quota.reset_s} seconds"
    )
    return RateLimited(detail, ((b"retry-after", b"%d" % quota.reset_s), *fields))


def _now() -> datetime:
    return datetime.now(UTC)
