"""Publish releases of refused campaigns, which this machine's workers then reactivate.

With several shards, also move money to the shards that request a refill (the allocator,
ledger/budgets/escrow.py), and deliver the outcomes of capped bids to the users' shards
(ledger/caps/outbox.py).

All this runs in a thread of the `serve` process, which outlives workers. The threads of several
machines work at the same time; each refill request is answered by one of them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from time import monotonic, time
from typing import Final

from redis.exceptions import RedisError

from snapbid.base.settings import Settings
from snapbid.base.tasks import LoopThread, end
from snapbid.catalog.catalog import Catalog, CatalogError, Stamp, stamp_of
from snapbid.ledger.budgets.allocator import Allocator, EscrowedBudget
from snapbid.ledger.budgets.headroom import HeadroomReader
from snapbid.ledger.budgets.limits import DAY_S
from snapbid.ledger.budgets.releases import ALL, DAILY, Release, ReleaseWriter, releases_path
from snapbid.ledger.caps.outbox import OutboxSweeper
from snapbid.redisclient.connection import Connections
from snapbid.server.budget_book import BudgetBook

ROUND_S: Final = 0.1
MOST: Final = 1000  # campaigns in one round
FRESH: Final = 200  # of these, new or changed ones that no shard has requested yet
AGAIN_S: Final = 1.0  # before such a campaign is retried
GONE_S: Final = 5.0  # after which a requested campaign missing from the catalog counts as gone

logger = logging.getLogger(__name__)


class AllocatorThread:
    """Publishes releases; with several shards, also balances budgets and delivers cap updates.

    Raises OSError if the file of releases cannot be written.
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.redis_url is not None
        self._connections = Connections(settings.redis_url, settings.redis_replicas)
        self._shards = settings.shards
        self._catalog_path = settings.catalog_path
        self._writer = ReleaseWriter(releases_path(settings.runtime_dir))
        self._book = BudgetBook()
        self._catalog: Catalog | None = None
        self._stamp: Stamp | None = None
        self._requested: set[int] = set()
        self._fresh: dict[int, float] = {}  # campaign -> when it is due (monotonic)
        self._unknown: dict[int, float] = {}  # campaign -> its first refill request (monotonic)
        self._unavailable: set[int] = set()  # shards
        self._ahead_s = 0.0  # by which the ledger's clock, whose days count, is ahead of ours
        self._thread = LoopThread("allocator", self._work)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; another machine, or the next start, completes interrupted work."""
        self._thread.stop()
        self._writer.close()

    def _now(self) -> float:
        return time() + self._ahead_s

    async def _work(self) -> None:
        redis = self._connections.client()
        reader = HeadroomReader(redis, self._shards, time)
        tasks = [asyncio.create_task(self._follow_shard(reader, n)) for n in range(self._shards)]
        try:
            if self._shards > 1:
                await self._carry()
            await asyncio.gather(*tasks)
        finally:
            await end(*tasks)
            await redis.aclose()

    async def _carry(self) -> None:
        allocator = Allocator(
            self._connections, self._shards, self._now, unavailable=self._unavailable
        )
        sweeper = OutboxSweeper(self._connections, self._shards, self._now)
        sweeping = asyncio.create_task(self._sweep(sweeper))
        try:
            while True:
                try:
                    await self._follow_catalog()
                    await self._balance(allocator)
                except Exception:
                    logger.exception("failed to balance budgets between shards; retrying")
                await asyncio.sleep(ROUND_S)
        finally:
            await end(sweeping)
            await allocator.close()
            await sweeper.close()

    async def _follow_shard(self, reader: HeadroomReader, shard: int) -> None:
        today = None
        while True:
            try:
                headroom = await reader.read(shard)
            except (RedisError, OSError):
                self._unavailable.add(shard)  # the workers log it
            except Exception:
                logger.exception(
                    "failed to read the releases of shard %(shard)d; retrying", {"shard": shard}
                )
            else:
                self._unavailable.discard(shard)
                self._requested.update(headroom.refills)
                self._ahead_s = headroom.at - time()
                released, before = headroom.released, today
                today = headroom.at // DAY_S
                if headroom.is_behind:
                    released = [ALL]
                elif today != before and self._shards == 1:  # else allocators grant the new day
                    released = [*released, DAILY]
                self._writer.publish(Release(campaign, shard) for campaign in released)
            await asyncio.sleep(ROUND_S)

    async def _sweep(self, sweeper: OutboxSweeper) -> None:
        while True:
            has_more = False
            try:
                has_more = await sweeper.sweep()
            except (RedisError, OSError):
                pass  # the workers log it
            except Exception:
                logger.exception("failed to deliver cap updates between shards; retrying")
            if not has_more:
                await asyncio.sleep(ROUND_S)

    async def _follow_catalog(self) -> None:
        stamp = stamp_of(self._catalog_path)
        if stamp != self._stamp:
            with contextlib.suppress(FileNotFoundError, CatalogError):  # the workers log it
                fresh = await asyncio.to_thread(self._take_up)
                self._fresh |= dict.fromkeys(fresh, 0.0)
            self._stamp = stamp

    def _take_up(self) -> list[int]:
        self._catalog = Catalog.open(self._catalog_path, self._catalog)
        return self._book.take_up(self._catalog)

    async def _balance(self, allocator: Allocator) -> None:
        requested, self._requested = self._requested, set()
        fresh = set(islice(self._due(), FRESH))
        while requested or fresh:
            some = set(islice(requested, MOST)) | fresh
            requested -= some
            whole: set[int] = set()
            with contextlib.suppress(RedisError, OSError):
                whole = await allocator.balance(list(self._budgets(some)))
            for campaign in fresh - whole:
                self._fresh[campaign] = monotonic() + AGAIN_S
            fresh = set()

    def _due(self) -> Iterator[int]:
        """Yield campaigns to balance now: those with new or changed budgets, and those to retry."""
        now = monotonic()
        for campaign, due in list(islice(self._fresh.items(), MOST)):
            if due <= now:
                del self._fresh[campaign]
                yield campaign

    def _budgets(self, campaigns: Iterable[int]) -> Iterator[EscrowedBudget]:
        for campaign in campaigns:
            budget = self._book.of(campaign, self._now())
            if budget is not None:
                self._unknown.pop(campaign, None)
                yield budget
            elif monotonic() - self._unknown.setdefault(campaign, monotonic()) > GONE_S:
                del self._unknown[campaign]
                yield EscrowedBudget(campaign, {}, 1)  # ends its refill requests
