"""A ledger and a warehouse, either of which may be lost or set back to an earlier copy."""

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from redis.asyncio import Redis as Client

from snapbid.drain.counters import NOTHING, Reading, ShardCounters, SupersededError
from snapbid.embedded import Home, Redis
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import WIN
from snapbid.ledger.budgets.allocator import Allocator, EscrowedBudget
from snapbid.ledger.budgets.limits import Limits
from snapbid.metrics import Metrics
from snapbid.redisclient.connection import Connections
from snapbid.warehouse import fence
from support.clock import SettableClock
from support.cluster import free_ports
from support.counted import register
from support.draining import NOON as DRAIN_NOON
from support.draining import drain_of
from support.remembered import NOON, TTL_S, looking, opened
from support.spending import reserve
from support.stack import Databases, connected, run

PRICE = 20_000_000  # CPM in micro-USD: a bid costs 0.02 USD


class Stores:
    """A Redis of the test's own and a database; the ledger and the drain run in this process."""

    def __init__(self, redis: Redis, databases: Databases, dsn: str, scratch: Path) -> None:
        self.redis = redis
        self.dsn = dsn
        self.shards = 1
        self.redis_database = 0
        self.clock = SettableClock(DRAIN_NOON)
        self.clock.now = NOON  # to come: Redis expires records by its own clock
        self._databases = databases
        self._scratch = scratch
        self._copies = 0
        self._auctions = 0

    # -- the ledger --------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def ledger(self, *, ttl_s: int = TTL_S) -> AsyncIterator[Ledger]:
        """A worker's ledger, which is connected and spools nothing."""
        spool = self._scratch / "spool"
        async with opened(
            self.url,
            spool,
            clock=self.clock,
            ttl_s=ttl_s,
            shards=self.shards,
            confirmed=False,
        ) as ledger:
            yield ledger

    def restart_ledger(self) -> None:
        """Restart Redis with its data intact."""
        self.redis.stop()
        self.redis.start()

    def copy_ledger(self) -> Path:
        """Stop Redis, copy its append-only file, and start it again."""
        self.redis.stop()
        self._copies += 1
        copy = self._scratch / f"ledger-{self._copies}"
        shutil.copytree(self.redis.data, copy)
        self.redis.start()
        return copy

    def restore_ledger(self, copy: Path | None) -> None:
        """Restore a copy, or empty the ledger."""
        self.redis.stop()
        shutil.rmtree(self.redis.data)
        if copy is not None:
            shutil.copytree(copy, self.redis.data)
        self.redis.start()

    @contextlib.contextmanager
    def emptied(self) -> Iterator[Callable[[], None]]:
        """Give what empties the ledger."""
        yield lambda: self.restore_ledger(None)

    @contextlib.contextmanager
    def copied(self) -> Iterator[Callable[[], None]]:
        """Copy the ledger; give what restores that."""
        copy = self.copy_ledger()
        yield lambda: self.restore_ledger(copy)

    @contextlib.contextmanager
    def replicated(self) -> Iterator[Callable[[], None]]:
        """Replicate the ledger; give what puts that back while its Redis goes on running."""
        with self.replica() as replica:
            yield lambda: follow(self.redis, replica)

    @contextlib.contextmanager
    def replica(self) -> Iterator[Redis]:
        """A second Redis with the ledger's current data, and none of its later writes."""
        self._copies += 1
        with Home(self._scratch / f"replica-{self._copies}") as home:
            other = Redis(home)
            other.start()
            try:
                follow(other, self.redis)
                yield other
            finally:
                other.stop()

    def client(self) -> Client:
        return Client.from_url(self.url)

    @property
    def url(self) -> str:
        """The ledger's URL."""
        return f"{self.redis.url}?db={self.redis_database}"

    async def own(self, ledger: Ledger) -> None:
        """Let a worker's ledger know what the catalog says of the warehouse."""
        async with connected(self.dsn) as connection:
            identity = await fence.identity(connection)
            ledger.belong_to(identity, await fence.own_ledger(connection))

    async def command(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run `snapbid` with these stores to its end."""
        environ = {
            "SNAPBID_HOME": str(self._scratch / "home"),
            "SNAPBID_REDIS_URL": self.url,
            "SNAPBID_DATABASE_URL": self.dsn,
            "SNAPBID_LEDGER_SHARDS": str(self.shards),
            "SNAPBID_JWT_SECRET": "s" * 32,
        }
        return await asyncio.to_thread(run, environ, *args)

    # -- the warehouse -----------------------------------------------------------------------

    def copy_warehouse(self) -> str:
        """Copy the database; nobody may be connected."""
        return self._databases.copy(self.dsn)

    def restore_warehouse(self, copy: str) -> None:
        self._databases.restore(copy, self.dsn)

    def dump_warehouse(self) -> str:
        return self._databases.dump(self.dsn)

    def restore_in_place(self, dump: str) -> None:
        """Put a dump in the place of the warehouse's content, under open connections."""
        self._databases.restore_in_place(dump, self.dsn)

    async def fetch(self, sql: str, *values: Any) -> Any:
        async with connected(self.dsn) as connection:
            return await connection.fetchval(sql, *values)

    async def add_campaign(self, name: str) -> int:
        """Add a campaign; give its number."""
        async with connected(self.dsn) as connection:
            await connection.execute(
                "insert into campaign (id, document)"
                " values ($1, jsonb_build_object('id', $1::text))",
                name,
            )
        return int(await self.fetch("select number from campaign_number where id = $1", name))

    async def wins(self, campaign: str = "c-1") -> int:
        """The wins of a campaign that the warehouse shows."""
        sql = "select coalesce(sum(wins), 0) from campaign_daily where campaign = $1"
        return int(await self.fetch(sql, campaign))

    async def bids(self) -> int:
        return int(await self.fetch("select coalesce(sum(bids), 0) from bid_daily"))

    # -- what happens ------------------------------------------------------------------------

    async def drain(self, rounds: int = 1) -> None:
        """Run some rounds of a drain that has just started."""
        async with self.draining() as drain:
            for _ in range(rounds):
                await drain()

    @contextlib.asynccontextmanager
    async def draining(
        self, shard: Callable[[Client, int], ShardCounters] = ShardCounters
    ) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """A running drain: give what runs a round, and restarts if a round asks for it."""
        metrics = Metrics(self._scratch / "metrics")
        client = self.client()
        try:
            async with connected(self.dsn) as connection:
                shards = [shard(client, number) for number in range(self.shards)]
                drain = drain_of(client, shards, metrics, self.clock)
                await drain.begin()

                async def round_() -> None:
                    try:
                        await drain.round(connection)
                    except SupersededError:
                        await drain.begin()
                        await drain.round(connection)

                yield round_
        finally:
            await client.aclose()
            metrics.close()

    async def lose_after(self, batches: int) -> None:
        """Have a drain absorb so many batches of a round, and end before it knows."""

        class Ending(ShardCounters):
            left = batches

            async def read(self, batch: int, after: Reading = NOTHING) -> Reading:
                if not self.left:
                    raise ConnectionAbortedError
                self.left -= 1
                return await super().read(batch, after)

        async with self.draining(Ending) as drain:
            with contextlib.suppress(ConnectionAbortedError):
                await drain()

    async def allocate(self, limits: Limits) -> None:
        """One round of an allocator for a campaign."""
        connections = Connections(self.redis.url)
        allocator = Allocator(connections, self.shards, self.clock, simulated=True)
        periods = limits.periods(int(self.clock()))
        try:
            await allocator.balance([EscrowedBudget(limits.campaign, periods, PRICE)])
        finally:
            await allocator.close()

    async def sell(
        self,
        ledger: Ledger,
        count: int,
        limits: Limits | None = None,
        campaign: int = 1,
        allocate: bool = False,
        most: int = 2**31,
    ) -> int:
        """Bid `count` times and win each bid that is kept, at `most` so many; give how many were.

        `allocate`: before each bid an allocator goes round.
        """
        kept = 0
        for _ in range(count):
            if kept == most:
                break
            if allocate and limits is not None:
                await self.allocate(limits)
            self._auctions += 1
            auction = b"auction %d" % self._auctions
            if limits is None:
                done = ledger.remember(auction, 1, [(b"1", campaign, PRICE, None)], None, 10.0)
                assert done is not None
                assert await done
            elif await reserve(ledger, auction, (b"1", PRICE, limits)) != "k":
                continue
            assert await ledger.settle(WIN, auction, b"1") == "c"
            kept += 1
        return kept

    async def sell_and_drain(self, count: int, limits: Limits | None = None) -> int:
        """Sell from a ledger that is closed before a drain."""
        async with self.ledger() as ledger:
            kept = await self.sell(ledger, count, limits)
        await self.drain()
        return kept


def follow(redis: Redis, primary: Redis) -> None:
    """Have a Redis take over the data of another one, which both have from then on."""
    (port,) = free_ports(1)
    with looking(primary.url) as from_, looking(redis.url) as to:
        from_.config_set("port", port)
        to.replicaof("127.0.0.1", port)
        while to.info("replication")["master_link_status"] != "up":
            time.sleep(0.01)
        to.replicaof("NO", "ONE")
        from_.config_set("port", 0)


async def prepare(dsn: str) -> None:
    """Register the SSPs and campaigns of these tests."""
    async with connected(dsn) as connection:
        await register(connection)
