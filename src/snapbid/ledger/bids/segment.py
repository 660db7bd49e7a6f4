"""The state of a shard: its data set, its current run, and the drain's progress.

`segment.lua` defines when a run begins; `base/redis_keys.py` lists the fields of the state.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys


class FormerLedger(NamedTuple):
    """An earlier ledger, whose shard N was moved to shard N modulo the new number of shards."""

    shards: int
    until: int  # when its last bids expire here (epoch s)


def parse_former(text: str) -> list[FormerLedger]:
    """Parse the field `moved`: former ledgers as `SHARDS:UNTIL` (epoch s), separated by spaces."""
    return [FormerLedger(*map(int, part.split(":"))) for part in text.split()]


class ShardState(NamedTuple):
    """The state of a shard, as returned by begin.lua.

    `warehouse`: the warehouse that gives SSPs and campaigns their numbers; "" until a drain or
    worker has set it. `former`: the ledgers that this one was moved from, oldest first;
    `moved_from`: the epoch of the newest of them. `shards`: the number of shards; 0 until a drain
    or worker has set it.
    """

    epoch: str
    segment: str
    is_confirmed: bool
    is_carried: bool
    warehouse: str
    read: int
    released: int
    outdated: list[str]
    former: list[FormerLedger]
    moved_from: str
    shards: int

    @classmethod
    def parse(cls, reply: Sequence[bytes | None]) -> Self:
        texts = [(value or b"").decode() for value in reply]
        epoch, segment, confirmed, carried, warehouse, read, released, *others = texts
        outdated, moved, moved_from, shards = others
        is_confirmed = confirmed == segment
        batches = int(read or 0), int(released or 0)
        return cls(
            epoch,
            segment,
            is_confirmed,
            bool(carried),
            warehouse,
            *batches,
            outdated.split(),
            parse_former(moved),
            moved_from,
            int(shards or 0),
        )


def parse_time(text: str) -> tuple[int, int]:
    """Parse `1766000000.123` into seconds and milliseconds; zeros if empty."""
    seconds, _, ms = text.partition(".")
    return int(seconds or 0), int(ms or 0)


async def fetch_segments(redis: Redis, keys: ShardKeys) -> list[str]:
    """List the runs of a shard that may have counters. Raises RedisError."""
    names: Any = await redis.hkeys(keys.segments)
    return [name.decode() for name in names]
