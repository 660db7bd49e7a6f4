"""Events of a ledger with several shards: a stream for each, shared by several drains."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisError
from support.event_bench import GEO, HISTORY, accepted
from support.proxy import FaultProxy
from support.sending import NOW, claimed, event, money, offered
from support.stack import connected, fetch, lock_is_awaited

from snapbid.base.redis_keys import ShardKeys, hash_tag
from snapbid.drain import leases as drain_leases
from snapbid.drain.counters import ShardsUnavailableError
from snapbid.drain.events import EventDrain
from snapbid.drain.leases import IdleError
from snapbid.drain.streams import EventStream
from snapbid.events.outcomes import Product
from snapbid.metrics import Metrics
from snapbid.operations.dashboard import ledger as ops
from snapbid.queues import queue
from snapbid.queues.queues import EventQueues, stream_of
from snapbid.redisclient.connection import connect
from snapbid.warehouse import events, leases

SHARDS = 4
PRODUCTS = [f"product-{number}" for number in range(12)]
PATIENCE_S = 60


def of(product: str, *documents: dict[str, Any]) -> list[tuple[str, bytes]]:
    """What the queue is given of events of a product."""
    return accepted(Product(product, frozenset({"igaming"})), *documents)


class Bench:
    """Streams, a warehouse, and drains on connections of their own."""

    def __init__(self, url: str, dsn: str, folder: Path) -> None:
        self.url = url
        self.dsn = dsn
        self.redis = Redis.from_url(url)
        self.metrics = Metrics(folder)
        self.sent: set[str] = set()

    async def add(self, shard: int, product: str, *documents: dict[str, Any]) -> None:
        """Put events into the stream of a shard."""
        pairs = of(product, *documents)
        self.sent |= {event_id for event_id, _ in pairs}
        packed = queue.encode(NOW, product, pairs)
        command = queue.add([packed], ShardKeys(shard).events)
        await self.redis.execute_command(*command)  # type: ignore[no-untyped-call]

    async def add_everywhere(self, tag: str, shards: int = SHARDS) -> None:
        for shard in range(shards):
            await self.redis.set(ShardKeys(shard).epoch, "as of a ledger in use")
            await self.add(shard, PRODUCTS[shard], event("login", f"{tag}-{shard}"))

    async def queued(self) -> list[int]:
        """How many entries each stream has."""
        return [await self.redis.xlen(ShardKeys(shard).events) for shard in range(SHARDS)]

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return await fetch(self.dsn, sql)

    async def assert_stored(self) -> None:
        """Each event once, and none that was not sent."""
        stored = Counter(await self.rows("select event_id from events"))
        assert stored == Counter((event_id,) for event_id in self.sent)


class Partner:
    """One of several drains."""

    def __init__(
        self, bench: Bench, connection: asyncpg.Connection, shards: int, redis: Redis | None
    ) -> None:
        self.connection = connection
        self.drain = EventDrain(redis or bench.redis, bench.metrics, GEO, HISTORY, shards=shards)

    async def round(self) -> set[int]:
        """Do a round; give the leases it has then."""
        with contextlib.suppress(IdleError, ShardsUnavailableError):
            await self.drain.round(self.connection)
        return set((await leases.look(self.connection, leases.EVENTS)).mine)


@contextlib.asynccontextmanager
async def partner(
    bench: Bench, shards: int = SHARDS, redis: Redis | None = None
) -> AsyncIterator[Partner]:
    async with connected(bench.dsn) as connection:
        assert await events.join(connection)
        yield Partner(bench, connection, shards, redis)


@pytest.fixture
async def bench(database: str, fresh_redis: str, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(fresh_redis, database, tmp_path / "metrics")
    yield bench
    bench.metrics.close()
    await bench.redis.aclose()


# -- the way in -----------------------------------------------------------------------------------


async def put_all(queues: EventQueues, products: list[str]) -> list[bool]:
    sent = ((product, of(product, event("login", product))) for product in products)
    return await asyncio.gather(*(queues.sink.put(NOW, name, pairs) for name, pairs in sent))


async def opened(queues: EventQueues) -> None:
    await queues.open()
    async with asyncio.timeout(PATIENCE_S):
        while not all(each.connected for each in queues._queues):
            await asyncio.sleep(0.005)


async def test_a_product_has_one_stream_and_products_have_several(bench: Bench) -> None:
    queues = EventQueues(bench.url, shards=SHARDS)
    await opened(queues)
    assert all(await put_all(queues, PRODUCTS * 3))
    await queues.close()
    assert 0 not in await bench.queued()
    for shard in range(SHARDS):
        entries: Any = await bench.redis.xrange(ShardKeys(shard).events)
        packed = [queue.decode(each) for _, fields in entries for each in fields.values()]
        assert {stream_of(request.product, SHARDS) for request in packed} == {shard}


async def test_one_shard_keeps_the_stream_it_had(bench: Bench) -> None:
    queues = EventQueues(bench.url)
    await opened(queues)
    assert isinstance(queues.sink, queue.EventQueue)  # nothing in between
    assert all(await put_all(queues, PRODUCTS))
    await queues.close()
    assert await bench.redis.keys("*") == [b"{sb0}:e"]


async def test_the_backlog_bound_covers_all_streams(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MAX_WAITING_BYTES", 3000)
    queues = EventQueues(bench.url, shards=SHARDS)
    await opened(queues)
    kept = await put_all(queues, PRODUCTS * 10)
    assert 0 < sum(kept) < 60  # each stream alone would take as much
    await queues.close()


# -- the way out ----------------------------------------------------------------------------------


async def test_drains_share_the_streams_and_take_over(bench: Bench) -> None:
    async with partner(bench) as first, contextlib.AsyncExitStack() as stack:
        await bench.add_everywhere("alone")
        assert await first.round() == set(range(SHARDS))
        await bench.assert_stored()
        second = await stack.enter_async_context(partner(bench))
        assert [await each.round() for each in (second, first, second)] == [set(), {0, 1}, {2, 3}]
        await bench.add_everywhere("shared")
        await second.round()
        assert await bench.queued() == [1, 1, 0, 0]
        await first.round()
        await bench.assert_stored()
        await bench.add_everywhere("left")
        await stack.aclose()  # as if it was killed
        async with asyncio.timeout(PATIENCE_S):
            while await first.round() != set(range(SHARDS)):
                await asyncio.sleep(0.02)
        await bench.assert_stored()
        assert await bench.queued() == [0] * SHARDS


async def test_a_drain_that_ends_before_it_removes_what_it_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.add_everywhere("twice")
    async with partner(bench) as dying:
        with monkeypatch.context() as patch:
            patch.setattr(EventStream, "remove", _fail)
            with contextlib.suppress(RedisError):
                await dying.round()
    await bench.assert_stored()
    assert await bench.queued() == [1] * SHARDS
    async with partner(bench) as heir:
        await heir.round()
    await bench.assert_stored()
    assert await bench.queued() == [0] * SHARDS


async def test_a_drain_that_ends_before_it_stores(bench: Bench) -> None:
    """Fails where entries are removed first: they are gone with the transaction."""
    await bench.add_everywhere("not yet")
    async with connected(bench.dsn) as blocker, partner(bench) as dying, blocker.transaction():
        await blocker.execute("lock table event_ids in access exclusive mode")
        under_way = asyncio.create_task(dying.round())
        await lock_is_awaited(blocker)
        dying.connection.terminate()
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await under_way
    async with partner(bench) as heir, asyncio.timeout(PATIENCE_S):
        while await heir.round() != set(range(SHARDS)):
            await asyncio.sleep(0.02)
    await bench.assert_stored()


async def _fail(*_: Any) -> None:
    raise RedisError("unavailable")


async def test_repeats_in_several_streams_are_stored_once(bench: Bench) -> None:
    """A client that repeats what was stored amid a change of the number of shards, say."""
    sent = [event("login", f"u{number}") for number in range(300)]
    for shard in range(SHARDS):
        own = [event("withdraw", transaction_id="t", **money(amount)) for amount in (5, 6 + shard)]
        await bench.add(shard, "shop", *sent[shard * 50 :], *own)
    async with partner(bench) as first, partner(bench) as second:
        for each in (first, second, first, second):
            await each.round()  # they share now
        for shard in range(SHARDS):
            await bench.add(shard, "shop", *sent, *reversed(sent))
        await asyncio.gather(first.round(), second.round())
    assert await bench.queued() == [0] * SHARDS
    await bench.assert_stored()
    conflicts = await bench.rows("select (context ->> 'amount')::int from event_conflicts")
    assert sorted(amount for (amount,) in conflicts) == [6, 7, 8, 9]


async def test_a_sequence_in_two_streams_is_judged_as_one(bench: Bench) -> None:
    """Neither drain may overlook what the other is just storing."""
    count = 200
    async with partner(bench) as first, partner(bench) as second:
        for each in (first, second, first, second):
            await each.round()
        for start in range(0, count, 10):
            numbers = range(start, start + 10)
            await bench.add(0, "casino", *(offered(f"b{number}") for number in numbers))
            await bench.add(3, "casino", *(claimed(f"b{number}") for number in numbers))
        await asyncio.gather(first.round(), second.round())
    await bench.assert_stored()
    flagged = await bench.rows("select flags from events where event = 'bonus_claimed'")
    assert len(flagged) == count
    assert {tuple(flags) for (flags,) in flagged} <= {(), ("out_of_order",)}


# -- another number of shards ---------------------------------------------------------------------


async def test_streams_are_carried_on_after_a_change_of_their_number(bench: Bench) -> None:
    await bench.add(0, "shop", event("login", "of one shard"))
    async with partner(bench, shards=SHARDS) as grown:
        await grown.round()
    await bench.assert_stored()
    await bench.add_everywhere("of several")
    waiting = await ops.waiting(bench.redis, 1, time())
    assert waiting.entries == SHARDS
    assert 0 <= waiting.oldest_s < PATIENCE_S
    async with partner(bench, shards=1) as shrunk:
        assert await shrunk.round() == {0}
        await bench.assert_stored()
        await bench.add(3, "shop", event("login", "from a server that knows no better"))
        await shrunk.round()
        await bench.assert_stored()
    assert (await ops.waiting(bench.redis, SHARDS, time())).entries == 0


async def test_leftover_streams_are_shared(bench: Bench) -> None:
    async with partner(bench, shards=2) as first, partner(bench, shards=2) as second:
        for each in (first, second, first, second):
            await each.round()
        await bench.add_everywhere("left over")
        for each in (first, second):
            each.drain._streams._look_at = 0.0
        await first.round()
        assert await bench.queued() == [0, 1, 0, 1]
        await second.round()
    await bench.assert_stored()


# -- a part of Redis that is unavailable ----------------------------------------------------------


class Partly(Redis):
    """A client that reaches some shards by another way."""

    def __init__(self, url: str, other: Redis, shards: set[int]) -> None:
        super().__init__(connection_pool=ConnectionPool.from_url(url))
        self.other = other
        self._shards = shards

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        if any(f"{{{hash_tag(shard)}}}" in str(args[1:2]) for shard in self._shards):
            return await self.other.execute_command(*args, **options)  # type: ignore[no-untyped-call]
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


@pytest.fixture
async def proxy(fresh_redis: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(Path(urlsplit(fresh_redis).path)) as proxy:
        yield proxy


async def test_an_unavailable_stream_blocks_no_other(
    bench: Bench, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_leases, "GIVEN_UP_S", 0.2)
    redis = Partly(bench.url, connect(f"unix://{proxy.socket}"), {1, 2})
    try:
        async with partner(bench, redis=redis) as cut, partner(bench) as whole:
            assert await cut.round() == set(range(SHARDS))
            await proxy.disconnect()
            await bench.add_everywhere("partly")
            with pytest.raises(
                ShardsUnavailableError, match="shard 1: ConnectionError; shard 2: Conn"
            ):
                await cut.drain.round(cut.connection)
            assert await bench.queued() == [0, 1, 1, 0]
            async with asyncio.timeout(PATIENCE_S):
                while await bench.queued() != [0] * SHARDS:
                    await asyncio.gather(cut.round(), whole.round())
            await bench.assert_stored()
            await proxy.resume()
            async with asyncio.timeout(PATIENCE_S):
                while [len(await each.round()) for each in (cut, whole)] != [2, 2]:
                    await asyncio.sleep(0.02)
    finally:
        await redis.other.aclose()
        await redis.aclose(close_connection_pool=True)
