"""What a shard says of itself: its data set, the segment that is counted in, how far the drain is.

`segment.lua` says what a segment is, `keys.py` what the fields are.
"""

from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple, Self

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys


class FormerLedger(NamedTuple):
    """How many shards a ledger had before it was moved, and until when (epoch s) its bids are here.

    The bids of its shard N are in shard N modulo the number that the next ledger had.
    """

    shards: int
    until: int


def parse_former(text: str) -> list[FormerLedger]:
    """Read the field `moved`, oldest first: `1:1766000000 8:1766003600`."""
    return [FormerLedger(*map(int, part.split(":"))) for part in text.split()]


class ShardState(NamedTuple):
    """The reply of begin.lua; `warehouse` is "" until a drain has said whose numbers these are.

    `former`: the ledgers from which this one was moved, oldest first; `moved_from`: the epoch of
    the last of them. `shards`: how many this one has, 0 before a drain has said so.
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
    """Epoch s and ms of `1766000000.123`; zeros of a segment that is gone."""
    seconds, _, ms = text.partition(".")
    return int(seconds or 0), int(ms or 0)


async def fetch_segments(redis: Redis, keys: ShardKeys) -> list[str]:
    """List the segments of a shard that may have counters. Raises RedisError."""
    names: Any = await redis.hkeys(keys.segments)
    return [name.decode() for name in names]


def segment_script(name: str) -> str:
    """The script of that name, with what stands before it."""
    folder = resources.files("snapbid.ledger.scripts")
    return "".join((folder / f"{part}.lua").read_text("utf-8") for part in ("segment", name))
