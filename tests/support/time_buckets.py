"""Time buckets of other sizes than those that a test's bids would make."""

import time

import redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.admin.moving import LedgerPlace
from support.remembered import TIME_BUCKET_S, TTL_S, looking


def open_time_bucket(
    client: redis.Redis, number: int, buckets: int, now: float, shard: int = 0
) -> None:
    """Have a time bucket of that size take the records of bids, as if it had come to that."""
    registry, opened = f"{ShardKeys(shard).prefix}r", int(now)
    client.hset(registry, str(number), opened + TIME_BUCKET_S + TTL_S + TIME_BUCKET_S)
    client.hset(registry, f"o{number}", opened * 1000)
    client.hset(registry, f"b{number}", buckets)
    client.hset(registry, f"x{number}", 0)
    client.hset(registry, "current", f"{number} {opened} {TIME_BUCKET_S} {buckets}")


def enlarge_time_buckets(place: LedgerPlace) -> None:
    """Have every other shard take its records in more buckets."""
    with looking(place.url) as store:
        for shard in range(0, place.shards, 2):
            open_time_bucket(store, 1, 131_072, time.time(), shard)
