"""Several drains share the shards: each its part, and the part of one that cannot work."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from support.counted import some_counts
from support.draining import DAY, Bench, drain_of
from support.proxy import FaultProxy
from support.stack import connected

from snapbid.base.redis_keys import ShardKeys
from snapbid.base.tasks import end
from snapbid.drain import leases as drain_leases
from snapbid.drain import run
from snapbid.drain.counters import ShardCounters, ShardsUnavailableError
from snapbid.drain.drain import Drain
from snapbid.drain.leases import IdleError
from snapbid.drain.run import COUNTERS, Process
from snapbid.redisclient.connection import connect
from snapbid.warehouse import leases

SHARDS = 4
PATIENCE_S = 60


@pytest.fixture
async def bench(database: str, fresh_redis: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(database, fresh_redis, tmp_path / "metrics") as bench:
        yield bench


class Partner:
    """One of several drains, on a connection of its own."""

    def __init__(self, bench: Bench, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self._clock = bench.clock
        self.shards = bench.shards(SHARDS)
        self.drain = drain_of(bench.redis, self.shards, bench.metrics, bench.clock)

    async def round(self) -> set[int]:
        """Do a round; give the shards that it carries then."""
        self._clock.now += 0.001
        with contextlib.suppress(IdleError, ShardsUnavailableError):
            await self.drain.round(self.connection)
        return set((await leases.look(self.connection)).mine)


async def count_everywhere(bench: Bench, choose: random.Random) -> None:
    for shard in range(SHARDS):
        await bench.ledger.count(DAY, some_counts(choose), shard)


async def until(done: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await done():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(what)


async def test_they_share_and_take_over(bench: Bench, database: str) -> None:
    choose = random.Random(1)
    async with connected(database) as one, contextlib.AsyncExitStack() as stack:
        first = Partner(bench, one)
        await count_everywhere(bench, choose)
        assert await first.round() == {0, 1, 2, 3}
        await bench.assert_equal()
        second = Partner(bench, await stack.enter_async_context(connected(database)))
        assert await second.round() == set()
        assert await first.round() == {0, 1}
        assert await second.round() == {2, 3}
        third = Partner(bench, await stack.enter_async_context(connected(database)))
        for _ in range(2):
            parts = [await each.round() for each in (third, first, second)]
        assert sorted(map(len, parts)) == [0, 2, 2]  # none has more than its share of two
        await count_everywhere(bench, choose)
        for each in (first, second, third):
            await each.round()
        await bench.assert_equal()
        assert not await bench.ledger.undrained()
        await count_everywhere(bench, choose)
        await stack.aclose()  # as if both were killed
        await until(lambda: _has_all(first), "the first drain never got all shards again")
        await bench.assert_equal()
        assert not await bench.ledger.undrained()


async def _has_all(drain: Partner) -> bool:
    return len(await drain.round()) == SHARDS


async def test_what_was_lost_is_added_to_budgets_by_one_of_them(
    bench: Bench, database: str
) -> None:
    """A shard that was lost needs what all shards have counted; its drain waits for the others."""
    async with connected(database) as one, connected(database) as two:
        drains = Partner(bench, one), Partner(bench, two)
        for shard in range(SHARDS):
            await bench.ledger.count(DAY, {"P:1": 1_000_000, "W:1": 1}, shard)
        for _ in range(3):
            parts = [await each.round() for each in drains]
        assert sorted(map(len, parts)) == [2, 2]
        await bench.assert_equal()
        await bench.ledger.lose()

        async def confirmed(drain: Partner) -> None:
            while not all([(await s.fetch_state()).is_confirmed for s in drain.shards]):
                await drain.round()

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*map(confirmed, drains))
        allowances = [
            int(await bench.redis.hget(f"{ShardKeys(n).prefix}m:1", "t") or 0)
            for n in range(SHARDS)
        ]
        assert sum(allowances) == SHARDS * 1_000_000


async def test_an_empty_ledger_is_taken_over_after_an_outage(bench: Bench, database: str) -> None:
    async with connected(database) as one, connected(database) as two:
        drains = Partner(bench, one), Partner(bench, two)
        await count_everywhere(bench, random.Random(2))
        for _ in range(3):
            parts = [await each.round() for each in drains]
        assert sorted(map(len, parts)) == [2, 2]
        await bench.redis.flushall()
        for each in drains:
            await each.drain.begin()  # as after an outage, before each sees the other ledger
        for _ in range(4):
            parts = [await each.round() for each in drains]
        await count_everywhere(bench, random.Random(3))
        parts = [await each.round() for each in drains]
        assert sorted(map(len, parts)) == [2, 2]
        assert not await bench.ledger.undrained(), "each waits for the other's leases"


@pytest.fixture
async def proxy(fresh_redis: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(Path(urlsplit(fresh_redis).path)) as proxy:
        yield proxy


class Running:
    """A drain as `snapbid drain` runs it, which reads some shards by another way."""

    def __init__(self, bench: Bench, dsn: str, url: str, cut: range) -> None:
        self.ways = {True: connect(url), False: connect(_url(bench))}
        shards = [ShardCounters(self.ways[n in cut], n) for n in range(SHARDS)]
        drain: Drain = drain_of(bench.redis, shards, bench.metrics, bench.clock)
        self.task = asyncio.create_task(Process(COUNTERS, drain, dsn, asyncio.Event(), {}).run())

    async def close(self) -> None:
        await end(self.task)
        for way in self.ways.values():
            await way.aclose()


def _url(bench: Bench) -> str:
    return f"unix://{bench.redis.connection_pool.connection_kwargs['path']}"


@pytest.mark.parametrize("cut", [range(SHARDS), range(1)], ids=["all", "one of them"])
async def test_one_that_is_cut_from_redis_leaves_its_part(
    bench: Bench, database: str, proxy: FaultProxy, cut: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (drain_leases, run):
        monkeypatch.setattr(module, "GIVEN_UP_S", 0.5)
    monkeypatch.setattr(run, "PAUSE_S", 0.1)
    choose = random.Random(2)

    async def is_drained() -> bool:
        return not await bench.ledger.undrained()

    async def holders() -> list[int]:
        rows = await bench.connection.fetch(
            "select count(*) as shards from pg_locks where locktype = 'advisory'"
            " and classid = $1 and objid < $2 and granted group by pid",
            leases.COUNTERS,
            SHARDS,
        )
        return sorted(row["shards"] for row in rows)

    async def is_held() -> bool:
        return sum(await holders()) == SHARDS

    async def are_shared() -> bool:
        return await holders() == [2, 2]

    async with contextlib.AsyncExitStack() as stack:
        for url in (f"unix://{proxy.socket}", _url(bench)):
            drain = Running(bench, database, url, cut)
            stack.push_async_callback(drain.close)
            await until(is_held, "no drain carries all shards")
        await until(are_shared, "the drains do not share the shards")
        for spoil in (proxy.stall, proxy.cut):
            if spoil == proxy.cut:
                await proxy.refuse()
            spoil()
            await count_everywhere(bench, choose)
            await until(is_drained, "what the one cannot read, the other does not carry")
            if len(cut) == SHARDS:
                assert await holders() == [SHARDS]
            await bench.assert_equal()
            await proxy.resume()
            await until(are_shared, "the one never got its share back")
            await count_everywhere(bench, choose)
            await until(is_drained, "what is shared again is not carried")
            await bench.assert_equal()
