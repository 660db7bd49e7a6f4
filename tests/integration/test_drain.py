"""The drain on real stores: exactly once, whatever comes between."""

import datetime
import random
from collections.abc import AsyncIterator
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError
from support.counted import counted, some_counts
from support.draining import DAY, DAY_S, Bench, drain_of

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.counters import (
    START,
    Reading,
    ShardCounters,
    ShardsUnavailableError,
    SupersededError,
)
from snapbid.metrics import read
from snapbid.operations.dashboard.ledger import waiting
from snapbid.warehouse import absorb, comparison, fence
from snapbid.warehouse.absorb import SourceCounters
from snapbid.warehouse.fence import Batch, Step


@pytest.fixture
async def bench(database: str, fresh_redis: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(database, fresh_redis, tmp_path / "metrics") as bench:
        yield bench


async def test_every_counter_reaches_its_column(bench: Bench) -> None:
    await bench.ledger.count(
        DAY,
        {
            **{"b:1": 10, "w:1": 4, "p:1": 4_000_001, "i:1": 3, "l:1:102": 5, "l:1:-1": 1},
            **{"b:2": 7, "i:2": 2, "l:4:0": 9, "B:1": 12, "W:1": 4, "P:1": 4_000_001, "I:1": 3},
        },
    )
    await bench.ledger.count("2024-04-30", {"w:2": 1, "p:2": 5, "I:3": 1})
    assert await bench.drain() == 16
    assert await counted(bench.connection) == {
        "bid_daily": {
            (DAY, "acme"): (10, 4, 4_000_001),
            (DAY, "acme-eu"): (7, 0, 0),
            ("2024-04-30", "acme-eu"): (0, 1, 5),
        },
        "impression_daily": {(DAY, "acme"): (5,)},
        "loss_daily": {(DAY, "acme", 102): (5,), (DAY, "acme", -1): (1,), (DAY, "nova", 0): (9,)},
        "campaign_daily": {
            (DAY, "c-1"): (12, 4, 3, 4_000_001),
            ("2024-04-30", "c-3"): (0, 0, 1, 0),
        },
    }
    await bench.assert_equal()  # and so the ledger of these tests does its sums right
    assert not await bench.ledger.undrained()


async def test_a_backlog_has_its_age_by_the_clock_of_redis(bench: Bench) -> None:
    """The drain's own clock is years behind here."""
    await bench.ledger.count(DAY, {"b:1": 5})
    await bench.drain()
    await bench.ledger.count(DAY, {"b:1": 1})
    seconds, _ = await bench.redis.time()
    behind_s = (await waiting(bench.redis, 1, seconds)).behind_s
    assert behind_s is not None
    assert 0 <= behind_s < DAY_S


async def test_only_the_difference_is_added(bench: Bench) -> None:
    for _ in range(3):
        await bench.ledger.count(DAY, {"b:1": 5, "W:2": 1, "P:2": 700})
        await bench.drain()
        await bench.assert_equal()
    await bench.ledger.count(DAY, {"b:1": -2})  # bids that were taken back
    assert await bench.drain() == 1
    await bench.assert_equal()
    await bench.ledger.name(DAY, "b:1", "W:2")  # named, but not changed
    assert await bench.drain() == 0
    await bench.assert_equal()


async def test_batches(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapbid.drain.counters.BATCH", 3)
    choose = random.Random(1)
    for _ in range(60):
        await bench.ledger.count(DAY, some_counts(choose))
    await bench.drain()
    await bench.assert_equal()


async def test_shards_add_up(bench: Bench) -> None:
    for shard in (0, 1, 2):
        await bench.ledger.count(DAY, {"b:1": 1 + shard, "P:1": 300, "W:1": 1}, shard)
    await bench.drain(bench.shards(3))
    await bench.assert_equal()
    spend = "select spend_micros from campaign_daily"
    assert await bench.connection.fetchval(spend) == 1  # of 0.9, not of 0.3 three times


@pytest.mark.parametrize(
    "cpms", [[500], [1500], [2500], [1499, 2], [250] * 2, [333] * 7, [2501], [10**15 + 500, 1000]]
)
async def test_spend_is_rounded_half_even_from_the_exact_sum(bench: Bench, cpms: list[int]) -> None:
    for sent, cpm in enumerate(cpms, 1):
        await bench.ledger.count(DAY, {"W:1": 1, "P:1": cpm})
        await bench.drain()
        exact = Decimal(sum(cpms[:sent])) / 1000
        spend = await bench.connection.fetchval("select spend_micros from campaign_daily")
        assert spend == int(exact.quantize(Decimal(1), ROUND_HALF_EVEN))


@pytest.mark.parametrize("value", [-2500, -1501, -1500, -500, -499, 0, 499, 500, 501, 999, 3500])
async def test_rounded_thousandth(bench: Bench, value: int) -> None:
    rounded = await bench.connection.fetchval("select rounded_thousandth($1)", value)
    assert rounded == int((Decimal(value) / 1000).quantize(Decimal(1), ROUND_HALF_EVEN))


async def test_a_row_is_written_once_for_all_shards(bench: Bench) -> None:
    await bench.connection.execute(
        "create table written (campaign text);"
        "create function note() returns trigger language plpgsql as $$"
        " begin insert into written values (new.campaign); return null; end $$;"
        "create trigger noted after insert or update on campaign_daily"
        " for each row execute function note()"
    )
    for times in (1, 2):
        for shard in range(3):
            await bench.ledger.count(DAY, {"B:1": times, "W:1": 1}, shard)
        await bench.drain(bench.shards(3))
        assert await bench.connection.fetchval("select count(*) from written") == times
    await bench.assert_equal()


async def test_rows_of_the_operator_stay_beside(bench: Bench) -> None:
    await bench.ledger.count(DAY, {"b:1": 5, "i:2": 2})
    await bench.drain()
    await bench.connection.execute(
        f"insert into bid_daily (day, descriptor, bids) values ('{DAY}', 'acme', -1);"
        f"insert into impression_daily (day, ssp, imps) values ('{DAY}', 'acme', 40)"
    )
    await bench.ledger.count(DAY, {"b:1": 5, "i:1": 2})
    await bench.drain()
    await bench.assert_equal()
    assert await bench.connection.fetchval("select sum(bids) from bid_daily") == 9
    assert await bench.connection.fetchval("select sum(imps) from impression_daily") == 44


async def test_impressions_go_to_the_family_of_their_day(bench: Bench) -> None:
    """Whatever the registry says by the time at which they are carried."""
    await bench.ledger.count(DAY, {"i:2": 1})
    await bench.drain()
    await bench.connection.execute("update ssp set canonical = 'nova' where descriptor = 'acme-eu'")
    await bench.ledger.change(DAY, {"i:2": 4})
    await bench.ledger.change("2199-12-31", {"i:2": 8})
    await bench.drain()
    await bench.connection.execute("delete from ssp where descriptor = 'acme-eu'")
    await bench.ledger.change(DAY, {"i:2": 2})
    await bench.drain()
    imps = (await counted(bench.connection))["impression_daily"]
    assert imps == {(DAY, "acme"): (7,), ("2199-12-31", "nova"): (8,)}


async def test_unknown_numbers_wait_without_blocking(bench: Bench) -> None:
    await bench.ledger.change(DAY, {"b:5": 3, "B:4": 8})
    await bench.ledger.count(DAY, {"b:1": 5})
    for _ in range(2):
        await bench.drain()
        await bench.assert_equal()
    await bench.connection.execute("insert into ssp_number values (5, 'late', 'late')")
    await bench.drain()
    await bench.connection.execute("insert into campaign_number values (4, 'c-4')")
    await bench.drain()
    tables = await counted(bench.connection)
    assert tables["bid_daily"][DAY, "late"] == (3, 0, 0)
    assert tables["campaign_daily"][DAY, "c-4"] == (8, 0, 0, 0)
    assert not await bench.ledger.undrained()


async def test_malformed_counters_block_nothing(bench: Bench) -> None:
    segment = await bench.ledger.segment()
    named = (f"{segment} {rest}" for rest in ("2024-02-30 b:1", f"{DAY} q:1", f"{DAY} b:01"))
    await bench.redis.sadd("{sb0}:d", "", "x", f"{DAY} b:1", b"\xff", *named)
    await bench.ledger.count(DAY, {"b:1": 5})
    await bench.drain()
    await bench.assert_equal()
    assert not await bench.ledger.undrained()


async def test_overflowing_sums_wait_alone(bench: Bench) -> None:
    most = 2**63 - 1
    await bench.ledger.change(DAY, {"p:1": most}, shard=1)
    await bench.ledger.count(DAY, {"p:1": 1, "b:1": 5, "b:2": 6, "i:4": 1})
    await bench.drain(bench.shards(2))
    await bench.assert_equal()
    name = f"{await bench.ledger.segment(1)} {DAY} p:1"
    assert await bench.redis.smembers(ShardKeys(1).changed) == {name.encode()}


async def test_lost_redis_data_begins_anew_beside_the_old(bench: Bench) -> None:
    for count in (5, 3, 9):
        await bench.ledger.count(DAY, {"b:1": count, "P:1": 1500, "W:1": 1})
        await bench.drain()
        await bench.ledger.lose()
        await bench.drain()
        await bench.assert_equal()
    assert await bench.connection.fetchval("select count(*) from drain_source") == 4


class Dying(ShardCounters):
    """Dies before or after a step; its reads and writes are real."""

    at = ""

    async def _step(self, name: str) -> None:
        if self.at == name:
            raise ConnectionAbortedError

    async def read(self, *args: Any) -> Reading:
        await self._step("before read")
        reading = await super().read(*args)
        await self._step("after read")
        return reading

    async def release(self, *args: Any) -> None:
        await self._step("before release")
        await super().release(*args)
        await self._step("after release")


STEPS = ("before read", "after read", "before release", "after release")


@pytest.mark.parametrize("step", STEPS)
async def test_a_death_at_any_step_neither_loses_nor_doubles(bench: Bench, step: str) -> None:
    await bench.ledger.count(DAY, {"b:1": 5, "i:1": 1})
    shard = Dying(bench.redis, 0)
    shard.at = step
    with pytest.raises(ConnectionAbortedError):
        await bench.drain([shard])
    await bench.ledger.count(DAY, {"b:1": 2, "w:1": 1})
    await bench.drain()
    await bench.assert_equal()
    assert not await bench.ledger.undrained()


class TestTwoDrains:
    async def test_one_that_lost_its_place_removes_no_names(self, bench: Bench) -> None:
        """It stalled after its commit; its successor has moved the same name aside again."""
        (old,), (new,) = bench.shards(), bench.shards()
        await bench.ledger.count(DAY, {"b:1": 5})
        await old.claim()
        state = await old.fetch_state()
        key = (state.epoch, state.segment, 0, datetime.date.max)
        source = await absorb.source_of(bench.connection, *key)
        reading = await old.read(1)
        (segment,) = reading.segments
        step = Step(state.epoch, 0, Batch(0, ""), Batch(1, state.segment))
        await fence.absorbed_batch(bench.connection, state.epoch, 0)
        assert await fence.step(bench.connection, [step])
        await absorb.absorb(bench.connection, [SourceCounters(source, segment.counters)])
        await bench.drain([new])
        await bench.ledger.count(DAY, {"b:1": 2})
        assert (await new.read(3)).size == 1
        with pytest.raises(SupersededError):
            await old.release(reading, reading.size, 1)
        await bench.drain([new])
        await bench.assert_equal()


async def test_an_empty_last_batch_has_a_number(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan may end behind the last name."""
    monkeypatch.setattr("snapbid.drain.counters.BATCH", 1)
    (shard,) = bench.shards()
    batch, empty = 0, 0
    for size in range(1, 40):
        day = f"2026-0{size % 9 + 1}-{size % 28 + 1:02}"  # other names: about every other ends so
        await bench.ledger.count(day, {f"l:1:{reason}": 1 for reason in range(size)})
        await bench.drain([shard])
        batch = (await shard.fetch_state()).read + 1
        reading = await shard.read(batch)
        assert (await shard.fetch_state()).read == batch - 1
        await bench.ledger.count(day, {f"l:1:{reason}": 1 for reason in range(size)})
        reading = await shard.read(batch)
        while reading.cursor != START:
            batch += 1
            reading = await shard.read(batch, reading)
            empty += not reading.size
            assert (await shard.fetch_state()).read == batch
        await bench.connection.execute("update drain_fence set batch = $1", batch)
        await bench.drain([shard])
        await bench.assert_equal()
    assert empty


async def test_unread_counters_are_not_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run of Redis has its names in other places: what was read before tells nothing."""
    monkeypatch.setattr("snapbid.drain.counters.BATCH", 3)
    (shard,) = bench.shards()
    await shard.claim()
    await bench.ledger.count(DAY, {f"l:1:{reason}": 1 for reason in range(300)})
    first = await shard.read(1)
    assert first.cursor != START
    restarted = first._replace(run=b"f" * 40)
    with pytest.raises(SupersededError):
        await shard.read(2, restarted)
    for reading, size in ((first, first.size), (restarted, 300)):
        with pytest.raises(SupersededError):
            await shard.release(reading, size, 1)
    await bench.drain()
    await bench.assert_equal()


async def test_metrics_of_the_drain(bench: Bench, tmp_path: Path) -> None:
    await bench.ledger.count(DAY, {"b:1": 5, "i:1": 1})
    await bench.drain()
    await bench.drain()
    values = read(tmp_path / "metrics")
    assert values["snapbid_drain_rounds_total"] == 1
    assert values["snapbid_drain_counters_total"] == 2
    assert sum(n for key, n in values.items() if "lag_seconds_bucket" in key) == 1


async def test_an_unavailable_shard_blocks_no_other(bench: Bench) -> None:
    nowhere = Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0))
    unavailable = ShardCounters(nowhere, 1)
    shards = [*bench.shards(), unavailable]
    drain = drain_of(bench.redis, shards, bench.metrics, bench.clock)
    await bench.ledger.count(DAY, {"b:1": 5})
    await drain.begin()
    for _ in range(2):
        with pytest.raises(ShardsUnavailableError, match="shard 1: "):
            await drain.round(bench.connection)
        await bench.assert_equal()
        await bench.ledger.count(DAY, {"b:1": 2})
    shards[1] = ShardCounters(bench.redis, 1)  # it is back
    assert await drain.round(bench.connection) == 1
    await bench.assert_equal()
    with pytest.raises(ConnectionError):
        await drain_of(nowhere, [unavailable], bench.metrics, bench.clock).round(bench.connection)


async def test_overflow_is_logged_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Not with each round, four times a second for ever; the others are carried."""
    await bench.connection.execute(
        "insert into bid_daily (day, descriptor, win_cpm_micros, counted)"
        f" values ('{DAY}', 'acme', 9223372036854775807, true)"
    )
    await bench.ledger.change(DAY, {"p:1": 1, "w:1": 1})
    await bench.ledger.count(DAY, {"w:2": 1, "p:2": 7})
    for _ in range(5):
        await bench.drain()
    said = [record for record in caplog.records if "cannot store" in record.message]
    assert len(said) <= 1
    rows = (await counted(bench.connection))["bid_daily"]
    assert rows[DAY, "acme-eu"] == (0, 1, 7)


async def test_a_spend_beyond_64_bits_is_known(bench: Bench) -> None:
    """Over the days of a campaign: as large as it is, so that no drain ends at its start."""
    for day in (DAY, "2024-05-02"):
        await bench.connection.execute(
            "insert into campaign_daily (day, campaign, win_cpm_micros, counted)"
            f" values ('{day}', 'c-1', 9223372036854775807, true)"
        )
    days = (datetime.date.fromisoformat(DAY) - datetime.date(1970, 1, 1)).days
    total, of_day = 2 * (2**63 - 1), 2**63 - 1
    assert await fence.spend_of_day(bench.connection, days) == {1: (total, of_day)}
    audited = await comparison.fetch_spend(bench.connection, datetime.date.fromisoformat(DAY))
    assert audited[1] == ("c-1", total, of_day, False)
