"""The rate limit of a token: 10 requests in any rolling minute, over all workers (contract 6).

Redis keeps the times of the counted requests and its clock decides, so that workers and machines
agree. Where Redis is away there is no limit: the figures are in the warehouse, and a partner who
reconciles is served better late figures than none.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

REQUESTS: Final = 10
WINDOW_S: Final = 60
ANSWER_TIMEOUT_S: Final = 0.5

_SCRIPT: Final = Path(__file__).with_name("admit.lua").read_text(encoding="utf-8")
_MICROS: Final = 1_000_000
_POLICY: Final = b'"token";q=%d;w=%d' % (REQUESTS, WINDOW_S)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

logger = logging.getLogger("snapbid")


class Quota(NamedTuple):
    """Whether a request was counted, how many more would be, and in how many seconds one more."""

    admitted: bool
    remaining: int
    reset_s: int

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """`RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10)."""
        state = b'"token";r=%d;t=%d' % (self.remaining, self.reset_s)
        return (b"ratelimit-policy", _POLICY), (b"ratelimit", state)


class RateLimit:
    """The limit on a Redis; `clock` stands in for the clock of Redis."""

    def __init__(self, redis: Redis, clock: Callable[[], datetime] | None = None) -> None:
        self._admit = redis.register_script(_SCRIPT)
        self._clock = clock

    async def take(self, jti: str) -> Quota | None:
        """Count a request of a token unless it is one too many; None where Redis is away."""
        now = "" if self._clock is None else str(micros(self._clock()))
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                admitted, remaining, wait = await self._admit(
                    keys=[key_of(jti)], args=[REQUESTS, WINDOW_S * _MICROS, now]
                )
        except (RedisError, OSError) as error:
            logger.warning("reports are not limited, Redis is away: %s", error or "no answer")
            return None
        return Quota(bool(admitted), remaining, -(-wait // _MICROS))


def key_of(jti: str) -> str:
    """The Redis key of a token's count; hashed, since a `jti` may be any text of any length."""
    return f"report:rate:{hashlib.blake2b(jti.encode(), digest_size=16).hexdigest()}"


def micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
