"""The rate limit of a token: 10 requests in any rolling minute, over all workers (contract 6).

While Redis is down there is no limit: the warehouse has the figures, and a partner who wants to
reconcile is better served than refused.
"""

import hashlib
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import REPORT_RATE
from snapbid.base.repeats import RepeatedLog
from snapbid.queues.rate import WINDOW_S, RateLimiter, RateLimiterUnavailable

REQUESTS: Final = 10
ANSWER_TIMEOUT_S: Final = 0.5

_POLICY: Final = b'"token";q=%d;w=%d' % (REQUESTS, WINDOW_S)

repeated = RepeatedLog(logging.getLogger(__name__))


class Quota(NamedTuple):
    """Whether a token's request is admitted.

    `remaining`: how many further requests would be admitted now; `reset_s`: seconds until
    `remaining` grows by one.
    """

    admitted: bool
    remaining: int
    reset_s: int

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10)."""
        state = b'"token";r=%d;t=%d' % (self.remaining, self.reset_s)
        return (b"ratelimit-policy", _POLICY), (b"ratelimit", state)


class TokenLimit:
    """Limits the requests of each token; `clock` (UTC) replaces the clock of Redis.

    Limits with different key prefixes are independent.
    """

    def __init__(
        self,
        redis: Redis,
        clock: Callable[[], datetime] | None = None,
        prefix: str = REPORT_RATE,
    ) -> None:
        self._prefix = prefix
        micros = None if clock is None else lambda: round(clock().timestamp() * 1_000_000)
        self._limiter = RateLimiter(redis, timeout_s=ANSWER_TIMEOUT_S, clock=micros)

    async def take(self, jti: str) -> Quota | None:
        """Count a token's request unless it exceeds the limit; return None while Redis is down."""
        try:
            admission = await self._limiter.admit(redis_key(jti, self._prefix), REQUESTS)
        except RateLimiterUnavailable as error:
            repeated.warning(
                "Redis is unavailable: %(reason)s; not limiting report requests",
                {"reason": error},
            )
            return None
        # After a clock was set back, the wait may exceed the window; clients never see that.
        reset_s = min(admission.wait_s, WINDOW_S)
        return Quota(admission.admitted, admission.remaining, reset_s)


def redis_key(jti: str, prefix: str = REPORT_RATE) -> str:
    """Return the Redis key for a token's requests; it is hashed, since a `jti` may be long."""
    return f"{prefix}{hashlib.blake2b(jti.encode(), digest_size=16).hexdigest()}"
