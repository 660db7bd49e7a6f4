"""A closed ledger is unavailable for bids and notices, and has lost nothing when it reopens."""

from pathlib import Path
from typing import Any

from support.remembered import Clock, counts, expected, opened, remember, until
from support.spending import limits, reserve, sent, state

from snapbid.base.redis_keys import ShardKeys, shard_of
from snapbid.ledger.admin import closing
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import BILLING, LOSS, WIN, moved_to
from snapbid.ledger.scripts import script
from snapbid.queues.queue import EventQueue
from snapbid.redisclient.connection import Connections, connect

DAY = "2030-06-15"
PRICE = 2_000_000
KEYS = ShardKeys(0)


async def test_a_closed_shard_takes_nothing_and_spools_notices(
    ledger: Ledger, fresh_redis: str, store: Any
) -> None:
    of = limits(total=10_000)
    assert await reserve(ledger, b"a", (b"1", PRICE, of)) == "k"
    assert await ledger.settle(BILLING, b"a", b"1") == "c"
    redis = connect(fresh_redis)
    await closing.close(redis, KEYS, "being moved")
    before = store.dump("{sb0}:m:1"), counts(store)
    assert await closing.closed(redis, KEYS) == "being moved"
    assert await reserve(ledger, b"b", (b"1", PRICE, of)) == ""
    assert [await ledger.settle(kind, b"a", b"1", 1) for kind in (WIN, LOSS)] == ["s", "s"]
    assert ledger.remember(b"c", 1, [(b"1", 1, PRICE, None)], None, 1.0) is None
    assert (store.dump("{sb0}:m:1"), counts(store)) == before
    await closing.reopen(redis, KEYS)
    await until(lambda: ledger.connected)
    await until(lambda: "W:1" in counts(store)[DAY])
    assert counts(store)[DAY] == expected(bids=1, wins=1, imps=1, price=PRICE, losses={1: 1})
    assert [await ledger.settle(kind, b"a", b"1") for kind in (WIN, BILLING)] == ["d", "d"]
    assert (await state(ledger)).used == PRICE
    assert await reserve(ledger, b"b", (b"1", PRICE, of)) == "k"
    await redis.aclose()


async def test_what_was_unconfirmed_is_rolled_back_once_the_ledger_opens(
    ledger: Ledger, fresh_redis: str, store: Any
) -> None:
    """Applied before it was closed, and not acknowledged to the request."""
    redis = connect(fresh_redis)
    given_up = ledger.remember(b"a", 1, [(b"1", 1, PRICE, limits(total=10_000))], None, 10.0)
    assert given_up is not None
    await sent(ledger)
    given_up.cancel()
    while not store.exists("{sb0}:w:" + ledger._cores[0]._writer):
        pass  # without a turn of the loop, in which it would be taken back
    store.eval(script("close"), 2, *KEYS.script_keys, "being moved")
    await until(lambda: not ledger.connected)
    await closing.reopen(redis, KEYS)
    await until(lambda: ledger.connected and not ledger._shards[0].unconfirmed)
    assert await remember(ledger, b"b", (b"1", 9, PRICE))
    assert counts(store)[DAY] == {"b:1": 1, "B:9": 1}
    assert (await state(ledger)).used == 0
    await redis.aclose()


async def test_events_are_refused_while_closed(fresh_redis: str, store: Any) -> None:
    redis, queue = connect(fresh_redis), EventQueue(Connections(fresh_redis))
    await queue.open()
    await until(lambda: queue.connected)
    assert await queue.put(1, "product", [("1", b"{}")])
    await closing.close(redis, KEYS, "being moved")
    assert not await queue.put(2, "product", [("2", b"{}")])
    await until(lambda: queue.connected)
    assert not await queue.put(2, "product", [("2", b"{}")])
    assert store.xlen(closing.events_key(KEYS)) == 1
    await closing.reopen(redis, KEYS)
    await until(lambda: queue.connected)
    assert await queue.put(3, "product", [("3", b"{}")])
    assert store.xlen(KEYS.events) == 2
    await queue.close()
    await redis.aclose()


async def test_notices_are_settled_in_the_shard_the_bids_moved_to(
    fresh_redis: str, tmp_path: Path, clock: Clock, store: Any
) -> None:
    """From one shard to 8, whose shard 0 has the bids; and a notice that was spooled since."""
    auctions = [b"auction-%d" % number for number in range(20)]
    async with opened(fresh_redis, tmp_path / "old", clock=clock) as ledger:
        for auction in auctions:
            assert await remember(ledger, auction, (b"1", 1, PRICE))
    moved = {"moved": f"1:{int(clock.now) + 100}", "shards": 8}
    for number in range(8):
        store.hset(ShardKeys(number).state, mapping=moved)
    async with opened(fresh_redis, tmp_path / "new", clock=clock, shards=8) as ledger:
        assert {ledger.shard_of(auction) for auction in auctions} > {0, 1}
        assert [await ledger.settle(WIN, auction, b"1") for auction in auctions] == ["c"] * 20
        assert await ledger.settle(WIN, auctions[3], b"1") == "d"
        assert await ledger.settle(WIN, b"other", b"1") == "u"
        other = next(auction for auction in auctions if ledger.shard_of(auction))
        trips = ledger._shards[ledger.shard_of(other)].trips
        trips.connected = False
        assert await ledger.settle(BILLING, other, b"1") == "s"
        trips.connected = True
        await until(lambda: counts(store)[DAY].get("i:1") == 1)
        clock.now += 101
        assert await ledger.settle(BILLING, auctions[5], b"1") == (
            "u" if ledger.shard_of(auctions[5]) else "c"
        )


def test_the_shard_of_a_bid_follows_the_moves() -> None:
    auction = b"auction"
    assert moved_to(auction, [], 8) == []
    assert moved_to(auction, [1], 8) == [0]
    assert moved_to(auction, [7], 5) == [shard_of(auction, 7) % 5]
    places = [shard_of(auction, 5) % 3, shard_of(auction, 11) % 5 % 3]
    assert moved_to(auction, [11, 5], 3) == list(dict.fromkeys(places))
