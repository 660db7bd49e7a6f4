"""Erase users from the ledger: from frequency caps and open bids (money.lua)."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.bids.records import DIGEST_SIZE, user_digest
from snapbid.ledger.caps.outbox import user_of
from snapbid.ledger.scripts import script
from snapbid.redisclient.connection import Connections

BATCH: Final = 1000  # keys in one step of a scan
UNDER_WAY_S: Final = 2.0  # for sweepers to deliver the entries they have read


class ErasedUsers(NamedTuple):
    """The numbers of cap keys removed, and of open bids from which a user was removed.

    A cap key stores one user's holds on a campaign's impressions, or the impressions themselves.
    """

    caps: int
    open_bids: int


async def erase(
    connections: Connections, shards: int, users: Iterable[str], *, dry_run: bool = False
) -> ErasedUsers:
    """Remove users (identified as in bidding/identity.py) from all shards; a dry run only counts.

    Scans all keys of caps and bids, then waits until replicas have the changes. Raises RedisError.
    """
    redis = connections.client()
    try:
        erased = await _erase(redis, shards, users, dry_run=dry_run)
        for number in range(0 if dry_run else shards):
            await connections.replicate(redis, ShardKeys(number))
    finally:
        await redis.aclose()
    return erased


async def _erase(redis: Redis, shards: int, users: Iterable[str], *, dry_run: bool) -> ErasedUsers:
    digests = {user_digest(user) for user in users}
    erase = redis.register_script(script("erase"))
    caps = bids = 0
    prefixes = [ShardKeys(number).prefix for number in range(shards)]
    key: Any
    for prefix in prefixes:  # open bids first: their notices would create the caps again
        async for key in redis.scan_iter(match=f"{prefix}r:*", count=BATCH):
            bids += int(await erase(keys=[key], args=[int(not dry_run), *digests]))
    if shards > 1 and not dry_run:
        for prefix in prefixes:
            await _erase_entries(redis, prefix, digests)
        await asyncio.sleep(UNDER_WAY_S)
    for prefix in prefixes:
        async for key in redis.scan_iter(match=f"{prefix}f[ce]:*", count=BATCH):
            if key[-DIGEST_SIZE:] in digests:
                caps += 1
                if not dry_run:
                    await redis.unlink(key)
    return ErasedUsers(caps, bids)


async def _erase_entries(redis: Redis, prefix: str, digests: set[bytes]) -> None:
    """Remove the users' entries from a shard's outboxes."""
    async for outbox in redis.scan_iter(match=f"{prefix}o:*", count=BATCH):
        entries: Any = redis.sscan_iter(outbox, count=BATCH)
        async for entry in entries:
            if user_of(entry) in digests:
                shard = outbox[len(f"{prefix}o:") :]
                async with redis.pipeline() as pipe:
                    pipe.srem(outbox, entry)
                    pipe.hincrby(f"{prefix}posted", shard, -1)
                    await pipe.execute()
