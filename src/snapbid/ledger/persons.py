"""What the ledger has of a user: holds and impressions of caps, and open bids (money.lua)."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis

from snapbid.ledger.keys import ShardKeys
from snapbid.ledger.records import DIGEST_SIZE, user_digest
from snapbid.ledger.scripts import scripts

BATCH: Final = 1000  # keys that a scan looks at


class ErasedUsers(NamedTuple):
    """How many caps of campaigns were removed, and how many open bids no longer name a user."""

    caps: int
    open_bids: int


async def erase(
    redis: Redis, shards: int, users: Iterable[str], *, dry_run: bool = False
) -> ErasedUsers:
    """Remove users, by the names of exchange/identity.py, from all shards; or count alone.

    Looks at every key of caps and bids. Raises RedisError.
    """
    digests = {user_digest(user) for user in users}
    script = redis.register_script(scripts()["erase"])
    caps = bids = 0
    for number in range(shards):
        prefix = ShardKeys(number).prefix
        key: Any
        async for key in redis.scan_iter(match=f"{prefix}f[ce]:*", count=BATCH):
            if key[-DIGEST_SIZE:] in digests:
                caps += 1
                if not dry_run:
                    await redis.unlink(key)
        async for key in redis.scan_iter(match=f"{prefix}r:*", count=BATCH):
            bids += int(await script(keys=[key], args=[int(not dry_run), *digests]))
    return ErasedUsers(caps, bids)
