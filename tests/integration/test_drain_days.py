"""Days that are over: their counters leave Redis, and nothing is lost or doubled by it."""

import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.draining import DAY, DAY_S, NOON, Bench, drain_of

from snapbid.drain.counters import Check, ShardCounters
from snapbid.drain.drain import TIDY_EVERY_S
from snapbid.drain.fence import UnrelatedStoresError
from snapbid.drain.tidy import KEPT_DAYS, RETIRED_DAYS
from snapbid.warehouse import fence


@pytest.fixture
async def bench(database: str, fresh_redis: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(database, fresh_redis, tmp_path / "metrics") as bench:
        yield bench


async def count_and_tidy(bench: Bench) -> None:
    await bench.ledger.count(DAY, {"b:1": 5, "P:1": 1499, "l:1:2": 1})
    await bench.drain()
    bench.clock.now += KEPT_DAYS * DAY_S
    await bench.drain()


async def remove_day(shard: ShardCounters, check: Check) -> int | None:
    state, day = await shard.fetch_state(), datetime.date.fromisoformat(DAY)
    return await shard.remove_day(state.segment, day, state.epoch, check)


async def test_they_are_kept_for_a_while_and_then_removed(bench: Bench) -> None:
    await bench.ledger.count(DAY, {"b:1": 5})
    await bench.ledger.count("2024-05-02", {"b:1": 5})
    await bench.drain()
    bench.clock.now = NOON - DAY_S / 2 + KEPT_DAYS * DAY_S - 1
    await bench.drain()
    assert await bench.redis.exists(await bench.ledger.key(DAY))
    assert await bench.absorbed_rows() == 2
    bench.clock.now += 1
    await bench.drain()
    assert not await bench.redis.exists(await bench.ledger.key(DAY))
    assert await bench.redis.exists(await bench.ledger.key("2024-05-02"))
    assert await bench.absorbed_rows() == 1
    await bench.assert_equal()


async def test_a_running_drain_removes_them_too(bench: Bench) -> None:
    await bench.ledger.count(DAY, {"b:1": 5})
    drain = drain_of(bench.redis, bench.shards(), bench.metrics, bench.clock)
    await drain.begin()
    await drain.round(bench.connection)
    bench.clock.now += KEPT_DAYS * DAY_S
    bench.clock.now += TIDY_EVERY_S
    await drain.round(bench.connection)
    assert await bench.absorbed_rows() == 0


async def test_late_counts_are_added(bench: Bench) -> None:
    await count_and_tidy(bench)
    for _ in range(3):
        await bench.ledger.count(DAY, {"b:1": 1, "P:1": 2})
        await bench.drain()
        await bench.assert_equal()
        assert await bench.absorbed_rows() == 0  # removed again at once
    assert await bench.connection.fetchval("select spend_micros from campaign_daily") == 2


async def test_late_corrections_are_subtracted(bench: Bench) -> None:
    await count_and_tidy(bench)
    await bench.ledger.count(DAY, {"b:1": -2})
    await bench.drain()
    await bench.assert_equal()


async def test_a_death_between_the_two_steps(bench: Bench) -> None:
    await bench.ledger.count(DAY, {"b:1": 5})
    await bench.drain()
    (shard,) = bench.shards()

    async def nothing_left(counters: object) -> list[int]:
        return []

    assert await remove_day(shard, nothing_left) == 0
    await bench.ledger.count(DAY, {"b:1": 2})
    await bench.drain()
    await bench.assert_equal()
    bench.clock.now += KEPT_DAYS * DAY_S
    await bench.drain()
    assert await bench.absorbed_rows() == 0
    await bench.assert_equal()


async def test_unnamed_counters_are_absorbed_first(bench: Bench) -> None:
    await bench.ledger.count(DAY, {"b:1": 5})
    await bench.drain()
    await bench.ledger.count(DAY, {"b:1": 2, "b:2": 3})
    await bench.redis.delete("{sb0}:d")
    bench.clock.now += KEPT_DAYS * DAY_S
    await bench.drain()
    assert await bench.redis.exists(await bench.ledger.key(DAY))
    await bench.drain()
    assert not await bench.redis.exists(await bench.ledger.key(DAY))
    await bench.assert_equal()


async def test_a_change_meanwhile_keeps_them(bench: Bench) -> None:
    await bench.ledger.count(DAY, {"b:1": 5})
    await bench.drain()
    (shard,) = bench.shards()

    async def check(counters: object) -> list[int]:
        await bench.ledger.count(DAY, {"b:1": 1})
        return []

    assert await remove_day(shard, check) is None
    await bench.drain()
    await bench.assert_equal()


async def test_reappearing_old_data_adds_nothing(bench: Bench) -> None:
    await bench.ledger.count(DAY, {"b:1": 5})
    await bench.drain()
    epoch, segment = await bench.redis.get("{sb0}:epoch"), await bench.ledger.segment()
    assert isinstance(epoch, bytes)
    await bench.ledger.lose()
    bench.clock.now += RETIRED_DAYS * DAY_S
    await bench.drain()
    assert await bench.absorbed_rows() == 1
    bench.clock.now += DAY_S
    await bench.drain()
    assert await bench.absorbed_rows() == 0
    await bench.redis.set("{sb0}:epoch", epoch)
    await bench.redis.hset(f"{{sb0}}:c:{segment}:{DAY}", "b:1", 5)
    await bench.redis.sadd("{sb0}:d", f"{segment} {DAY} b:1")
    later = (datetime.date.fromisoformat(DAY) + datetime.timedelta(RETIRED_DAYS + 2)).isoformat()
    await bench.ledger.count(later, {"b:1": 7})
    with pytest.raises(UnrelatedStoresError, match="snapbid ledger adopt"):
        await bench.drain()
    await fence.set_ledger(bench.connection, [epoch.decode()])  # as that does
    await bench.drain()
    await bench.assert_equal()
