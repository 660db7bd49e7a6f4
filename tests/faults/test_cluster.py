"""The ledger in a Redis Cluster: nodes fail, come back, slots move (contract 10).

BOOKS_SEED repeats a run of the client that trades over HTTP.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from redis.crc import key_slot
from support import books
from support.books import Books, agreed, set_up
from support.cluster import Cluster, Server, until
from support.remembered import opened, remember, settle_all
from support.remembered import until as awaited
from support.stack import Stack
from support.trading import Trading

from snapbid.ledger.keys import ShardKeys
from snapbid.ledger.ledger import Ledger
from snapbid.ledger.records import shard_of

SEED = int(os.environ.get("BOOKS_SEED") or random.SystemRandom().randrange(10**9))
SHARDS = 3


def key_of(shard: int) -> str:
    return ShardKeys(shard).epoch


def auctions_of(shard: int, name: str, count: int = 20) -> list[bytes]:
    """Auctions that the shard remembers."""
    ids = (b"%s-%d" % (name.encode(), number) for number in range(10_000))
    return [id for id in ids if shard_of(id, SHARDS) == shard][:count]


@pytest.fixture
async def ledger(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Ledger]:
    async with opened(cluster.url, tmp_path / "spool", shards=SHARDS, confirmed=False) as ledger:
        yield ledger


async def accepted(ledger: Ledger, auctions: list[bytes]) -> list[bool]:
    """Whether each bid was acknowledged."""
    return [await remember(ledger, auction, (b"1", 1, 1000)) is True for auction in auctions]


async def settled(ledger: Ledger, auctions: list[bytes]) -> set[str]:
    return {await settle_all(ledger, auction, b"1") for auction in auctions}


async def in_thread(call: Callable[..., object], *arguments: object) -> None:
    await asyncio.to_thread(call, *arguments)


async def test_a_failed_primary_costs_its_own_auctions_alone_and_only_for_a_while(
    cluster: Cluster, ledger: Ledger
) -> None:
    before = [auctions_of(shard, "before") for shard in range(SHARDS)]
    for auctions in before:
        assert all(await accepted(ledger, auctions))
    primary = cluster.primary_of(key_of(1))
    others = [shard for shard in range(SHARDS) if cluster.primary_of(key_of(shard)) != primary]
    primary.kill()
    await awaited(lambda: ledger.away == [s for s in range(SHARDS) if s not in others])
    assert not any(await accepted(ledger, auctions_of(1, "away")))
    for shard in others:
        assert all(await accepted(ledger, auctions_of(shard, "meanwhile")))
    spooled = before[1][:3]
    assert await settled(ledger, spooled) == {"sss"}
    # The replica takes over, but counts for nothing before it has a replica itself.
    await in_thread(until, lambda: cluster.primary_of(key_of(1)) != primary, "a new primary")
    assert not any(await accepted(ledger, auctions_of(1, "alone", 3)))
    await in_thread(primary.start)
    await awaited(lambda: ledger.connected)
    assert all(await accepted(ledger, auctions_of(1, "after")))
    assert await settled(ledger, before[1][3:]) == {"ccc"}
    await awaited(lambda: ledger._spool.is_empty)
    assert await settled(ledger, spooled) == {"ddd"}


async def test_a_slot_that_moves_is_away_until_it_has_moved(
    cluster: Cluster, ledger: Ledger
) -> None:
    """Half of its keys being elsewhere, no script may decide by what it finds."""
    slot = key_slot(key_of(0).encode())
    auctions = auctions_of(0, "before")
    assert all(await accepted(ledger, auctions))
    source = cluster.owner(slot)
    to = cluster.primary_of(key_of(2))
    assert to is not source
    await in_thread(cluster.begin_to_move, slot, to)
    assert cluster.move_keys(slot, source, to, 5) == 5
    refused = auctions_of(0, "half moved", 5)
    assert not any(await accepted(ledger, refused))
    assert await settled(ledger, auctions[:1]) == {"sss"}
    while cluster.move_keys(slot, source, to):
        pass
    await in_thread(cluster.end_move, slot, source, to)
    await awaited(lambda: ledger.connected)
    assert cluster.owner(slot) is to
    await awaited(lambda: ledger._spool.is_empty)
    assert await settled(ledger, auctions[:1]) == {"ddd"}
    assert await settled(ledger, auctions[1:]) == {"ccc"}
    assert await settled(ledger, refused) == {"uuu"}
    assert all(await accepted(ledger, auctions_of(0, "after")))
    await in_thread(cluster.move, slot, source)


# -- the whole service ----------------------------------------------------------------------------


@pytest.fixture
def served(cluster: Cluster, database: str, tmp_path: Path) -> Iterator[Stack]:
    """Two workers and two drains on the cluster."""
    asyncio.run(set_up(database))
    served = Stack(
        {
            "SNAPBID_HOME": str(tmp_path / "home"),
            "SNAPBID_DATABASE_URL": database,
            "SNAPBID_REDIS_URL": cluster.url,
            "SNAPBID_LEDGER_SHARDS": str(SHARDS),
            "SNAPBID_WORKERS": "2",
            "SNAPBID_TMAX_MS": "1000",
            "SNAPBID_BASE_URL": books.BASE_URL,
        }
    )
    with contextlib.ExitStack() as stack:
        stack.callback(served.close)
        for _ in range(2):
            drain = Stack(served.environ, "drain")
            stack.callback(drain.close)
            drain.launch()
        served.start()
        yield served


def lose_a_primary(cluster: Cluster) -> None:
    primary = cluster.primary_of(key_of(0))
    primary.kill()
    until(lambda: cluster.primary_of(key_of(0)) is not primary, "another primary")


def lose_a_primary_whose_replica_was_cut_off(cluster: Cluster) -> None:
    primary = cluster.primary_of(key_of(1))
    replica = cluster.replica_of(primary)
    replica.pause()
    until(lambda: _is_failing(cluster, primary, replica), "that the replica is missed")
    primary.kill()
    replica.go_on()
    until(lambda: cluster.primary_of(key_of(1)) is replica, "another primary")


def freeze_a_primary(cluster: Cluster) -> None:
    primary = cluster.primary_of(key_of(2))
    primary.pause()
    until(lambda: _owner_is_not(cluster, primary, key_of(2)), "another primary")


def move_a_slot(cluster: Cluster) -> None:
    cluster.move(key_slot(key_of(0).encode()), cluster.primary_of(key_of(1)))


def _is_failing(cluster: Cluster, asked: Server, missed: Server) -> bool:
    flags = next(line[2] for line in cluster.lines(asked) if cluster.named(line[1]) is missed)
    return "fail" in flags


def _has_traded(own: Books, wanted: int) -> bool:
    return own.statuses["bid", 200] >= wanted


def _owner_is_not(cluster: Cluster, frozen: Server, key: str) -> bool:
    slot = key_slot(key.encode())
    other = next(node for node in cluster.nodes if node is not frozen)
    return cluster.seen_owner(slot, other) is not frozen


def test_nothing_acknowledged_is_lost_or_doubled(
    cluster: Cluster, served: Stack, database: str
) -> None:
    print(f"BOOKS_SEED={SEED}")
    own = Books(random.Random(SEED), refused_may_count=True)
    trading = Trading(own, served.port)
    trading.start()
    slot = key_slot(key_of(0).encode())
    try:
        for fault in (
            move_a_slot,
            lose_a_primary,
            lose_a_primary_whose_replica_was_cut_off,
            freeze_a_primary,
        ):
            wanted = own.statuses["bid", 200] + 50
            until(partial(_has_traded, own, wanted), "trade")
            fault(cluster)
            cluster.heal()
            until(lambda: b"away" not in served.get("/readyz")[1], "a ledger that is whole")
    finally:
        trading.finish()
        home = cluster.primary_of(key_of(1))
        if cluster.owner(slot) is home:  # put it back for others
            cluster.move(slot, cluster.primary_of(key_of(2)))
    assert not own.wrong, own.wrong[:5]
    contradictions = asyncio.run(agreed(own, database, 60.0))
    assert not contradictions, contradictions
    assert "Traceback" not in served.output
