"""Find, for the self-audit, open bids whose cost is no longer held, so it could be spent twice.

A call reads a page of records and their holds in one step, so nothing changes in between. An audit
continues where the last one stopped; in a small ledger, it reads all records of the last half hour.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.scripts import script

PAGES: Final = 50  # per shard and audit; a page takes Redis 1 ms, and has up to 1000 records
_START: Final = (1, 0)  # newest time bucket, first bucket


class EarlyEnd(NamedTuple):
    """The amount missing from a campaign's holds in a shard (nano-USD)."""

    shard: int
    campaign: int
    amount: int


class Holds:
    """A search of all shards for open bids whose cost is no longer held.

    `clock` returns epoch seconds.
    """

    def __init__(self, redis: Redis, shards: int, clock: Callable[[], float]) -> None:
        self._keys = [ShardKeys(number).script_keys for number in range(shards)]
        self._clock = clock
        self._held = redis.register_script(script("held", shards=shards))
        self._next = [_START] * shards

    async def find_ended(self) -> list[EarlyEnd]:
        """Check the next pages of records in each shard; return holds that ended too early.

        Raises RedisError or OSError.
        """
        return [each for shard in range(len(self._keys)) for each in await self._look_at(shard)]

    async def _look_at(self, shard: int) -> list[EarlyEnd]:
        amounts = Counter[int]()
        for _ in range(PAGES):
            args = [int(self._clock() * 1000), *self._next[shard]]
            reply: Any = await self._held(keys=self._keys[shard], args=args)
            time_bucket, bucket, *ended = map(int, reply)
            for campaign, amount in zip(ended[::2], ended[1::2], strict=True):
                amounts[campaign] += amount
            self._next[shard] = (time_bucket, bucket) if time_bucket else _START
            if not time_bucket:
                break
        return [EarlyEnd(shard, *each) for each in sorted(amounts.items())]
