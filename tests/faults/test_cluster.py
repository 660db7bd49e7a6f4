"""The ledger in a Redis Cluster: nodes fail, come back, slots move (contract 10).

BOOKS_SEED repeats a run of the client that trades over HTTP.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot
from support import books, sending
from support.books import Books, agreed, document, set_up, trade
from support.cluster import SERVICE, Cluster, Sentinels, Server, folder, until
from support.commands import invoke, succeed
from support.paused_caps import CAPPED_AND_FREE, assert_caps_pause, capped_answer
from support.remembered import PATIENCE_S, opened, remember, settle_all
from support.remembered import until as awaited
from support.spending import bid_request
from support.stack import JWT_SECRET, Stack
from support.trading import Trading
from support.wire import Wire

from snapbid.base.redis_keys import ShardKeys, shard_of
from snapbid.ledger.bids.ledger import Ledger
from snapbid.queues.queue import EventQueue
from snapbid.redisclient.connection import Connections
from snapbid.redisclient.replicas import GRACE_S
from snapbid.report import tokens

SEED = int(os.environ.get("BOOKS_SEED") or random.SystemRandom().randrange(10**9))
SHARDS = 3  # of a new ledger: one a primary
JSON = {"content-type": "application/json"}


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


async def in_thread(call: Callable[..., Any], *arguments: object) -> Any:
    return await asyncio.to_thread(call, *arguments)


async def test_a_failed_primary_costs_only_its_own_auctions_until_failover(
    cluster: Cluster, ledger: Ledger
) -> None:
    before = [auctions_of(shard, "before") for shard in range(SHARDS)]
    for auctions in before:
        assert all(await accepted(ledger, auctions))
    primary = cluster.primary_of(key_of(1))
    others = [shard for shard in range(SHARDS) if cluster.primary_of(key_of(shard)) != primary]
    primary.kill()
    await awaited(lambda: ledger.unavailable == [s for s in range(SHARDS) if s not in others])
    assert not any(await accepted(ledger, auctions_of(1, "unavailable")))
    for shard in others:
        assert all(await accepted(ledger, auctions_of(shard, "meanwhile")))
    spooled = before[1][:3]
    assert await settled(ledger, spooled) == {"sss"}
    # The replica takes over, but counts for nothing before it has a replica itself.
    await in_thread(until, lambda: cluster.primary_of(key_of(1)) != primary, "a new primary")
    assert not any(await accepted(ledger, auctions_of(1, "alone", 3)))
    primary.start()  # here: a process ends with the thread that started it
    await in_thread(until, lambda: primary.call("ROLE")[3:4] == ["connected"], "a replica in step")
    await awaited(lambda: ledger.connected)
    assert all(await accepted(ledger, auctions_of(1, "after")))
    assert await settled(ledger, before[1][3:]) == {"ccc"}
    await awaited(lambda: ledger._spool.is_empty)
    assert await settled(ledger, spooled) == {"ddd"}


@pytest.mark.long
async def test_a_shard_goes_on_after_a_while_without_a_replica(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: a third of the auctions got 204 until somebody added a node."""
    caplog.set_level(logging.INFO)
    time = asyncio.get_running_loop().time
    async with opened(cluster.url, tmp_path / "a", shards=SHARDS, confirmed=False) as ledger:
        before = auctions_of(1, "before")
        since = time()
        assert all(await accepted(ledger, before))
        primary = cluster.primary_of(key_of(1))
        primary.kill()
        await awaited(lambda: bool(ledger.unavailable))
        await awaited(lambda: ledger.connected)  # without a hand
        assert time() - since >= GRACE_S
        assert 1 in ledger.unreplicated
        assert 0 not in ledger.unreplicated
        assert "shard 1 has had no replica for 15 s and continues without one" in caplog.text
        alone = auctions_of(1, "alone")
        assert all(await accepted(ledger, alone))
        replicating = Connections(cluster.url)
        client = replicating.client()
        async with asyncio.timeout(PATIENCE_S):
            while not await client.exists(ShardKeys(1).unreplicated):
                await asyncio.sleep(0.01)
        # A process that starts now goes on at once.
        async with opened(cluster.url, tmp_path / "b", shards=SHARDS, confirmed=False) as other:
            assert 1 in other.unreplicated
            await replicating.replicate(client, ShardKeys(1))
        primary.start()
        await awaited(lambda: not ledger.unreplicated)
        assert "shard 1 has a replica again" in caplog.text
        assert all(await accepted(ledger, auctions_of(1, "after")))
        await in_thread(cluster.await_health)
        # The same a second time: what is acknowledged now is on both.
        cluster.primary_of(key_of(1)).kill()
        await awaited(lambda: bool(ledger.unavailable))
        await in_thread(cluster.heal)
        await awaited(lambda: ledger.connected)
        assert await settled(ledger, [*before, *alone]) == {"ccc"}
        await client.aclose()


@pytest.mark.long
async def test_a_stale_replica_is_not_promoted(cluster: Cluster, ledger: Ledger) -> None:
    """It lacks what was acknowledged without it, which its primary brings back."""
    primary = cluster.primary_of(key_of(1))
    replica = cluster.replica_of(primary)
    before = auctions_of(1, "before")
    assert all(await accepted(ledger, before))
    cut_off(replica, primary)
    assert not any(await accepted(ledger, auctions_of(1, "cut off", 3)))
    await awaited(lambda: 1 in ledger.unreplicated)
    alone = auctions_of(1, "alone")
    assert all(await accepted(ledger, alone))
    primary.kill()
    try:
        await in_thread(until, lambda: b"longer than allowed" in said(replica), "its refusal")
        assert not any(await accepted(ledger, auctions_of(1, "unavailable", 3)))
        primary.start()
        await awaited(lambda: ledger.connected)
    finally:
        reach_again(replica)
    assert await settled(ledger, [*before, *alone]) == {"ccc"}


def cut_off(replica: Server, primary: Server) -> None:
    """Keep a replica from its primary, which both still see on the bus."""
    replica.call("CONFIG", "SET", "masteruser", "nobody")
    replica.call("CONFIG", "SET", "masterauth", "nothing")
    primary.call("CLIENT", "KILL", "TYPE", "replica")


def reach_again(replica: Server) -> None:
    replica.call("CONFIG", "SET", "masteruser", "")
    replica.call("CONFIG", "SET", "masterauth", "")


def said(server: Server) -> bytes:
    """The log of a server."""
    return (server.folder / "log").read_bytes()


async def test_a_slot_that_moves_is_unavailable_until_it_has_moved(
    cluster: Cluster, ledger: Ledger
) -> None:
    """Most of its keys being elsewhere, no script may decide, or write, by what it finds."""
    slot = key_slot(key_of(0).encode())
    auctions = auctions_of(0, "before")
    assert all(await accepted(ledger, auctions))
    source = cluster.owner(slot)
    to = cluster.primary_of(key_of(2))
    assert to is not source
    await in_thread(cluster.begin_to_move, slot, to)
    cluster.move_keys(slot, source, to, but=("epoch", "w"))
    refused = auctions_of(0, "half moved", 5)
    assert not any(await accepted(ledger, refused))
    assert await settled(ledger, auctions[:1]) == {"sss"}
    await in_thread(until, lambda: not cluster.move_keys(slot, source, to), "its keys to move")
    await in_thread(cluster.end_move, slot, source, to)
    await awaited(lambda: ledger.connected)
    assert cluster.owner(slot) is to
    await awaited(lambda: ledger._spool.is_empty)
    assert await settled(ledger, auctions[:1]) == {"ddd"}
    assert await settled(ledger, auctions[1:]) == {"ccc"}
    assert await settled(ledger, refused) == {"uuu"}
    assert all(await accepted(ledger, auctions_of(0, "after")))
    counts = [to.call("HGET", key, "b:1") for key in to.call("KEYS", "{sb0}:c:*")]
    assert sum(int(count or 0) for count in counts) == 2 * len(auctions)
    await in_thread(cluster.move, slot, source)


# -- the whole service ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(
    started_cluster: Cluster, module_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """Two workers and two drains on the cluster, of which they know nothing but the URL."""
    started_cluster.heal()
    started_cluster.flush()
    asyncio.run(set_up(module_database))
    served = Stack(
        {
            "SNAPBID_HOME": str(tmp_path_factory.mktemp("home")),
            "SNAPBID_DATABASE_URL": module_database,
            "SNAPBID_REDIS_URL": started_cluster.url,
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


def is_quiet(cluster: Cluster, home: Path) -> bool:
    """Whether the drain has nothing to move, and no spool is to be replayed."""
    changed = any(
        cluster.primary_of(key_of(shard)).call("EXISTS", keys.changed, keys.taken)
        for shard in range(SHARDS)
        for keys in [ShardKeys(shard)]
    )
    return not changed and not list(home.rglob("*.spool"))


@pytest.mark.long
def test_nothing_acknowledged_is_lost_or_doubled(
    started_cluster: Cluster, served: Stack, module_database: str
) -> None:
    print(f"BOOKS_SEED={SEED}")
    cluster = started_cluster
    cluster.heal()
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
            until(lambda: b"unavailable" not in served.get("/readyz")[1], "a ledger that is whole")
        lose_a_primary(cluster)
        until(lambda: unreplicated(served), "a shard that goes on without a replica")
        until(partial(_has_traded, own, own.statuses["bid", 200] + 50), "trade")
        cluster.heal()
        until(lambda: not unreplicated(served), "replicas that are waited for")
    finally:
        trading.finish()
        home = cluster.owner(slot ^ 1)
        if cluster.owner(slot) is not home:  # put it back for others
            cluster.move(slot, home)
    assert not own.wrong, own.wrong[:5]
    quiet = partial(is_quiet, cluster, Path(served.environ["SNAPBID_HOME"]))
    contradictions = asyncio.run(agreed(own, module_database, is_quiet=quiet))
    assert not contradictions, contradictions
    assert "Traceback" not in served.output


@pytest.mark.long
def test_bids_spread_evenly_over_the_primaries(started_cluster: Cluster, served: Stack) -> None:
    """Seen: all of them lay on one, unless a setting said how many shards there are."""
    started_cluster.heal()
    before = bids_of_each(started_cluster)
    auctions = [f"spread-{number}" for number in range(300)]
    assert all(answers(served, auction.encode()) for auction in auctions)
    own = bids_of_each(started_cluster)
    assert len({started_cluster.primary_of(key_of(shard)) for shard in range(SHARDS)}) == SHARDS
    counts = [after - there for after, there in zip(own, before, strict=True)]
    assert counts == [
        len([a for a in auctions if shard_of(a.encode(), SHARDS) == n]) for n in range(SHARDS)
    ]
    assert all(80 <= count <= 120 for count in counts), counts


def bids_of_each(cluster: Cluster) -> list[int]:
    """The bids that were counted, by shard."""
    counts = []
    for shard in range(SHARDS):
        primary = cluster.primary_of(key_of(shard))
        values = [
            primary.call("HGETALL", key)
            for key in primary.call("KEYS", f"{ShardKeys(shard).prefix}c:*")
        ]
        counts.append(
            sum(int(n) for each in values for name, n in each.items() if name[:2] == "b:")
        )
    return counts


@pytest.mark.long
def test_a_shard_without_a_replica_is_named(started_cluster: Cluster, served: Stack) -> None:
    """Its share of the 204s ends, and everything says what it goes on without."""
    cluster = started_cluster
    cluster.heal()
    primary = cluster.primary_of(key_of(1))
    shards = [shard for shard in range(SHARDS) if cluster.primary_of(key_of(shard)) is primary]
    primary.kill()
    try:
        until(lambda: unreplicated(served) == [f"shard {shard}" for shard in shards], "its naming")
        assert served.get("/readyz")[0] == 200
        until(lambda: "unreplicated" in [each["key"] for each in causes(served)], "the cause")
        for shard in range(SHARDS):
            line = f'snapbid_ledger_shard_unreplicated{{shard="{shard}"}} {int(shard in shards)}'
            assert line.encode() in metrics(served)
        environ = {name: s for name, s in served.environ.items() if name.startswith("SNAPBID_")}
        assert "so writes are acknowledged without one" in invoke(environ, "status").stdout
        until(lambda: all(answers(served, each) for each in auctions_of(1, "gone", 5)), "bids")
    finally:
        cluster.heal()
    until(lambda: not unreplicated(served), "writes that wait for a replica")
    until(lambda: "unreplicated" not in [each["key"] for each in causes(served)], "its end")
    assert "s and continues without one:" in served.output
    assert "has a replica again" in served.output


def unreplicated(served: Stack) -> list[str]:
    """The shards that a worker names."""
    named: list[str] = json.loads(_page(served, "/readyz")).get("unreplicated", [])
    return named


def answers(served: Stack, auction: bytes) -> bool:
    """Whether an auction gets a bid."""
    body = json.dumps(bid_request(auction.decode(), [next(iter(books.CAMPAIGNS))])).encode()
    with Wire(served.port) as wire:
        return wire.ask("POST", "/api/v1/openrtb2/acme/bid", JSON, body).status == 200


@pytest.mark.long
def test_every_part_works_in_a_cluster(served: Stack, module_database: str) -> None:
    """Events, limits, reports, the operator's page and commands, whose keys lie in other slots."""
    environ = {name: text for name, text in served.environ.items() if name.startswith("SNAPBID_")}
    database = module_database
    asyncio.run(trade(Books(random.Random(SEED)), served.port, auctions=20, lanes=2))

    limited, key = sending.issue(database, "shop", rate=2), sending.issue(database, "shop")
    sending.await_key(served.port, key)  # and then the first one, too

    def send(key: str) -> int:
        return sending.send(served.port, sending.SINGLE, sending.event("login"), key).status

    until(lambda: send(key) == 202, "a queue for events")
    until(lambda: 429 in [send(limited) for _ in range(3)], "the limit of the key")
    until(lambda: sending.rows(database, "select 1 from events"), "the event in the warehouse")

    today = datetime.now(UTC).date()
    with Wire(served.port) as wire:

        def is_counted() -> bool:  # it is not while Redis is late
            token = tokens.issue("acme", JWT_SECRET.encode(), "snapbid")
            target = f"/api/v1/ssp/acme/report?from={today}&to={today}"
            for left in (9, 8):
                reply = wire.ask("GET", target, {"authorization": f"Bearer {token}"})
                assert reply.status == 200
                if "ratelimit" not in reply.headers:
                    return False
                assert f"r={left}" in reply.headers["ratelimit"]
            assert "age" in reply.headers  # from the cache
            return True

        until(is_counted, "reports that are counted")

    until(lambda: page(served)["redis"], "the page")
    until(lambda: page(served)["drain_waiting"] == 0, "a ledger that is drained")

    until(lambda: b'snapbid_ledger_shards{state="confirmed"} 3' in metrics(served), "shards")
    seen = json.loads(invoke(environ, "golive", "acme", "--json").stdout)
    assert any("request" in line for item in seen["items"] for line in item["evidence"])
    succeed(environ, "campaign", "list")


def page(served: Stack) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_page(served, "/ops/data", ops=True))
    return document


def _page(served: Stack, path: str, *, ops: bool = False) -> bytes:
    """Raises OSError without an answer, for which `until` waits."""
    status, body = served.get(path, ops=ops)
    if not status:
        raise OSError(f"no answer to {path}")
    return body


def causes(served: Stack) -> list[dict[str, Any]]:
    own: list[dict[str, Any]] = page(served)["verdict"]["causes"]
    return own


def metrics(served: Stack) -> bytes:
    return served.get("/metrics", ops=True)[1]


@pytest.mark.long
def test_unavailable_shards_are_named(
    started_cluster: Cluster, served: Stack, tmp_path: Path
) -> None:
    """While a primary and its replica are gone; the sums keep what was known of their part."""
    cluster = started_cluster
    environ = {name: text for name, text in served.environ.items() if name.startswith("SNAPBID_")}
    later = {"starts_at": "2099-01-01T00:00:00Z", "budget": {"total": 5}}
    lines = "\n".join((document("later", (1, 1), 1, **later)[1], *CAPPED_AND_FREE))
    succeed(environ, "campaign", "import", "-", input=lines)
    asyncio.run(trade(Books(random.Random(SEED)), served.port, auctions=20, lanes=2))
    until(lambda: page(served)["spent_today"], "the spend of today")
    until(lambda: capped_answer(served.port, "first", "somebody") == "capped", "bids with caps")
    until(lambda: page(served)["drain_waiting"] == 0, "a ledger that is drained")
    gone = cluster.primary_of(key_of(1))
    unavailable = [n for n in range(SHARDS) if cluster.primary_of(key_of(n)) is gone]
    there = next(n for n in range(SHARDS) if n not in unavailable)
    before = page(served)["spent_today"]
    for node in (cluster.replica_of(gone), gone):
        node.kill()
    try:
        until(lambda: page(served)["unavailable"] == unavailable, "shards that are unavailable")
        now = page(served)
        assert now["redis"]
        assert now["shards"] == SHARDS
        assert now["spent_today"] >= before
        until(lambda: "shards" in [each["key"] for each in causes(served)], "the cause")
        for shard in range(SHARDS):
            line = f'snapbid_ledger_shard_up{{shard="{shard}"}} {int(shard not in unavailable)}'
            assert line.encode() in metrics(served)
        assert b'snapbid_ledger_shards{state="unavailable"} %d' % len(unavailable) in metrics(
            served
        )
        listed = invoke(environ, "campaign", "list", "--budgets")
        assert ", ".join(f"shard {n}" for n in unavailable) in listed.stderr
        assert listed.returncode == 0
        assert f"without {len(unavailable)} of {SHARDS} shards" in invoke(environ, "status").stdout
        for shard in (1, there):
            request = tmp_path / "request.json"
            (auction,) = auctions_of(shard, "explained", 1)
            request.write_text(json.dumps(bid_request(auction.decode())))
            told = json.loads(invoke(environ, "explain", "acme", str(request), "--json").stdout)
            assert told["unavailable"] == unavailable
            assert ("shard 1, is down" in told["reason"]) == (shard == 1)
        assert_caps_pause(environ, served.port, (1, there), SHARDS, request)
    finally:
        cluster.heal()
    until(lambda: page(served)["unavailable"] == [], "a ledger that is whole")


@pytest.mark.long
async def test_a_failover_by_sentinels_is_followed(tmp_path: Path) -> None:
    with folder() as path, Sentinels(path) as sentinels:
        async with opened(sentinels.url, tmp_path / "spool", confirmed=False) as ledger:
            auctions = [b"a-%d" % number for number in range(20)]
            assert all(await accepted(ledger, auctions))
            queue = EventQueue(Connections(sentinels.url))
            await queue.open()
            await awaited(lambda: queue.connected)
            assert await queue.put(1, "shop", [("ev", b"{}")])
            await in_thread(until, lambda: _has(sentinels.replica, auctions), "replication")
            sentinels.primary.kill()
            await awaited(lambda: not ledger.connected)
            assert not any(await accepted(ledger, [b"unavailable"]))
            assert await settled(ledger, auctions[:1]) == {"sss"}
            await awaited(lambda: ledger.connected and queue.connected)
            assert await in_thread(sentinels.current) is sentinels.replica
            assert await settled(ledger, auctions[1:]) == {"ccc"}
            await awaited(lambda: ledger._spool.is_empty)
            assert await settled(ledger, auctions[:1]) == {"ddd"}
            assert await queue.put(1, "shop", [("ev2", b"{}")])
            await queue.close()


@pytest.mark.long
@pytest.mark.parametrize("is_demoted", [True, False])
async def test_a_planned_failover_by_sentinels_loses_nothing(
    tmp_path: Path, is_demoted: bool
) -> None:
    """Until it is demoted, or for ever if the sentinels cannot do it, the old primary takes writes;
    a bid is acknowledged only if the new one has it.
    """
    with folder() as path, Sentinels(path) as sentinels:
        async with opened(sentinels.url, tmp_path / "spool", confirmed=False) as ledger:
            if not is_demoted:
                sentinels.primary.call("ACL", "SETUSER", "default", "-slaveof", "-replicaof")
            sentinels.watchers[0].call("SENTINEL", "FAILOVER", SERVICE)
            kept, number = list[bytes](), 0
            while await in_thread(sentinels.current) is sentinels.primary or len(kept) < 20:
                number += 1
                if await remember(ledger, b"a-%d" % number, (b"1", 1, 1000)):
                    kept.append(b"a-%d" % number)
            await awaited(lambda: ledger.connected)
            for auction in kept:
                assert await settle_all(ledger, auction, b"1") == "ccc"
            assert sentinels.replica.call("ROLE")[0] == "master"
            async with opened(sentinels.url, tmp_path / "other", confirmed=False) as other:
                assert {await settle_all(other, auction, b"1") for auction in kept} == {"ddd"}


def _has(server: Server, auctions: list[bytes]) -> bool:
    """Whether a replica has what was counted of as many auctions."""
    (key,) = server.call("KEYS", "{sb0}:c:*")
    return bool(server.call("HGET", key, "b:1") == str(len(auctions)))
