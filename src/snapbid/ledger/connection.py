"""Connections to Redis."""

from collections.abc import Callable

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

CONNECT_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 1.0


def connect(url: str) -> Redis:
    """A client with a pool, for what is not on the way of a bid; connects at first use."""
    return Redis.from_url(
        url, socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=ANSWER_TIMEOUT_S
    )


def share(url: str, connections: int) -> Redis:
    """A client whose commands wait for one of so many connections, rather than make more."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=ANSWER_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=ANSWER_TIMEOUT_S,
    )
    return Redis.from_pool(pool)


def connector(url: str) -> Callable[[], AbstractConnection]:
    """Gives new, unconnected connections without time-outs of their own."""
    pool = Redis.from_url(url, socket_connect_timeout=CONNECT_TIMEOUT_S).connection_pool
    return lambda: pool.connection_class(**pool.connection_kwargs)


async def answers(redis: Redis) -> bool:
    """Whether Redis answers within a second."""
    try:
        return bool(await redis.ping())
    except (RedisError, OSError):
        return False
