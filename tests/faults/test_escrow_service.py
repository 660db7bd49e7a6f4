"""Exact budgets and caps on a cluster (contract 10).

Two machines, each with two workers and a thread that carries between shards what these need.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from support.buyers import Buyer, campaign, capped, overspent, sold_out
from support.campaigns import put
from support.cluster import Cluster, until
from support.machines import serving
from support.processes import workers_of
from support.remembered import until as awaited
from support.stack import Stack

from snapbid.base.redis_keys import ShardKeys

SEED = int(os.environ.get("BUDGET_SEED") or random.SystemRandom().randrange(10**9))
SHARDS, LANES, WIDTHS = 3, 48, range(1, 5)
BIDS, CPM = 1_000, 1_000_000  # of a campaign; micro-USD
CAP, CAPPED_WIDTH, VISITORS, AT_ONCE = 3, 99, 32, 8


@pytest.fixture(scope="module")
def machines(
    started_cluster: Cluster, module_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Stack]]:
    started_cluster.heal()
    started_cluster.flush()
    asyncio.run(put(module_database, ssp="acme"))
    own = {
        "SNAPBID_WORKERS": "2",
        "SNAPBID_BASE_URL": "http://127.0.0.1:8000",
        "SNAPBID_HOLD_S": "3600",  # so that no win comes after its hold
    }
    folder = tmp_path_factory.mktemp("machines")
    with serving(started_cluster, module_database, folder, **own) as served:
        yield served


def kill_a_worker_each(machines: list[Stack]) -> None:
    for each in machines:
        assert each.process
        os.kill(min(workers_of(each.process.pid)), signal.SIGKILL)


def lose_a_primary(cluster: Cluster) -> None:
    primary = cluster.primary_of(ShardKeys(1).epoch)
    primary.kill()
    until(lambda: cluster.primary_of(ShardKeys(1).epoch) is not primary, "another primary")
    primary.start()


def test_budgets_are_spent_and_never_exceeded(
    started_cluster: Cluster, machines: list[Stack], module_database: str
) -> None:
    """All of each budget is spent or held to the last bid, though a primary is lost on the way, and
    a worker of each machine. What is held then is of bids whose answer nobody got, which is up to
    what was under way.
    """
    print(f"BUDGET_SEED={SEED}")
    documents = [campaign(width, CPM, BIDS * CPM // 1000, width) for width in WIDTHS]
    asyncio.run(put(module_database, *documents))
    rng = random.Random(SEED)
    buyers = [Buyer([each.port], WIDTHS, rng, f"{SEED}-{n}") for n, each in enumerate(machines)]
    over = asyncio.Event()

    def wins() -> int:
        return sum(sum(buyer.wins.values()) for buyer in buyers)

    async def fail() -> None:
        try:
            await awaited(lambda: wins() > 200, "wins")
            kill_a_worker_each(machines)
            await asyncio.to_thread(lose_a_primary, started_cluster)
            await sold_out(started_cluster.url, module_database, SHARDS, buyers, documents)
        finally:
            over.set()

    async def run() -> None:
        await asyncio.gather(fail(), *(b.run(over.is_set, LANES // 2) for b in buyers))

    asyncio.run(run())
    for each in documents:
        for buyer in buyers[1:]:
            buyers[0].wins[each["id"]] += buyer.wins.pop(each["id"], 0)
    assert not overspent(buyers[0], documents)
    unanswered = sum((buyer.unanswered for buyer in buyers), Counter[int]())
    print(buyers[0].wins, unanswered)
    for width, each in zip(WIDTHS, documents, strict=True):
        assert buyers[0].wins[each["id"]] + unanswered[width] >= 0.99 * BIDS
    assert all("Traceback" not in each.output for each in machines)


def test_caps_are_reached_and_never_exceeded(
    started_cluster: Cluster, machines: list[Stack], module_database: str
) -> None:
    """Users come to both machines at once, whose workers are killed, and a primary is lost."""
    print(f"BUDGET_SEED={SEED}")
    started_cluster.heal()  # what was lost before may still be catching up
    asyncio.run(put(module_database, capped(9, CAP, CAPPED_WIDTH)))
    ports, rng = [each.port for each in machines], random.Random(SEED)
    visitors = Buyer(ports, [CAPPED_WIDTH], rng, "user", AT_ONCE)
    over = asyncio.Event()

    async def wins(more: int) -> None:
        enough = visitors.seen.total() + more
        await awaited(lambda: visitors.seen.total() >= enough, "wins")

    async def fail() -> None:
        try:
            await wins(100)
            kill_a_worker_each(machines)
            await asyncio.to_thread(lose_a_primary, started_cluster)
            await wins(200)
        finally:
            over.set()

    async def run() -> None:
        await asyncio.gather(fail(), visitors.run(over.is_set, VISITORS))
        await visitors.visit_again(list(visitors.seen)[-100:] * 4, VISITORS)

    asyncio.run(run())
    reached = Counter(visitors.seen.values())
    print(visitors.statuses, reached)
    assert max(reached) == CAP
    assert reached[CAP] >= 0.5 * reached.total()
    assert all("Traceback" not in each.output for each in machines)
