"""`GET /api/v1/ssp/{sspId}/report` over HTTP (document 1; contract 6).

Checked in this order: path (404), method (405), token (401), rate (429), dates (400). The id in the
path is compared with the token's `sub` alone, so that nobody learns from an answer which SSPs are
registered: without a token of its own every id gives the same 401.
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
from snapbid.report.cache import TTL_S, Cache
from snapbid.report.limit import REQUESTS, Quota, TokenLimit
from snapbid.report.reports import Reports, WarehouseAway
from snapbid.report.routes import ssp_of

Clock: TypeAlias = Callable[[], datetime]
Registry: TypeAlias = Callable[[], Mapping[str, str] | None]
Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]

# A client's own cache may keep a report for as long as ours does; `Age` says what is gone of that.
CACHE_CONTROL: Final = (b"cache-control", b"private, max-age=%d" % TTL_S)


class ReportEndpoint:
    """Answers reports. Raises Problem for what is answered with an error.

    `registry` gives descriptor to canonical id as known now, None while it is not known yet.
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
        self._reports = Reports(pool, Cache(redis))

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
        found = answer(200, body, headers=fields)
        return Answer(found.start, b"") if scope["method"] == "HEAD" else found

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
        self, ssp: str, days: window.Window, fields: Fields, *, use_cache: bool
    ) -> tuple[bytes, Fields]:
        try:
            report = await self._reports.get(ssp, days, use_cache=use_cache)
        except WarehouseAway as error:
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
