"""A flood of one partner's events delays no other's: products are carried in turns, also those of
one stream (contract 7). What comes when is seen in the order in which the warehouse got it.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.event_bench import Bench, accepted
from support.sending import NOW, PATIENCE_S, event

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain import events as drain_events
from snapbid.drain import streams
from snapbid.events.outcomes import Product
from snapbid.queues import queue

FLOOD = Product("flood", frozenset())
SHOP = Product("shop", frozenset())
ROWS = 100


@pytest.fixture
async def bench(
    database: str, fresh_redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    monkeypatch.setattr(drain_events, "ROWS", ROWS)
    async with Bench.open(database, fresh_redis, tmp_path) as bench:
        yield bench


def request(product: Product, count: int, user: str) -> bytes:
    """Events as the queue gets them, of numbered users."""
    sent = (event("login", f"{user}-{number}") for number in range(count))
    return queue.encode(NOW, product.name, accepted(product, *sent))


async def carry(bench: Bench) -> list[tuple[str, str]]:
    """Carry everything; give products and users in the order in which they were stored."""
    async with asyncio.timeout(PATIENCE_S):
        while await bench.redis.xlen(ShardKeys(0).events):
            await bench.drain.round(bench.connection)
    rows = await bench.rows("select product, client_user_id from events order by arrival")
    return [(product, user) for product, user in rows]


@pytest.mark.parametrize("held", [1 << 30, 20_000], ids=["in memory", "read again"])
async def test_one_event_behind_a_flood(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(streams, "HELD_BYTES", held)
    for number in range(40):
        await bench.add(request(FLOOD, 150, f"f{number}"))
    await bench.add(request(SHOP, 1, "s"))
    stored = await carry(bench)
    assert len(stored) == 40 * 150 + 1
    assert stored.index(("shop", "s-0")) < 3 * ROWS
    flood = [user for product, user in stored if product == "flood"]
    assert flood == [f"f{batch}-{number}" for batch in range(40) for number in range(150)]


async def test_single_events_beside_batches_have_as_many_turns(bench: Bench) -> None:
    """As many events, not as many requests; those that share an entry of the stream, too."""
    for number in range(20):
        await bench.add(request(FLOOD, 100, f"f{number}"))
    for start in range(0, 400, 40):
        await bench.add(*(request(SHOP, 1, f"s{start + n}") for n in range(40)))
    stored = await carry(bench)
    last = max(place for place, (product, _) in enumerate(stored) if product == "shop")
    assert last < 3 * 400


async def test_events_during_a_flood(bench: Bench) -> None:
    for number in range(20):
        await bench.add(request(FLOOD, 100, f"f{number}"))
    read = streams.EventStream.read
    reads = 0

    async def read_and_add(self: streams.EventStream, *span: bytes) -> object:
        nonlocal reads
        reads += 1
        if reads == 8:
            await bench.add(request(SHOP, 1, "s"))
        return await read(self, *span)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams.EventStream, "read", read_and_add)
        stored = await carry(bench)
    assert stored.index(("shop", "s-0")) < 10 * ROWS
    assert len(stored) == 2_001


@pytest.mark.parametrize("seed", range(6))
async def test_each_event_once_and_in_the_order_of_its_product(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    choose = random.Random(seed)
    monkeypatch.setattr(streams, "HELD_BYTES", choose.choice([0, 5_000, 1 << 20]))
    monkeypatch.setattr(streams, "MOST_WAITING", choose.choice([1, 7, 1_000]))
    monkeypatch.setattr(streams, "TAKEN_BYTES", choose.choice([1, 3_000, 1 << 20]))
    monkeypatch.setattr(drain_events, "ROWS", choose.choice([1, 10, 1_000]))
    monkeypatch.setattr(drain_events, "ROUND_S", choose.choice([0.01, 3.0]))
    sent: dict[str, list[str]] = {}
    for entry in range(25):
        requests = []
        for number in range(choose.randint(1, 4)):
            product = Product(f"p{choose.randrange(5)}", frozenset())
            count = choose.choice([1, 1, 2, 30])
            requests.append(request(product, count, f"{entry}.{number}"))
            users = [f"{entry}.{number}-{n}" for n in range(count)]
            sent.setdefault(product.name, []).extend(users)
        await bench.add(*requests)
    stored: dict[str, list[str]] = {}
    for product_name, user in await carry(bench):
        stored.setdefault(product_name, []).append(user)
    assert stored == sent
    assert not await bench.redis.xlen(ShardKeys(0).events)


async def test_entries_removed_by_another_drain(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HELD_BYTES", 0)
    stream = streams.EventStream(bench.redis, 0)
    for number in range(3):
        await bench.add(request(FLOOD, 1, f"f{number}"))
    await stream.look()
    ((first, _), *_) = await stream.read()
    await _remove(bench.redis, first)
    taken = await stream.take(10)
    assert [each.entry > first for each in taken] == [True, True]
    await stream.finish(taken, {})
    assert not await stream.take(10)
    assert not await bench.redis.xlen(ShardKeys(0).events)


async def _remove(redis: Redis, entry: bytes) -> None:
    await redis.xdel(ShardKeys(0).events, entry)
