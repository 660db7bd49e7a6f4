"""Requests per second over all workers: never more than the limit, in no second (contract 4)."""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Iterator
from time import perf_counter

import pytest
import redis as sync_redis
from hypothesis import example, given
from hypothesis import strategies as st
from redis.asyncio import Redis

from snapbid.queues.permits import SLICE_S, SPAN, Permits, PermitsUnavailable
from snapbid.redisclient.scripts import load

LIMIT = 40
SLICE_US = round(SLICE_S * 1_000_000)
SCRIPT = load("snapbid.queues", "permits").replace("redis.call('TIME')", "{0, ARGV[7]}")


@pytest.fixture(scope="module")
def client(redis_url: str) -> Iterator[sync_redis.Redis]:
    with sync_redis.Redis.from_url(redis_url) as client:
        yield client


leases = st.tuples(
    st.integers(0, 3 * SLICE_US) | st.integers(0, 60 * SLICE_US),  # µs until it is asked for
    st.integers(1, 15),  # wanted
    st.integers(0, 20),  # of the lease before, given back where it has as many
)


@given(st.lists(leases, max_size=80))
@example([(0, 20, 0), ((SPAN - 1) * SLICE_US, 5, 0), (SLICE_US, 5, 0)])
def test_leases_against_a_plain_count(
    client: sync_redis.Redis, asked: list[tuple[int, int, int]]
) -> None:
    lease = client.register_script(SCRIPT)
    key, now, limit = f"permits:{secrets.token_hex(8)}", 1_700_000_000_000_000, 20
    counted: dict[int, int] = {}
    before: tuple[int, int] | None = None
    for pause, wanted, unused in asked:
        now += pause
        back: tuple[int | str, int | str] = ("", "")
        if before is not None and 0 < unused <= before[1]:
            back = (before[0], unused)
            counted[before[0]] -= unused
        granted, wait, at = lease([key], [limit, wanted, SLICE_US, SPAN, *back, now])
        assert at == now // SLICE_US
        recent = [n for n in counted if n > at - SPAN]
        free = limit - sum(counted[n] for n in recent)
        assert granted == min(free, wanted)
        if granted:
            before = (at, granted)
            counted[at] = counted.get(at, 0) + granted
        else:
            oldest = min(n for n in recent if counted[n])
            assert wait == (oldest + SPAN) * SLICE_US - now
            before = None


def busiest_second(times: list[float]) -> int:
    """The most of these times in any second, wherever it begins."""
    times = sorted(times)
    most = first = 0
    for last, time in enumerate(times):
        while time - times[first] >= 1:
            first += 1
        most = max(most, last - first + 1)
    return most


async def ask(permits: Permits, until: float, pause_s: float, taken: list[float]) -> int:
    """Ask for permits like a worker's requests; returns how many were refused."""
    refused = 0
    while perf_counter() < until:
        is_taken = permits.take()
        if is_taken is None:
            with contextlib.suppress(PermitsUnavailable):  # a busy machine
                is_taken = await permits.fetch()
        if is_taken:
            taken.append(perf_counter())
        else:
            refused += 1
        await asyncio.sleep(pause_s)
    return refused


@pytest.mark.parametrize(("workers", "pause_s"), [(1, 0), (4, 0), (4, 0.003), (16, 0.02)])
async def test_workers_together_never_exceed_the_limit(
    redis_url: str, workers: int, pause_s: float
) -> None:
    async with Redis.from_url(redis_url) as redis:
        key = f"permits:{secrets.token_hex(8)}"
        limits = [Permits(redis, key, LIMIT) for _ in range(workers)]
        taken: list[float] = []
        until = perf_counter() + 3
        refused = await asyncio.gather(*(ask(each, until, pause_s, taken) for each in limits))
        assert busiest_second(taken) <= LIMIT
        assert len(taken) >= LIMIT, "what is free is given"
        if pause_s == 0:
            assert sum(refused)


async def test_below_the_limit_nobody_is_refused(redis_url: str) -> None:
    """Few requests, each at another worker: none keeps permits from the others."""
    async with Redis.from_url(redis_url) as redis:
        key = f"permits:{secrets.token_hex(8)}"
        limits = itertools.cycle([Permits(redis, key, 100) for _ in range(4)])
        for permits in itertools.islice(limits, 60):
            taken = permits.take()
            assert taken or await permits.fetch()
            await asyncio.sleep(0.002)


async def test_requests_that_wait_share_one_lease(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as redis:

        async def calls() -> int:
            made = (await redis.info("commandstats")).get("cmdstat_evalsha", {"calls": 0})
            return int(made["calls"])

        permits = Permits(redis, f"permits:{secrets.token_hex(8)}", 50)
        before = await calls()
        waiting = [permits.fetch() for _ in range(50) if permits.take() is None]
        assert len(waiting) == 50
        assert all(await asyncio.gather(*waiting))
        assert await calls() - before <= 2
        assert permits.take() is not True, "there were 50"
        assert not await permits.fetch()
        asked = await calls()
        assert [permits.take() for _ in range(10)] == [False] * 10
        assert await calls() == asked


async def test_without_redis(tmp_path: object) -> None:
    async with Redis.from_url(f"unix://{tmp_path}/nobody") as redis:
        permits = Permits(redis, "permits:x", 5)
        assert permits.take() is None
        with pytest.raises(PermitsUnavailable):
            await permits.fetch()
