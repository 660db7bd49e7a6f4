"""What a shard says of itself: its data set, the segment that is counted in, how far the drain is.

`segment.lua` says what a segment is, `keys.py` what the fields are.
"""

from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple, Self

from redis.asyncio import Redis

from snapbid.ledger.keys import ShardKeys


class ShardState(NamedTuple):
    """The reply of begin.lua; `warehouse` is "" until a drain has said whose numbers these are."""

    epoch: str
    segment: str
    is_confirmed: bool
    is_carried: bool
    warehouse: str
    read: int
    released: int
    outdated: list[str]

    @classmethod
    def parse(cls, reply: Sequence[bytes | None]) -> Self:
        texts = [(value or b"").decode() for value in reply]
        epoch, segment, confirmed, carried, warehouse, read, released, outdated = texts
        is_confirmed = confirmed == segment
        batches = int(read or 0), int(released or 0)
        return cls(
            epoch, segment, is_confirmed, bool(carried), warehouse, *batches, outdated.split()
        )


async def fetch_segments(redis: Redis, keys: ShardKeys) -> list[str]:
    """List the segments of a shard that may have counters. Raises RedisError."""
    names: Any = await redis.hkeys(keys.segments)
    return [name.decode() for name in names]


def segment_script(name: str) -> str:
    """The script of that name, with what stands before it."""
    folder = resources.files(__package__)
    return "".join((folder / f"{part}.lua").read_text("utf-8") for part in ("segment", name))
