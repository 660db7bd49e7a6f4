"""A ledger's format number, stored in the ledger with the version of the program that raised it."""

from typing import Any, Final

from redis.asyncio import Redis

from snapbid.base.redis_keys import LEDGER_FORMAT
from snapbid.base.risks import Risk
from snapbid.base.version import version

FORMAT: Final = 1
"""The format number, raised with each change that earlier programs would misread."""


async def fetch_risks(redis: Redis, server: str) -> list[Risk]:
    """Return a risk if the ledger's format is newer than this program's. Raises RedisError."""
    fields: Any = await redis.hmget(LEDGER_FORMAT, "number", "version")
    number, reader = fields
    if int(number or 0) <= FORMAT:
        return []
    name = reader.decode()
    text = f"{server} has a ledger written by {name}, which this program ({version()}) cannot read"
    return [Risk("redis", "format", "unsupported", text, f"install {name}")]


async def note(redis: Redis) -> None:
    """Raise the ledger's format number to this program's. Raises RedisError."""
    number: Any = await redis.hget(LEDGER_FORMAT, "number")
    if int(number or 0) < FORMAT:
        await redis.hset(LEDGER_FORMAT, mapping={"number": FORMAT, "version": version()})
