"""Bids and notices over HTTP while Redis is unavailable (contract 5).

Everything is counted to the unit afterwards; the soak kills what there is under load. BOOKS_SEED
repeats a run.
"""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
from support import books
from support.books import Books, agreed, set_up, trade
from support.lanes import Lane, Reply
from support.machine import Machine, temporary_home
from support.proxy import FaultProxy
from support.remembered import until

SEED = int(os.environ.get("BOOKS_SEED") or random.SystemRandom().randrange(10**9))
SLACK_S = 0.7  # for a busy machine, on top of tmax


@pytest.fixture
def machine(initialise: Callable[[Path], None]) -> Iterator[Machine]:
    environ = {"SNAPBID_BASE_URL": books.BASE_URL, "SNAPBID_TMAX_MS": "1000"}
    with temporary_home() as home:
        initialise(home.path)
        with contextlib.closing(Machine(home, **environ)) as machine:
            asyncio.run(set_up(machine.postgres.dsn))
            yield machine


TMAX_MS = 100
UNAVAILABLE_S = {"briefly": 0.6}  # a stalled connection is kept that long, but not
LONG_UNAVAILABLE_S = 1.6
STOCK = 150  # notices fired while Redis is unavailable


async def stock_up(own: Books, lane: Lane) -> None:
    """Bid until there are notices to fire."""
    while len(own.pending) < STOCK:
        await own.bid(lane)


async def trade_in_vain(own: Books, port: int, how: str) -> list[Reply]:
    """Bid and fire notices over several connections without Redis; returns the answers to bids."""
    until_s = time.monotonic() + UNAVAILABLE_S.get(how, LONG_UNAVAILABLE_S)
    replies = []

    async def work(lane: Lane) -> None:
        while time.monotonic() < until_s:
            reply = await own.bid(lane, TMAX_MS)
            assert reply
            replies.append(reply)
            if own.pending:
                reply = await own.fire(lane, own.draw())
                assert reply
                assert reply.status == 200
        lane.close()

    await asyncio.gather(*(work(Lane(port)) for _ in range(8)))
    return replies


async def fire_all(own: Books, port: int) -> None:
    """Fire all notices. No bids meanwhile: nobody could take back one that reaches Redis late."""

    async def work(lane: Lane) -> None:
        while own.pending:
            reply = await own.fire(lane, own.draw())
            assert reply
            assert reply.status == 200
        lane.close()

    await asyncio.gather(*(work(Lane(port)) for _ in range(8)))


async def flowing_again(own: Books, lane: Lane) -> None:
    """Wait until both workers bid again."""
    deadline, in_a_row = time.monotonic() + 60, 0
    while in_a_row < 30:
        assert time.monotonic() < deadline, "no bids flow"
        reply = await own.bid(lane, wanted=True)
        assert reply
        in_a_row = in_a_row + 1 if reply.status == 200 else 0
        lane.close()  # the next connection may reach the other worker


async def test_redis_unavailable_costs_bids_and_no_notice(machine: Machine) -> None:
    print(f"BOOKS_SEED={SEED}")

    async with FaultProxy(machine.redis.socket) as proxy:
        await asyncio.to_thread(machine.start, {"SNAPBID_REDIS_URL": proxy.redis_url})
        own, lane = Books(random.Random(SEED)), Lane(machine.served.port)
        for how in ("briefly", "stalled", "unreachable", "killed"):
            print(how)
            await stock_up(own, lane)
            bids = own.lower.copy()
            await machine.lose_redis(proxy, how)
            replies = await trade_in_vain(own, machine.served.port, how)
            assert {reply.status for reply in replies} == {204}
            assert median(reply.seconds for reply in replies) < TMAX_MS / 1000 + SLACK_S
            assert own.lower["bids", "acme"] == bids["bids", "acme"]
            await machine.regain_redis(proxy)
            await flowing_again(own, lane)
            await trade(own, machine.served.port, auctions=200)
            lane.close()
            await exactly(own, machine)


async def test_notices_survive_the_worker_that_took_them(machine: Machine) -> None:
    """Without Redis notices are acknowledged; then both workers are killed before a replay."""
    print(f"BOOKS_SEED={SEED}")

    async with FaultProxy(machine.redis.socket) as proxy:
        await asyncio.to_thread(machine.start, {"SNAPBID_REDIS_URL": proxy.redis_url})
        own, lane = Books(random.Random(SEED)), Lane(machine.served.port)
        for how in ("stalled", "unreachable"):
            await stock_up(own, lane)
            await machine.lose_redis(proxy, how)
            await fire_all(own, machine.served.port)
            lane.close()
            before = machine.workers
            assert len(before) == 2
            for worker in before:
                os.kill(worker, signal.SIGKILL)
            await until(lambda before=before: new_workers(machine, before))  # type: ignore[misc]
            await machine.regain_redis(proxy)
            await asyncio.to_thread(machine.served.await_ready)
            await flowing_again(own, lane)
        await trade(own, machine.served.port, auctions=100)
        lane.close()
        await exactly(own, machine)


def new_workers(machine: Machine, before: list[int]) -> bool:
    now = machine.workers
    return len(now) == 2 and not set(now) & set(before)


async def exactly(own: Books, machine: Machine) -> None:
    """Fail unless everything was answered, and counted to the unit."""
    assert not own.wrong, own.wrong[:5]
    assert own.statuses["bid", None] == own.statuses["notice", None] == 0
    assert own.lower == own.upper
    contradictions = await agreed(own, machine.postgres.dsn, is_quiet=machine.is_quiet)
    assert not contradictions, contradictions
