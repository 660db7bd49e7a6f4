"""What is acknowledged has reached replicas, in the same round trip (contract 10).

Behind the commands stand a write of no meaning and WAIT, which waits until as many replicas have
what the connection has written: with the write, all that the data had by then, whoever wrote it.
Where too few have it in time the commands count as unanswered: they may have been applied, and
survive or not.
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
            f"{reached} of {needed} replicas (SNAPBID_REDIS_REPLICAS) have what was written"
        )


def waiting(mark: str, replicas: int) -> tuple[Command, ...]:
    """The commands behind others, on the shard with the key `mark`; none for no replicas."""
    return (("SET", mark, ""), ("WAIT", replicas, WAIT_MS)) if replicas else ()


def confirmed(replies: list[Any], replicas: int) -> list[Any]:
    """The replies to the other commands. Raises RedisError where too few replicas have them."""
    if not replicas:
        return replies
    *others, marked, reached = replies
    _check((marked, reached), replicas)
    return others


async def replicate(redis: Redis, mark: str, replicas: int) -> None:
    """Wait until replicas have all that was written to a shard before. Raises RedisError."""
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
