"""A worker's ledger with the drain, an allocator and a sweeper beside it, in real time."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg

from snapbid.drain.counters import ShardCounters
from snapbid.drain.drain import Drain
from snapbid.ledger.admin.moving import LedgerPlace
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.budgets.allocator import Allocator, EscrowedBudget
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.ledger.budgets.limits import Limits
from snapbid.ledger.caps.outbox import OutboxSweeper
from snapbid.metrics import Metrics
from snapbid.redisclient.connection import Connections
from support.remembered import opened, until
from support.spending import reserve, state
from support.stack import connected

PRICE = 1_000_000  # nano-USD of a bid, and its CPM in micro-USD
BUDGET, CAPS, POOR = 1, 2, 3  # campaigns


class Machine:
    """Bids and notifies; a budget is good for `bids` bids of campaign BUDGET."""

    def __init__(self, place: LedgerPlace, ledger: Ledger, allocator: Allocator, bids: int) -> None:
        self.ledger = ledger
        self._allocator = allocator
        self._budget = EscrowedBudget(BUDGET, {"t": bids * PRICE}, PRICE)
        if place.shards == 1:
            self._limits = Limits(BUDGET, None, bids * PRICE // 1000, None)
        else:
            self._limits = Limits(BUDGET, None, 1, None, in_escrow=True)
        self._is_escrowed = place.shards > 1
        self._sweeper = OutboxSweeper(Connections(place.url), place.shards, time.time)

    async def bid(self, number: int) -> str:
        """A bid of the campaign with a budget; the allocator goes round where it is refused."""
        for _ in range(4 if self._is_escrowed else 1):
            letter = await reserve(self.ledger, b"b-%d" % number, (b"1", PRICE, self._limits))
            if letter != "b" or not self._is_escrowed:
                break
            await self._allocator.balance([self._budget])
        return letter

    async def show(self, user: str, number: int) -> str:
        """A bid of the campaign with a cap of 3."""
        of = Limits(CAPS, None, None, None, ((3, 3600),))
        auction = b"%s-%d" % (user.encode(), number)
        return await reserve(self.ledger, auction, (b"1", PRICE, of), user=user)

    async def refuse(self) -> str:
        """A bid of a campaign whose budget is less than a bid costs."""
        limits = Limits(POOR, None, 1, None, in_escrow=self._is_escrowed)
        return await reserve(self.ledger, b"poor", (b"1", PRICE, limits))

    async def settle(self, kind: int, *auctions: bytes) -> str:
        letters = [await self.ledger.settle(kind, auction, b"1", 1) for auction in auctions]
        return "".join(letters)

    async def sweep(self) -> None:
        if self._is_escrowed:
            for _ in range(3):
                await self._sweeper.sweep()

    async def used(self) -> tuple[int, int]:
        """Bids that have used the budget, and those of them that are held."""
        spend = await state(self.ledger, BUDGET)
        return spend.used // PRICE, spend.held // PRICE

    async def close(self) -> None:
        await self._sweeper.close()
        await self._allocator.close()


@contextlib.asynccontextmanager
async def machine(
    place: LedgerPlace, spool: Path, bids: int, hold_s: int = 600
) -> AsyncIterator[Machine]:
    allocator = Allocator(Connections(place.url), place.shards, time.time)
    own = opened(place.url, spool, shards=place.shards, hold_s=hold_s, confirmed=False)
    async with own as ledger:
        made = Machine(place, ledger, allocator, bids)
        try:
            yield made
        finally:
            await made.close()


@contextlib.asynccontextmanager
async def draining(place: LedgerPlace, dsn: str, metrics: Path) -> AsyncIterator[Drain]:
    """A drain that goes round, until budgets are confirmed at least."""
    connection = await asyncpg.connect(dsn)
    redis, counts = Connections(place.url).client(), Metrics(metrics)
    shards = [ShardCounters(redis, number) for number in range(place.shards)]
    drain = Drain(shards, Budgets(redis, place.shards, time.time), counts)
    is_over = False

    async def go_round() -> None:
        await drain.begin()
        while not is_over:
            await drain.round(connection)
            await asyncio.sleep(0.01)
        await drain.round(connection)

    rounds = asyncio.create_task(go_round())
    try:
        while not all([(await shard.fetch_state()).is_confirmed for shard in shards]):
            assert not rounds.done() or rounds.result()
            await asyncio.sleep(0.01)
        yield drain
        is_over = True
        await rounds
    finally:
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        await redis.aclose()
        counts.close()
        await connection.close()


async def settled(spool: Path) -> None:
    """Wait until nothing is spooled."""
    await until(lambda: not list(spool.glob("*.spool")))


async def books(dsn: str) -> dict[str, tuple[Any, ...]]:
    """What the warehouse has of campaigns: bids, wins, impressions, CPMs of wins; and of losses."""
    async with connected(dsn) as connection:
        rows = await connection.fetch(
            "select campaign, sum(bids)::int, sum(wins)::int, sum(imps)::int,"
            " sum(win_cpm_micros)::bigint from campaign_daily group by campaign"
        )
        losses = await connection.fetchval("select coalesce(sum(losses), 0)::int from loss_daily")
        return {**{row[0]: tuple(row)[1:] for row in rows}, "losses": (losses,)}
