"""Have replicas confirm writes within the same round trip (contract 10).

The commands are followed by a dummy write and WAIT, which waits until enough replicas have what
the connection has written; the dummy write extends that to all earlier writes of other clients. If
too few replicas confirm in time, the commands count as unanswered: they may have been applied, and
may or may not survive.
"""

from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

WAIT_MS: Final = 400

Command = tuple[Any, ...]


class TooFewReplicasError(RedisError):
    """A write has not reached as many replicas as it must."""

    def __init__(self, reached: int, needed: int) -> None:
        super().__init__(
            f"only {reached} of {needed} replicas (SNAPBID_REDIS_REPLICAS) have the write"
        )


def waiting(mark: str, replicas: int) -> tuple[Command, ...]:
    """Return the commands to append, on the shard with the key `mark`; none without replicas."""
    return (("SET", mark, ""), ("WAIT", replicas, WAIT_MS)) if replicas else ()


def confirmed(replies: list[Any], replicas: int) -> list[Any]:
    """Return the replies to the other commands. Raises RedisError if too few replicas confirm."""
    if not replicas:
        return replies
    *others, marked, reached = replies
    _check((marked, reached), replicas)
    return others


async def replicate(redis: Redis, mark: str, replicas: int) -> None:
    """Wait until replicas have all earlier writes to a shard. Raises RedisError."""
    if replicas:
        async with redis.pipeline(transaction=False) as pipe:
            for command in waiting(mark, replicas):
                pipe.execute_command(*command)
            _check(await pipe.execute(), replicas)


def _check(replies: Sequence[Any], replicas: int) -> None:
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise reply
    if replies[-1] < replicas:
        raise TooFewReplicasError(replies[-1], replicas)
