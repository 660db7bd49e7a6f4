"""What a move of the ledger takes for carried by the drain."""

import asyncio

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.admin import moving
from snapbid.redisclient.connection import connect


async def test_counters_between_two_rounds_of_the_drain_are_not_carried(fresh_redis: str) -> None:
    """It takes them, and puts those back that the warehouse does not know."""
    keys, redis = ShardKeys(0), connect(fresh_redis)
    put_back = "redis.call('SADD', KEYS[1], 'a') redis.call('DEL', KEYS[2])"
    await redis.sadd(keys.changed, "a")

    async def drain() -> None:
        for _ in range(300):
            await redis.rename(keys.changed, keys.taken)
            await redis.eval(put_back, 2, keys.changed, keys.taken)

    async def look() -> set[int]:
        return {await moving._changed(redis, keys) for _ in range(300)}

    _, found = await asyncio.gather(drain(), look())
    await redis.aclose()
    assert found == {1}
