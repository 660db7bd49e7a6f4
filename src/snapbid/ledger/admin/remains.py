"""Detect open bids of another number of shards than SNAPBID_LEDGER_SHARDS."""

from collections.abc import Sequence
from time import time
from typing import Any

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.base.risks import Risk
from snapbid.ledger.admin.parts import of_each
from snapbid.queues.queues import fetch_leftovers
from snapbid.redisclient.connection import Connections


async def fetch_risks(url: str, shards: int) -> list[Risk]:
    """Look for open bids in further shards, and for shards without data among those with bids.

    Reports nothing while a shard is unavailable. Raises RedisError or OSError.
    """
    redis = Connections(url).client()
    try:
        begun = await of_each(shards, lambda number: redis.exists(ShardKeys(number).epoch))
        if None in begun:
            return []
        further = [n for n in await fetch_leftovers(redis, shards) if await _has_bids(redis, n)]
        if further:
            return [_other(shards, max(further) + 1)]
        known = begun.index(0) if 0 in begun else shards
        if 0 < known < shards and await _any_has_bids(redis, range(known)):
            return [_other(shards, known)]
        return []
    finally:
        await redis.aclose()


async def _any_has_bids(redis: Redis, numbers: Sequence[int]) -> bool:
    for number in numbers:
        if await _has_bids(redis, number):
            return True
    return False


async def _has_bids(redis: Redis, number: int) -> bool:
    """Whether a shard has unexpired records, and is not closed."""
    registry = f"{ShardKeys(number).prefix}r"
    if await redis.type(registry) != b"hash":
        return False
    time_buckets: Any = await redis.hgetall(registry)
    return any(name.isdigit() and int(at) > time() for name, at in time_buckets.items())


def _other(shards: int, known: int) -> Risk:
    return Risk(
        "redis",
        "shards",
        "weak",
        f"SNAPBID_LEDGER_SHARDS is {shards}, but the ledger has open bids of {known} shards,"
        " whose notices may be unknown",
        f"set it to {known}, or move the ledger with snapbid ledger move",
    )
