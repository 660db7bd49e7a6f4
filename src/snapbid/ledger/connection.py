"""The connection to Redis."""

from redis.asyncio import Redis
from redis.exceptions import RedisError

CONNECT_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 1.0


def connect(url: str) -> Redis:
    """A client of the ledger; connects at first use. `url` as redis-py reads it."""
    return Redis.from_url(
        url, socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=ANSWER_TIMEOUT_S
    )


async def answers(redis: Redis) -> bool:
    """Whether Redis answers within a second."""
    try:
        return bool(await redis.ping())
    except (RedisError, OSError):
        return False
