"""Admit a request for an SSP's report or other data if it has the SSP's token (contract 6 and 11).

Checks come in this order: path (404), method (405), token (401), rate (429). The id in the path is
only compared with the token's `sub`, so answers do not reveal which SSPs are registered: any id
without its own token gets the same 401.

A token allows 10 requests in any rolling minute, over all workers. While Redis is down there is no
limit: the figures are in the warehouse, so partners can still get them.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from redis.asyncio import Redis

from snapbid.base.errors import (
    InvalidToken,
    MethodNotAllowed,
    MissingToken,
    NotFound,
    Problem,
    RateLimited,
    SspMismatch,
)
from snapbid.base.http import NO_BODY, Answer, Receive, Scope, refused
from snapbid.base.redis_keys import REPORT_RATE
from snapbid.base.repeats import RepeatedLog
from snapbid.queues.rate import WINDOW_S, RateDecision, RateLimiter, RateLimiterUnavailable
from snapbid.report import tokens

Clock: TypeAlias = Callable[[], datetime]
Registry: TypeAlias = Callable[[], Mapping[str, str] | None]

REQUESTS: Final = 10
ANSWER_TIMEOUT_S: Final = 0.5

_POLICY: Final = b'"token";q=%d;w=%d' % (REQUESTS, WINDOW_S)

BASIC: Final = (b"www-authenticate", b'Basic realm="snapbid", charset="UTF-8"')

repeated = RepeatedLog(logging.getLogger(__name__))


class Admitted(NamedTuple):
    """An admitted request: the SSP and the time. `use_cache` is False while Redis is down."""

    ssp: str
    now: datetime
    use_cache: bool


Make: TypeAlias = Callable[[Scope, Admitted], Awaitable[Answer]]


class TokenGate:
    """A gate for requests that have the SSP's token, at most 10 per token in any rolling minute.

    `registry` returns the current canonical ids by descriptor, or None until they are loaded.
    `clock` (UTC) replaces the clocks of the worker and of Redis. `rate`: the prefix of the quota's
    Redis keys. `basic`: also accept the token as a password, for which browsers prompt. Raises
    ValueError if `key` is not suitable for signing tokens.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        key: bytes,
        issuer: str,
        registry: Registry,
        clock: Clock | None = None,
        rate: str = REPORT_RATE,
        basic: bool = False,
    ) -> None:
        tokens.check_key(key)
        self._key = key
        self._issuer = issuer
        self._registry = registry
        self._clock = clock or _now
        micros = None if clock is None else lambda: round(clock().timestamp() * 1_000_000)
        self._limiter = RateLimiter(redis, timeout_s=ANSWER_TIMEOUT_S, clock=micros)
        self._rate = rate
        self._basic = basic

    async def serve(self, scope: Scope, receive: Receive, ssp: str | None, make: Make) -> Answer:
        """Answer a request for data of `ssp` (None: unknown path). Raises Problem.

        `make` answers an admitted request; the quota's headers are added to its answer or Problem.
        """
        if ssp is None:
            raise await refused(NotFound("there is nothing at this path"), receive)
        if scope["method"] not in ("GET", "HEAD"):
            raise await refused(MethodNotAllowed("GET, HEAD"), receive)
        now = self._clock()
        quota = await self.count(self._authorize(scope, ssp, now).jti)
        if quota is not None and not quota.admitted:
            raise _rate_limited(quota)
        fields = () if quota is None else headers(quota)
        try:
            reply = await make(scope, Admitted(ssp, now, use_cache=quota is not None))
        except Problem as problem:
            problem.headers = (*problem.headers, *fields)
            raise
        start = {**reply.start, "headers": [*reply.start["headers"], *fields]}
        return Answer(start, NO_BODY if scope["method"] == "HEAD" else reply.end)

    async def count(self, jti: str) -> RateDecision | None:
        """Count a token's request unless it exceeds the limit; return None while Redis is down."""
        try:
            quota = await self._limiter.admit(redis_key(jti, self._rate), REQUESTS)
        except RateLimiterUnavailable as error:
            repeated.warning(
                "Redis is unavailable: %(reason)s; not limiting report requests",
                {"reason": error},
            )
            return None
        # After a clock was set back, the wait may exceed the window; clients never see that.
        return quota._replace(wait_s=min(quota.wait_s, WINDOW_S))

    def _authorize(self, scope: Scope, ssp: str, now: datetime) -> tokens.Claims:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        try:
            text = tokens.bearer(given, basic=self._basic)
            claims = tokens.check(text, self._key, self._issuer, now)
        except (MissingToken, InvalidToken) as problem:
            if self._basic:
                problem.headers = (*problem.headers, BASIC)
            raise
        registry = self._registry()
        if registry is None:
            raise Problem("the SSP registry is not loaded yet; retry after a short delay")
        if registry.get(claims.sub) != claims.sub:
            raise InvalidToken("sub: is not a canonical SSP id")
        if claims.sub != ssp:
            raise SspMismatch("the SSP id in the path must equal the token's sub")
        return claims


def headers(quota: RateDecision) -> tuple[tuple[bytes, bytes], ...]:
    """Return `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10)."""
    state = b'"token";r=%d;t=%d' % (quota.remaining, quota.wait_s)
    return (b"ratelimit-policy", _POLICY), (b"ratelimit", state)


def redis_key(jti: str, prefix: str = REPORT_RATE) -> str:
    """Return the Redis key for a token's requests; it is hashed, since a `jti` may be long."""
    return f"{prefix}{hashlib.blake2b(jti.encode(), digest_size=16).hexdigest()}"


def _rate_limited(quota: RateDecision) -> RateLimited:
    detail = (
        f"more than {REQUESTS} requests with this token in {WINDOW_S} seconds; "
        f"retry after {quota.wait_s} seconds"
    )
    return RateLimited(detail, ((b"retry-after", b"%d" % quota.wait_s), *headers(quota)))


def _now() -> datetime:
    return datetime.now(UTC)
