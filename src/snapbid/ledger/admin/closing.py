"""Close and reopen shards while a ledger is moved out of or into them.

To workers, a closed ledger is unavailable: bid requests get a 204, notices are spooled, and events
get a 503. The drain continues. Scripts need not check for this: closing renames the registry of
time buckets and the event stream, and puts strings in their place. So every script that would
remember a bid, settle a notice or roll back a batch fails before it writes, and so does each XADD.

    {sbN}:closed     the reason: `being moved to …`, `moved to …`, `filling from …`
    {sbN}:closed:r   the registry of time buckets
    {sbN}:closed:e   the stream of events
"""

from typing import Any, Final

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.scripts import script

FILLING: Final = "filling "  # begin.lua refuses the drain as well
FILLED: Final = "filled "


def marks(keys: ShardKeys) -> set[bytes]:
    """Return the keys that keep a shard closed."""
    return {f"{keys.prefix}{name}".encode() for name in ("closed", "r", "e")}


def time_buckets_key(keys: ShardKeys) -> str:
    """Return the key of a closed shard's registry of time buckets."""
    return f"{keys.prefix}closed:r"


def events_key(keys: ShardKeys) -> str:
    """Return the key that holds a shard's event stream while the shard is closed."""
    return f"{keys.prefix}closed:e"


async def close(redis: Redis, keys: ShardKeys, why: str) -> None:
    """Close a shard; if it is already closed, replace the reason."""
    await redis.eval(script("close"), 2, *keys.script_keys, why)


async def reopen(redis: Redis, keys: ShardKeys) -> None:
    """Reopen a shard; do nothing if it is open."""
    await redis.eval(script("reopen"), 2, *keys.script_keys)


async def closed(redis: Redis, keys: ShardKeys) -> str:
    """Fetch the reason a shard is closed; "" if it is open."""
    why: Any = await redis.get(f"{keys.prefix}closed")
    return (why or b"").decode()
