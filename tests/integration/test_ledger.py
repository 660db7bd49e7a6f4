"""The ledger over a real Redis: remembered, settled once, counted on the right day (contract 5)."""

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from support.remembered import (
    KINDS,
    NOON,
    TTL_S,
    Clock,
    anomalies,
    counts,
    expected,
    keys,
    looking,
    opened,
    remember,
    remembering,
    segment_of,
    settle_all,
    until,
)

from snapbid.base.redis_keys import ShardKeys, hash_tag
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import ALTERED, BILLING, LOSS, WIN
from snapbid.redisclient.trips import ENOUGH

DAY = "2030-06-15"
PRICE = 2_345_678


# -- once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(KINDS)), ids=str)
async def test_each_kind_counts_once_in_any_order(
    ledger: Ledger, store: Any, order: tuple[int, ...]
) -> None:
    assert await remember(ledger, b"a", (b"1", 1, PRICE))
    assert [await ledger.settle(kind, b"a", b"1", 102) for kind in order] == ["c"] * 3
    for kind in random.Random(1).sample(order * 5, 15):
        assert await ledger.settle(kind, b"a", b"1", 5) == "d"
    counted = expected(bids=1, wins=1, imps=1, price=PRICE, losses={102: 1})
    assert counts(store) == {DAY: counted}


async def test_counts_are_exact_per_field(ledger: Ledger, store: Any) -> None:
    """Answers by SSP, bids by campaign; an answer with several bids is one answer."""
    assert await remember(ledger, b"a", (b"1", 7, 100), (b"2", 8, 200), (b"3", 7, 300), ssp=3)
    assert await remember(ledger, b"b", (b"1", 7, 400), ssp=4)
    assert await ledger.settle(WIN, b"a", b"1") == "c"
    assert await ledger.settle(WIN, b"a", b"3") == "c"
    assert await ledger.settle(BILLING, b"a", b"3") == "c"
    assert await ledger.settle(WIN, b"b", b"1") == "c"
    assert await ledger.settle(LOSS, b"a", b"2", 102) == "c"
    assert await ledger.settle(LOSS, b"b", b"1", -1) == "c"
    assert counts(store) == {
        DAY: {
            **{"b:3": 1, "b:4": 1, "B:7": 3, "B:8": 1},
            **{"w:3": 2, "p:3": 400, "w:4": 1, "p:4": 400, "i:3": 1},
            **{"W:7": 3, "P:7": 800, "I:7": 1},
            **{"l:3:102": 1, "l:4:-1": 1},
        }
    }


@pytest.mark.parametrize("before", [10**15 - 2, 10**15 - 1, 2**53 - 1, 2**53 + 1, 2**62])
async def test_counts_are_exact_however_large(ledger: Ledger, store: Any, before: int) -> None:
    await remember(ledger, b"a", (b"1", 7, PRICE))
    store.hset(f"{{sb0}}:c:{segment_of(store)}:{DAY}", mapping={"b:1": before, "B:7": before})
    await remember(ledger, b"b", (b"1", 7, PRICE), (b"2", 7, PRICE))
    assert counts(store) == {DAY: {"b:1": before + 1, "B:7": before + 2}}


async def test_more_counters_than_a_command_takes(ledger: Ledger, store: Any) -> None:
    campaigns = range(1, 4_502)
    for auction in (b"a", b"b"):
        await remember(ledger, auction, *((b"%d" % number, number, 1) for number in campaigns))
    assert counts(store) == {DAY: {"b:1": 2, **{f"B:{number}": 2 for number in campaigns}}}
    assert store.scard("{sb0}:d") == 1 + len(campaigns)


async def test_changed_counters_are_marked_for_the_drain(ledger: Ledger, store: Any) -> None:
    await remember(ledger, b"a", (b"1", 1, PRICE))
    await settle_all(ledger, b"a", b"1", 3)
    prefix = f"{segment_of(store)} {DAY} "
    fields = [*counts(store)[DAY], "n:1:60"]  # a loss beside a win
    changed = {f"{prefix}{field}".encode() for field in fields}
    assert store.smembers("{sb0}:d") == changed
    store.delete("{sb0}:d")
    await settle_all(ledger, b"a", b"1", 3)
    repeated = {f"{prefix}n:1:{20 + kind}".encode() for kind in KINDS}
    assert store.smembers("{sb0}:d") == repeated, "repeats change nothing but how many there are"


async def test_unknown_notices_cost_no_memory(ledger: Ledger, store: Any) -> None:
    await remember(ledger, b"a", (b"1", 1, PRICE))
    before, used = keys(store), {key: store.memory_usage(key) for key in keys(store)}
    for number in range(200):
        assert await ledger.settle(KINDS[number % 3], b"unknown-%d" % number, b"1", 1) == "u"
        assert await ledger.settle(KINDS[number % 3], b"a", b"imp-%d" % number, 1) == "u"
    assert keys(store) == before
    assert {key: store.memory_usage(key) for key in keys(store)} == used
    assert counts(store) == {DAY: expected(bids=1)}


async def test_a_later_bid_replaces_the_record(ledger: Ledger, store: Any, clock: Clock) -> None:
    """In the same time bucket and in later ones; its notices count anew, at its price."""
    wins = money = 0
    for price, seconds in ((100, 0), (250, 1), (400, 1799), (550, 1800), (700, 3600)):
        clock.now += seconds
        assert await remember(ledger, b"a", (b"1", 1, price))
        assert await settle_all(ledger, b"a", b"1", 2) == "ccc"
        assert await settle_all(ledger, b"a", b"1", 2) == "ddd"
        wins, money = wins + 1, money + price
        day = counts(store)[DAY]
        assert (day["b:1"], day["w:1"], day["i:1"], day["l:1:2"]) == (wins,) * 4
        assert (day["p:1"], day["P:1"]) == (money, money)


async def test_the_last_of_equal_pairs_in_a_batch_wins(ledger: Ledger, store: Any) -> None:
    waiting = [
        remembering(ledger, b"a", (b"1", 1, price), within_s=10.0) for price in (100, 200, 300)
    ]
    assert await asyncio.gather(*(done for done in waiting if done is not None)) == ["k"] * 3
    assert await ledger.settle(WIN, b"a", b"1") == "c"
    assert await ledger.settle(WIN, b"a", b"1") == "d"
    assert counts(store)[DAY] == {"b:1": 3, "B:1": 3, "w:1": 1, "W:1": 1, "p:1": 300, "P:1": 300}


async def test_anomalies_are_counted_by_ssp(ledger: Ledger, store: Any, clock: Clock) -> None:
    """Repeats, reuse of an auction's id, a loss beside a win, altered notices, and those that come
    after the bid is forgotten.
    """
    ledger.use_families({4: 3})
    for ssp in (3, 3, 4, 4, 3):
        assert await remember(ledger, b"a", (b"1", 7, 100), ssp=ssp)
    assert anomalies(store) == {DAY: {"n:3:40": 1, "n:4:40": 1}}, "not where the SSP is another"
    assert await settle_all(ledger, b"a", b"1") == "ccc"
    assert await settle_all(ledger, b"a", b"1") == "ddd"
    assert await settle_all(ledger, b"nobody's", b"1") == "uuu"
    assert await remember(ledger, b"b", (b"1", 7, 100), ssp=3)
    assert await ledger.settle(LOSS, b"b", b"1", 1) == "c"
    assert await ledger.settle(BILLING | ALTERED, b"b", b"1") == "c"
    assert await ledger.settle(WIN, b"b", b"1") == "c"
    clock.now += TTL_S + 1
    assert await settle_all(ledger, b"a", b"1") == "uuu"
    repeats = {f"n:3:{20 + kind}": 1 for kind in KINDS}
    expired = {f"n:3:{30 + kind}": 1 for kind in KINDS}
    reused, strange = {"n:3:40": 1, "n:4:40": 1}, {"n:3:60": 2, "n:3:52": 1}
    assert anomalies(store) == {DAY: {**reused, **strange, **repeats, **expired}}


async def test_two_workers_settle_the_same_notice_once(fresh_redis: str, tmp_path: Path) -> None:
    auctions = [b"auction-%d" % number for number in range(200)]
    async with (
        opened(fresh_redis, tmp_path / "a") as first,
        opened(fresh_redis, tmp_path / "b") as second,
    ):
        assert all(await asyncio.gather(*(remember(first, a, (b"1", 1, 10)) for a in auctions)))
        calls = [
            ledger.settle(kind, auction, b"1", 1)
            for auction in auctions
            for kind in KINDS
            for ledger in (first, second)
            for _ in range(3)
        ]
        random.Random(2).shuffle(calls)
        letters = await asyncio.gather(*calls)
    assert letters.count("c") == 3 * len(auctions)
    assert letters.count("d") == 15 * len(auctions)
    with looking(fresh_redis) as client:
        days = counts(client)
    number = len(auctions)
    wanted = expected(bids=number, wins=number, imps=number, price=10, losses={1: number})
    assert list(days.values()) == [wanted]


# -- values ---------------------------------------------------------------------------------------


async def test_huge_prices_are_exact(ledger: Ledger, store: Any) -> None:
    prices = [10**15, 10**15 - 1, 10**15 + 1, 999_999_999_999_999, 1, 9_007_199_254_740_993]
    for number, price in enumerate(prices):
        await remember(ledger, b"%d" % number, (b"1", 1, price))
        assert await ledger.settle(WIN, b"%d" % number, b"1") == "c"
        assert counts(store)[DAY]["p:1"] == sum(prices[: number + 1])
    assert counts(store)[DAY]["P:1"] == sum(prices)


@pytest.mark.parametrize(
    "prices",
    [
        [2 * 10**14] * 30,
        [999_999_999_999_999] * 12,
        [999_999_999_999_999, 1, 1, 10**15, 10**17 + 1, 3, 9_007_199_254_740_993, 5] * 3,
    ],
)
@pytest.mark.parametrize("before", [0, 10**15 - 1, 2**53 + 1, 2**62])
async def test_wins_of_one_batch_add_up_exactly(
    ledger: Ledger, store: Any, prices: list[int], before: int
) -> None:
    for number, price in enumerate(prices):
        await remember(ledger, b"%d" % number, (b"1", number % 2, price))
    key = f"{{sb0}}:c:{segment_of(store)}:{DAY}"
    store.hset(key, mapping={"p:1": before, "P:1": before})
    batches = batches_of(ledger)
    settled = [ledger.settle(WIN, b"%d" % number, b"1") for number in range(len(prices))]
    assert set(await asyncio.gather(*settled)) == {"c"}
    assert len(batches) == 1
    of_one = sum(prices[1::2])
    assert counts(store)[DAY]["p:1"] == before + sum(prices)
    assert (counts(store)[DAY]["P:0"], counts(store)[DAY]["P:1"]) == (
        sum(prices) - of_one,
        before + of_one,
    )
    assert counts(store)[DAY]["w:1"] == len(prices)


async def test_notices_of_more_counters_than_a_command_takes(ledger: Ledger, store: Any) -> None:
    campaigns = range(1, 1_902)  # of which each win counts two counters, in one batch
    await remember(ledger, b"a", *((b"%d" % number, number, 3) for number in campaigns))
    settled = [ledger.settle(WIN, b"a", b"%d" % number) for number in campaigns]
    assert set(await asyncio.gather(*settled)) == {"c"}
    counted = counts(store)[DAY]
    assert {f: n for f, n in counted.items() if f[0] in "wpWP"} == {
        "w:1": len(campaigns),
        "p:1": 3 * len(campaigns),
        **{f"W:{number}": 1 for number in campaigns},
        **{f"P:{number}": 3 for number in campaigns},
    }


async def test_large_numbers_and_reasons(ledger: Ledger, store: Any) -> None:
    large = 2**31 - 1
    await remember(ledger, b"a", (b"1", large, 1), ssp=large)
    assert await ledger.settle(LOSS, b"a", b"1", 9999) == "c"
    wanted = {f"b:{large}": 1, f"B:{large}": 1, f"l:{large}:9999": 1}
    assert counts(store) == {DAY: wanted}


HOSTILE = [
    b"a", b"ab", b"abc", b"bc", b"c", b"\0", b"\0\0", b"a\0", b"\0a", b"\r\n", b"*3\r\n$3\r\nDEL",
    b"{sb0}:epoch", b"{sb1}", b"%00", b"\xff" * 512, b"\xff" * 511, b"a" * 512, bytes(range(256)),
    "é".encode(), b"${AUCTION_ID}", b" ", b"1", b"-1", b"' or 1=1", b"a:b", b":",
]  # fmt: skip


@pytest.mark.parametrize("shards", [1, 3])
async def test_hostile_ids_never_collide(
    fresh_redis: str, tmp_path: Path, store: Any, shards: int
) -> None:
    pairs = [(auction, imp) for auction in HOSTILE for imp in HOSTILE]
    clock = Clock(NOON)
    async with opened(fresh_redis, tmp_path, clock=clock, shards=shards) as ledger:
        odd, even = pairs[::2], pairs[1::2]
        assert all(await asyncio.gather(*(remember(ledger, a, (i, 1, 1)) for a, i in odd)))
        letters = await asyncio.gather(*(ledger.settle(WIN, *pair) for pair in even))
        assert set(letters) == {"u"}
        letters = await asyncio.gather(*(ledger.settle(WIN, *pair) for pair in odd))
        assert set(letters) == {"c"}
        assert all(await asyncio.gather(*(remember(ledger, a, (i, 2, 3)) for a, i in even)))
        letters = await asyncio.gather(*(ledger.settle(WIN, *pair) for pair in odd))
        assert set(letters) == {"d"}
        letters = await asyncio.gather(*(ledger.settle(WIN, *pair) for pair in even))
        assert set(letters) == {"c"}
    day = counts(store)[DAY]
    assert day == {
        **{"b:1": len(pairs), "w:1": len(pairs), "p:1": len(odd) + 3 * len(even)},
        **{"B:1": len(odd), "W:1": len(odd), "P:1": len(odd)},
        **{"B:2": len(even), "W:2": len(even), "P:2": 3 * len(even)},
    }
    tags = {key.partition(b"}")[0] for key in keys(store)}
    assert tags == {f"{{{hash_tag(number)}".encode() for number in range(shards)}


async def test_every_shard_has_its_own_counters(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    auctions = [b"auction-%d" % number for number in range(300)]
    async with opened(fresh_redis, tmp_path, clock=Clock(NOON), shards=4) as ledger:
        assert all(await asyncio.gather(*(remember(ledger, a, (b"1", 1, 2)) for a in auctions)))
        letters = await asyncio.gather(*(settle_all(ledger, a, b"1", 1) for a in auctions))
    assert set(letters) == {"ccc"}
    assert counts(store)[DAY] == expected(bids=300, wins=300, imps=300, price=2, losses={1: 300})
    for shard in range(4):
        key = ShardKeys(shard).counters(segment_of(store, shard), DAY)
        assert 30 < int(store.hget(key, "b:1")) < 120
    assert len({store.get(ShardKeys(shard).epoch) for shard in range(4)}) == 4


# -- batches --------------------------------------------------------------------------------------


def batches_of(ledger: Ledger) -> list[tuple[int, int, float]]:
    """The batches of bids and notices that are answered from now on."""
    batches: list[tuple[int, int, float]] = []
    (core,) = ledger._cores
    core._observe = lambda *batch: batches.append(batch)
    return batches


async def test_batches_form_under_load(ledger: Ledger) -> None:
    """Requests that arrive during a round trip share the next one."""
    assert await remember(ledger, b"first", (b"1", 1, 1))
    batches = batches_of(ledger)

    async def client(number: int) -> None:
        for step in range(20):
            assert await remember(ledger, b"%d-%d" % (number, step), (b"1", 1, 1))

    await asyncio.gather(*(client(number) for number in range(64)))
    assert len(batches) < 64 * 20 / 8


async def test_an_idle_ledger_sends_at_once(ledger: Ledger, store: Any) -> None:
    for number in range(10):
        batches = batches_of(ledger)
        assert await remember(ledger, b"%d" % number, (b"1", 1, 1))
        assert await ledger.settle(WIN, b"%d" % number, b"1") == "c"
        await asyncio.sleep(0)
        assert len(batches) == 2


async def test_the_first_of_many_requests_are_sent_early(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis works on them while the process works on the others, which share a batch."""
    (shard,) = ledger._shards
    monkeypatch.setattr("snapbid.ledger.bids.shard.HEARTBEAT_S", 3600.0)
    await until(lambda: not shard.trips.is_busy)  # with the last heartbeat
    batches, waiting = batches_of(ledger), []
    for number in range(80):
        assert shard.trips.is_busy == (number >= ENOUGH)
        waiting.append(remembering(ledger, b"%d" % number, (b"1", 1, 1)))
    assert await asyncio.gather(*(done for done in waiting if done is not None)) == ["k"] * 80
    assert len(batches) == 2
    settled = [ledger.settle(WIN, b"%d" % number, b"1") for number in range(80)]
    assert await asyncio.gather(*settled) == ["c"] * 80
    assert len(batches) == 4


async def test_batches_are_bounded(ledger: Ledger, store: Any) -> None:
    many = 6000
    waiting = [
        remembering(ledger, b"%d" % number, (b"1", 1, 1), within_s=20.0) for number in range(many)
    ]
    assert all(await asyncio.gather(*(done for done in waiting if done is not None)))
    letters = await asyncio.gather(*(ledger.settle(WIN, b"%d" % n, b"1") for n in range(many)))
    assert set(letters) == {"c"}
    assert counts(store)[DAY]["b:1"] == many


async def test_records_are_small_hashes(ledger: Ledger, store: Any) -> None:
    """Compact encodings, on which the bytes per remembered bid rest."""
    bids = [(b"%d" % imp, imp % 40, 10**9 - 1) for imp in range(50)]
    for first in range(0, 2000, 50):
        waiting = [
            remembering(ledger, b"%d" % n, *bids[:25], within_s=60.0)
            for n in range(first, first + 50)
        ]
        assert all(await asyncio.gather(*(done for done in waiting if done is not None)))
    records = keys(store, "{sb0}:r:*")
    assert sum(store.hlen(key) for key in records) == 2000 * 25
    encodings = {bytes(store.object("encoding", key)) for key in records}
    assert encodings <= {b"ziplist", b"listpack"}


async def test_the_epoch_is_created_once(fresh_redis: str, tmp_path: Path, store: Any) -> None:
    epochs = set()
    for number in range(3):
        async with opened(fresh_redis, tmp_path) as ledger:
            await remember(ledger, b"%d" % number, (b"1", 1, 1))
            epochs.add(store.get("{sb0}:epoch"))
    assert len(epochs) == 1
    store.flushall()
    async with opened(fresh_redis, tmp_path) as ledger:
        await remember(ledger, b"a", (b"1", 1, 1))
        assert store.get("{sb0}:epoch") not in epochs
