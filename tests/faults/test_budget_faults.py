"""Budgets at full speed, while workers and Redis are killed (contract 3).

Every acknowledged win is spend. A budget must never be exceeded; if demand suffices and nothing is
killed, at least 99% of a budget of 1,000 bids or more is spent.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.buyers import BASE_URL, Buyer, campaign, overspent, sold_out
from support.campaigns import put
from support.machine import Machine, temporary_home
from support.remembered import until

SEED = int(os.environ.get("BUDGET_SEED") or random.SystemRandom().randrange(10**9))
WORKERS = 4
CENT = 10_000  # micro-USD


Prepare = Callable[[int, list[dict[str, Any]]], Machine]


@pytest.fixture
def prepare(initialise: Callable[[Path], None]) -> Iterator[Prepare]:
    """Starts a machine with a SNAPBID_HOLD_S and campaigns."""
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(temporary_home())
        initialise(home.path)

        def start(hold_s: int, documents: list[dict[str, Any]]) -> Machine:
            environ = {
                "SNAPBID_BASE_URL": BASE_URL,
                "SNAPBID_WORKERS": str(WORKERS),
                "SNAPBID_HOLD_S": str(hold_s),
            }
            machine = stack.enter_context(contextlib.closing(Machine(home, **environ)))
            asyncio.run(put(machine.postgres.dsn, *documents, ssp="acme"))
            machine.start()  # with a drain, without which no budget outlasts Redis
            return machine

        yield start


def test_budgets_are_spent_and_never_exceeded(prepare: Prepare) -> None:
    """Hundreds of campaigns; budgets of 1,000 bids or more are spent to at least 99%."""
    rng = random.Random(SEED)
    print(f"BUDGET_SEED={SEED}")
    documents = [
        campaign(number, rng.choice((2_000_000, 3_333_333, 7_000_001)), CENT, 1 + number % 4)
        for number in range(150)
    ]
    documents += [campaign(150 + n, 1_000_000, 1000 * 1_000 + n, 1 + n) for n in range(4)]
    machine = prepare(60, documents)
    buyer = Buyer([machine.served.port], range(1, 5), rng, SEED)
    over = asyncio.Event()

    async def stop() -> None:
        try:
            await sold_out(machine.redis.url, machine.postgres.dsn, 1, [buyer], documents)
        finally:
            over.set()

    async def run() -> None:
        await asyncio.gather(stop(), buyer.run(over.is_set))

    asyncio.run(run())
    assert not overspent(buyer, documents)
    for each in documents[150:]:
        assert buyer.wins[each["id"]] >= 990
    small = documents[:150]
    spent = sum(buyer.wins[each["id"]] * each["cpm"] / 1000 for each in small)
    assert spent > 0.8 * len(small) * 0.01  # a cent is 1 to 5 bids: a remainder may stay


def test_no_kill_makes_a_budget_overspend(prepare: Prepare) -> None:
    rng = random.Random(SEED + 1)
    print(f"BUDGET_SEED={SEED}")
    documents = [
        campaign(number, 1_000_000 + number, 200 * 1_000, 1 + number % 4) for number in range(12)
    ]
    # No win is notified after its hold, whatever was unavailable.
    machine = prepare(3600, documents)
    buyer = Buyer([machine.served.port], range(1, 5), rng, SEED)
    over = asyncio.Event()

    async def kill() -> None:
        try:
            for victim in ("worker", "redis", "worker", "worker", "redis", "redis"):
                before = sum(buyer.wins.values())
                with contextlib.suppress(AssertionError):
                    await until(lambda before=before: sum(buyer.wins.values()) > before + 100)  # type: ignore[misc]
                machine.kill(victim, rng)
                if victim == "redis":
                    await asyncio.sleep(rng.uniform(0, 0.3))
                    await asyncio.to_thread(machine.redis.start)
            await sold_out(machine.redis.url, machine.postgres.dsn, 1, [buyer], documents)
        finally:
            over.set()

    async def run() -> None:
        await asyncio.gather(kill(), buyer.run(over.is_set, lanes=32))

    asyncio.run(run())
    assert not overspent(buyer, documents)
    assert sum(buyer.wins.values()) > 0.5 * 12 * 200
