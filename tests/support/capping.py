"""Frequency caps against the ledger: bids of users, notices, and the delivery of outboxes."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import user_digest, user_shard
from snapbid.ledger.budgets.limits import Limits
from snapbid.ledger.caps.outbox import OutboxSweeper
from snapbid.redisclient.connection import Connections
from support.remembered import TTL_S, opened
from support.spending import reserve

PRICE = 1_000_000


class Capped:
    """A ledger of some shards with a sweeper, which delivers when it is told to."""

    def __init__(self, ledger: Ledger, sweeper: OutboxSweeper) -> None:
        self.ledger = ledger
        self.sweeper = sweeper

    async def bid(self, number: int, of: Limits, user: str = "u") -> str:
        return await reserve(self.ledger, b"auction-%d" % number, (b"1", PRICE, of), user=user)

    async def notify(self, number: int, *kinds: int) -> None:
        """Notify of an auction, and deliver what that means."""
        for kind in kinds:
            assert await self.settle(number, kind) == "c"
        await self.sweeper.sweep()

    async def settle(self, number: int, kind: int) -> str:
        return await self.ledger.settle(kind, b"auction-%d" % number, b"1")

    def in_one_shard(self) -> Iterator[int]:
        """Numbers of auctions of one shard."""
        numbers = count()
        return (n for n in numbers if not self.ledger.shard_of(b"auction-%d" % n))


def users_of(shard: int, shards: int) -> Iterator[str]:
    """Users whose caps are in a shard, by their names at the SSP acme (bidding/identity.py)."""
    names = (f"user acme {number}" for number in count(1))  # 0 is nobody's id
    return (name for name in names if user_shard(user_digest(name), shards) == shard)


@asynccontextmanager
async def opened_capped(
    url: str, spool: Path, *, shards: int, clock: Callable[[], float], ttl_s: int = TTL_S
) -> AsyncIterator[Capped]:
    """A ledger with caps whose time is that of `clock`."""
    sweeper = OutboxSweeper(Connections(url), shards, clock, simulated=True)
    try:
        async with opened(url, spool, clock=clock, shards=shards, ttl_s=ttl_s) as ledger:
            yield Capped(ledger, sweeper)
    finally:
        await sweeper.close()
