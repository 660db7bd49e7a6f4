"""A ledger moves to another Redis and to other shards: what it knew counts there, once."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError, ResponseError
from support.cluster import Cluster
from support.commands import invoke
from support.counted import register
from support.moved import PRICE, Machine, books, draining, machine, settled
from support.remembered import (
    PATIENCE_S,
    REGISTRY,
    TTL_S,
    looking,
    opened,
    remember,
    remembering,
    spool_files,
    until,
)
from support.spending import sent
from support.stack import clean_environ, connected
from support.time_buckets import enlarge_time_buckets

from snapbid.base.redis_keys import ShardKeys, shard_of
from snapbid.drain.counters import ShardCounters
from snapbid.ledger.admin import closing, copying, moving
from snapbid.ledger.admin.moving import LedgerPlace, MoveError
from snapbid.ledger.bids.records import BILLING, LOSS, WIN
from snapbid.ledger.bids.spool import Spool
from snapbid.queues.queue import decode
from snapbid.queues.queues import EventQueues, stream_of
from snapbid.redisclient.connection import Connections, connect

BIDS = 30  # for which the budget is good
USERS = [f"user {number}" for number in range(6)]
PRODUCTS = [f"product {number}" for number in range(5)]


def auctions(first: int, last: int) -> list[bytes]:
    return [b"b-%d" % number for number in range(first, last)]


def places(url: str, before: int, after: int) -> tuple[LedgerPlace, LedgerPlace]:
    """Two databases of one Redis."""
    return LedgerPlace(url, before), LedgerPlace(f"{url}?db=1", after)


@pytest.fixture
async def dsn(database: str) -> str:
    async with connected(database) as connection:
        await register(connection)
    return database


async def bid_before(old: Machine) -> None:
    """20 bids of the budget: 5 won, 5 lost, 10 open. Of each user one won, one lost, one open.

    A bid that no budget covers is refused before.
    """
    assert await old.refuse() == "b"
    assert [await old.bid(n) for n in range(20)] == ["k"] * 20
    assert await old.settle(WIN, *auctions(0, 5)) == "ccccc"
    assert await old.settle(LOSS, *auctions(5, 10)) == "ccccc"
    for user in USERS:
        assert [await old.show(user, n) for n in range(3)] == ["k"] * 3
        assert await old.settle(WIN, b"%s-0" % user.encode()) == "c"
        assert await old.settle(LOSS, b"%s-1" % user.encode()) == "c"
    assert await old.used() == (15, 10)


async def bid_after(new: Machine) -> None:
    """The open bids: 2 won meanwhile, of the others 3 are now, and 3 lost; 2 stay open."""
    assert await new.settle(WIN, *auctions(0, 2), *auctions(10, 12)) == "dddd"
    assert await new.settle(WIN, *auctions(12, 15)) == "ccc"
    assert await new.settle(BILLING, *auctions(0, 1), *auctions(12, 13)) == "cc"
    assert await new.settle(LOSS, *auctions(15, 18)) == "ccc"
    assert await new.settle(WIN, b"unknown") == "u"
    await until_used(new, 12, 2)
    letters = [await new.bid(n) for n in range(100, 100 + BIDS)]
    assert letters.count("k") == BIDS - 12, "neither more than the budget nor less"
    assert letters.count("b") == 12
    await new.sweep()
    for user in USERS:
        assert [await new.show(user, n) for n in range(10, 12)] == ["k", "c"]


async def until_used(new: Machine, used: int, held: int) -> None:
    for _ in range(200):
        if await new.used() == (used, held):
            return
        await asyncio.sleep(0.02)
    assert await new.used() == (used, held)


async def put_events(place: LedgerPlace, first: int = 0) -> None:
    queues = EventQueues(place.url, shards=place.shards)
    await queues.open()
    for number in range(first, first + 10):
        for product in PRODUCTS:
            async with asyncio.timeout(30):
                while not await queues.put(number, product, [(f"{product} {number}", b"{}")]):
                    await asyncio.sleep(0.01)
    await queues.close()


async def events_of(place: LedgerPlace) -> dict[str, list[int]]:
    """By product when its events were received, in their order."""
    redis, events = Connections(place.url).client(), dict[str, list[int]]()
    for number in range(place.shards):
        entries: Any = await redis.xrange(ShardKeys(number).events)
        for _, fields in entries:
            for packed in fields.values():
                request = decode(packed)
                assert stream_of(request.product, place.shards) == number
                events.setdefault(request.product, []).append(request.received_at_ms)
    await redis.aclose()
    return events


async def holds_are_over(place: LedgerPlace, hold_s: int) -> None:
    """Wait until the hold clocks are past the end of any hold that there is now."""
    redis = connect(place.url)

    async def clocks() -> list[int]:
        return [int(await redis.hget(f"{keys.prefix}h", "clock") or 0) for keys in place.keys]

    before = await clocks()
    async with asyncio.timeout(PATIENCE_S):
        while any(
            now <= at + 1000 * (hold_s + 2) for at, now in zip(before, await clocks(), strict=True)
        ):
            await asyncio.sleep(0.05)
    await redis.aclose()


BOOKS = {
    # 20 bids before and 18 after; 5 wins before, 2 meanwhile, 3 after.
    "c-1": (20 + 18, 10, 2, 10 * PRICE),
    "c-2": (len(USERS) * 4, len(USERS), 0, len(USERS) * PRICE),
    "losses": (5 + len(USERS) + 3,),
}


async def move_between(
    old: LedgerPlace, new: LedgerPlace, dsn: str, tmp_path: Path, interruptions: list[Any]
) -> None:
    spool = tmp_path / "spool"
    async with draining(old, dsn, tmp_path / "m1"), machine(old, spool, BIDS) as before:
        await asyncio.to_thread(enlarge_time_buckets, old)
        await bid_before(before)
        await put_events(old)
        for interrupt in interruptions:
            with pytest.MonkeyPatch.context() as patch:
                interrupt(patch)
                with pytest.raises(ConnectionError):
                    await moving.move(old, new, print)
        moved = await moving.move(old, new, print)
        assert moved is not None or interruptions, "it has not been moved before"
        assert moved is None or (moved.records, moved.events) == (20 + 3 * len(USERS), 50)
        assert await before.bid(50) == ""
        assert await before.settle(WIN, *auctions(10, 12)) == "ss"
    async with machine(new, spool, BIDS) as after:
        async with draining(new, dsn, tmp_path / "m2"):
            await settled(spool)
            await bid_after(after)
            assert await events_of(new) == {name: list(range(10)) for name in PRODUCTS}
        assert await books(dsn) == BOOKS


@pytest.mark.parametrize(("before", "after"), [(1, 8), (8, 3)])
async def test_open_bids_count_once_in_the_new_ledger(
    fresh_redis: str, dsn: str, tmp_path: Path, before: int, after: int
) -> None:
    await move_between(*places(fresh_redis, before, after), dsn, tmp_path, [])


async def test_one_redis_becomes_a_cluster(
    fresh_redis: str, cluster: Cluster, dsn: str, tmp_path: Path
) -> None:
    new = LedgerPlace(cluster.url, 3)
    await move_between(LedgerPlace(fresh_redis, 1), new, dsn, tmp_path, [])


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 1)])
async def test_a_shorter_ttl_after_a_move_forgets_no_open_bid(
    fresh_redis: str, dsn: str, tmp_path: Path, before: int, after: int
) -> None:
    old, new = places(fresh_redis, before, after)
    spool = tmp_path / "spool"
    async with draining(old, dsn, tmp_path / "m1"):
        async with opened(old.url, spool, shards=before, confirmed=False) as ledger:
            for auction in auctions(0, 8):
                assert await remember(ledger, auction, (b"1", 1, PRICE))
        with looking(old.url) as store:
            for number in range(1, before):  # its heartbeat is of long ago
                store.hset(f"{ShardKeys(number).prefix}ttl", str(TTL_S), 0)
        await moving.move(old, new, print)
    async with opened(new.url, spool, shards=after, ttl_s=1, confirmed=False) as ledger:
        await asyncio.sleep(1.5)
        wins = [await ledger.settle(WIN, auction, b"1") for auction in auctions(0, 8)]
        assert wins == ["c"] * 8


# -- what ends amid a move ------------------------------------------------------------------------


def killed_at(owner: Any, name: str, calls: int = 0) -> Any:
    """Make a function fail after `calls` calls, as if the process were killed there."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original, left = getattr(owner, name), [calls]

        async def fail(*args: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise ConnectionError("killed")
            return await original(*args)

        monkeypatch.setattr(owner, name, fail)

    return patch


async def test_a_move_that_was_killed_goes_on(fresh_redis: str, dsn: str, tmp_path: Path) -> None:
    """At any of these points; a partial copy is discarded."""
    interruptions = [
        killed_at(closing, "close", 2),
        killed_at(copying.Copy, "_flush_shard", 2),
        killed_at(copying.Copy, "events"),
        killed_at(moving, "_set_clocks", 3),
        killed_at(moving, "_await_drain"),
        killed_at(moving, "_finish"),
        killed_at(closing, "reopen", 2),
    ]
    await move_between(*places(fresh_redis, 2, 5), dsn, tmp_path, interruptions)


async def test_a_half_filled_ledger_is_refused_and_can_be_given_up(
    fresh_redis: str, dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = places(fresh_redis, 1, 3)
    spool = tmp_path / "spool"
    async with draining(old, dsn, tmp_path / "m1"), machine(old, spool, BIDS) as before:
        await bid_before(before)
        with pytest.MonkeyPatch.context() as patch:
            killed_at(moving, "_await_drain")(patch)
            with pytest.raises(ConnectionError):
                await moving.move(old, new, print)
        async with opened(new.url, tmp_path / "other", shards=3, wait=False) as ledger:
            await until(lambda: "CLOSED the ledger is filling from" in caplog.text)
            assert not ledger.connected
        redis = connect(new.url)
        with pytest.raises(ResponseError, match="CLOSED the ledger is filling from"):
            await ShardCounters(redis, 0).fetch_state()  # of a drain
        assert await before.settle(WIN, *auctions(10, 12)) == "ss"
        await moving.undo(old, new)
        left = {mark for keys in new.keys for mark in closing.marks(keys)}
        assert set(await redis.keys("{sb*")) == left, "a server that is late must not bid there"
        await redis.aclose()
        await settled(spool)
        await until(lambda: before.ledger.connected)
        assert await before.settle(WIN, *auctions(10, 13)) == "ddc"
        assert await before.used() == (15, 7)
        assert await moving.move(old, new, print)
        await moving.undo(old, new)
        assert await before.bid(51) in "k"


async def test_a_move_is_undone_only_before_the_new_ledger_is_used(
    fresh_redis: str, dsn: str, tmp_path: Path
) -> None:
    old, new = places(fresh_redis, 1, 2)
    spool = tmp_path / "spool"
    async with draining(old, dsn, tmp_path / "m1"), machine(old, spool, BIDS) as before:
        await bid_before(before)
        await moving.move(old, new, print)
        await moving.undo(old, new)  # nothing was counted there
        assert await moving.move(old, new, print)
    async with machine(new, spool, BIDS) as after:
        async with draining(new, dsn, tmp_path / "m2"):
            assert await after.settle(WIN, *auctions(10, 11)) == "c"
        for _ in range(2):
            with pytest.raises(MoveError, match="in use"):
                await moving.undo(old, new)
            assert await moving.move(old, new, print) is None
        await until(lambda: after.ledger.connected)
        assert await after.settle(WIN, *auctions(10, 12)) == "dc"


async def test_an_undone_move_keeps_the_events_that_were_accepted_since(
    fresh_redis: str, dsn: str, tmp_path: Path
) -> None:
    """Even if the command is killed; repeats are dropped by the drain."""
    old, new = places(fresh_redis, 2, 3)
    async with draining(old, dsn, tmp_path / "m1"):
        await put_events(old)
        await moving.move(old, new, print)
    await put_events(new, 10)
    with pytest.MonkeyPatch.context() as patch:
        killed_at(copying.Copy, "_flush_shard", 1)(patch)
        with pytest.raises(ConnectionError):
            await moving.undo(old, new)
    await moving.undo(old, new)
    kept = {name: list(dict.fromkeys(order)) for name, order in (await events_of(old)).items()}
    assert kept == {name: list(range(20)) for name in PRODUCTS}


async def test_impossible_moves_are_refused(fresh_redis: str, dsn: str, tmp_path: Path) -> None:
    old, new = places(fresh_redis, 1, 2)
    with pytest.raises(MoveError, match="no ledger to move"):
        await moving.move(old, new, print)
    with pytest.raises(MoveError, match="no ledger to move"):
        await moving.undo(old, new)
    for place in (old, new):
        async with machine(place, tmp_path / "spool", BIDS) as before:
            assert await before.settle(WIN, b"unknown") == "u"
    with pytest.raises(MoveError, match="the ledger is already at --to"):
        await moving.move(old, LedgerPlace(old.url, 5), print)
    with pytest.raises(MoveError, match="another ledger is already at --to"):
        await moving.move(old, new, print)
    with pytest.raises(MoveError, match="was not moved from this one"):
        await moving.undo(old, new)
    empty = LedgerPlace(f"{fresh_redis}?db=2", 2)
    with pytest.raises(MoveError, match="is waiting for the drain"):
        await moving.move(old, empty, print)
    async with draining(old, dsn, tmp_path / "m1"):
        assert await moving.move(old, empty, print)


async def refused(coroutine: Awaitable[object], why: str) -> None:
    with pytest.raises(MoveError) as error:
        await coroutine
    assert why in str(error.value)


async def test_a_moved_ledger_moves_nowhere_else(
    fresh_redis: str, dsn: str, tmp_path: Path
) -> None:
    """Two copies would count a notice each. `new` itself moves on, and is then not undone."""
    old, new = places(fresh_redis, 1, 2)
    other = LedgerPlace(f"{fresh_redis}?db=2", 3)
    async with draining(old, dsn, tmp_path / "m1"):
        assert await moving.move(old, new, print)
    why = f"this ledger is moved to {new.name}: "
    assert "(database 1, 2 shards)" in why
    await refused(moving.move(old, other, print), why)
    await refused(moving.undo(old, other), why)
    redis = connect(other.url)
    assert await redis.dbsize() == 0
    await redis.aclose()
    for work in (
        moving.move(old, new._replace(shards=3), print),
        moving.undo(old, new._replace(shards=1)),
    ):
        await refused(work, "the ledger at --to has 2 shards, not ")
    assert await moving.move(old, new, print) is None
    async with draining(new, dsn, tmp_path / "m2"):
        assert await moving.move(new, other, print)
    await refused(
        moving.move(old, new, print), f"another ledger is already at --to (moved to {other.name})"
    )
    await refused(moving.undo(old, new), f"the ledger at --to is moved to {other.name}: undo that")
    redis = connect(new.url)
    assert await closing.closed(redis, new.keys[0]) == f"moved to {other.name}"
    await redis.aclose()


async def test_an_interrupted_move_goes_on_to_the_same_place_only(
    fresh_redis: str, dsn: str, tmp_path: Path
) -> None:
    old, new = places(fresh_redis, 1, 2)
    other = LedgerPlace(f"{fresh_redis}?db=2", 2)
    redis = connect(old.url)
    async with draining(old, dsn, tmp_path / "m1"):
        for killed in (killed_at(moving, "_await_drain"), killed_at(moving, "_finish")):
            with pytest.MonkeyPatch.context() as patch:
                killed(patch)
                with pytest.raises(ConnectionError):
                    await moving.move(old, new, print)
            why = f"this ledger is being moved to {new.name}: "
            await refused(moving.move(old, other, print), why)
            await refused(moving.undo(old, other), why)
            await moving.undo(old, new)
        with pytest.MonkeyPatch.context() as patch:
            killed_at(moving, "_await_drain")(patch)
            with pytest.raises(ConnectionError):
                await moving.move(old, new, print)
        await refused(moving.move(old, new._replace(shards=3), print), why)
        unnumbered = new.name.replace("database 1, ", "")  # as 0.1.0 wrote it
        await closing.close(redis, old.keys[0], f"being moved to {unnumbered}")
        assert await moving.move(old, new, print)
        with pytest.MonkeyPatch.context() as patch:
            killed_at(closing, "reopen")(patch)  # of the old ledger, when the new one is wiped
            with pytest.raises(ConnectionError):
                await moving.undo(old, new)
        await refused(moving.undo(old, other), f"this ledger is moved to {new.name}: ")
        await moving.undo(old, new)
    assert not await closing.closed(redis, old.keys[0])
    await redis.aclose()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://u:secret@h:1/3?password=secret", "h:1 (database 3, 2 shards)"),
        ("redis+cluster://:secret@a,b", "a,b (2 shards)"),
        ("redis+sentinel://:secret@a,b/main?db=1", "a,b (main database 1, 2 shards)"),
    ],
)
def test_places_are_named_without_passwords(url: str, name: str) -> None:
    assert LedgerPlace(url, 2).name == name


async def test_bids_are_known_after_two_moves(fresh_redis: str, dsn: str, tmp_path: Path) -> None:
    """From 2 shards to 5, and to 3: live, from spools of any time, and rolled back."""
    first, second = places(fresh_redis, 2, 5)
    third = LedgerPlace(f"{fresh_redis}?db=2", 3)
    spool = tmp_path / "spool"
    async with draining(first, dsn, tmp_path / "m1"), machine(first, spool, BIDS) as before:
        assert [await before.bid(n) for n in range(24)] == ["k"] * 24
        await moving.move(first, second, print)
        assert await before.settle(WIN, *auctions(0, 4)) == "ssss"  # settled two ledgers later
    between_spool = tmp_path / "other"
    async with (
        draining(second, dsn, tmp_path / "m2"),
        machine(second, between_spool, BIDS) as between,
    ):
        assert await between.settle(WIN, *auctions(4, 8)) == "cccc"
        assert await between.bid(100) == "k"
        await moving.move(second, third, print)
        assert await between.settle(WIN, *auctions(8, 12), b"b-100") == "sssss"
    for left in between_spool.glob("*.spool"):
        left.rename(spool / left.name)
    async with machine(third, spool, BIDS) as after, draining(third, dsn, tmp_path / "m3"):
        await settled(spool)
        assert await after.settle(WIN, *auctions(0, 12), b"b-100") == "d" * 13
        assert await after.settle(LOSS, *auctions(12, 16)) == "cccc"
        await until_used(after, 21, 8)
        letters = [await after.bid(n) for n in range(200, 215)]
        assert letters.count("k") == BIDS - 21
    assert (await books(dsn))["c-1"] == (24 + 1 + BIDS - 21, 13, 0, 13 * PRICE)


async def test_unanswered_batches_are_rolled_back_after_two_moves(
    fresh_redis: str, dsn: str, tmp_path: Path
) -> None:
    """From 4 shards to 3, and to 2: shard 3 becomes shard 0 twice."""
    first, second = places(fresh_redis, 4, 3)
    third = LedgerPlace(f"{fresh_redis}?db=2", 2)
    spool = tmp_path / "spool"
    won, unanswered = [auction for auction in auctions(0, 100) if shard_of(auction, 4) == 3][:2]
    async with draining(first, dsn, tmp_path / "m1"):
        async with opened(first.url, spool, shards=4, confirmed=False) as ledger:
            assert await remember(ledger, won, (b"1", 1, PRICE))
            done = remembering(ledger, unanswered, (b"1", 1, PRICE))
            assert done is not None
            await sent(ledger)
            batches = [(3, batch) for batch in ledger._cores[3].unconfirmed]
            await done
        Spool(spool, 1 << 20).leave_unconfirmed(batches)  # as if the reply had never come
        await moving.move(first, second, print)
    async with draining(second, dsn, tmp_path / "m2"):
        await moving.move(second, third, print)
    async with (
        draining(third, dsn, tmp_path / "m3"),
        opened(third.url, spool, shards=2, confirmed=False) as ledger,
    ):
        await until(lambda: not spool_files(spool, "doubt"))
        wins = [await ledger.settle(WIN, auction, b"1") for auction in (won, unanswered)]
        assert wins == ["c", "u"]
    assert (await books(dsn))["c-1"] == (1, 1, 0, PRICE)


async def test_a_repeat_replaces_its_bid_after_two_moves(
    fresh_redis: str, dsn: str, tmp_path: Path
) -> None:
    """From 1 shard to 2, and back: the bid is in a late time bucket, its repeat in a first one."""
    first, second = places(fresh_redis, 1, 2)
    third = LedgerPlace(f"{fresh_redis}?db=2", 1)
    spool = tmp_path / "spool"
    auction = next(each for each in auctions(0, 100) if shard_of(each, 2) == 1)
    async with draining(first, dsn, tmp_path / "m1"):
        async with opened(first.url, spool, confirmed=False) as ledger:
            for number in range(3):
                assert await remember(ledger, b"old %d" % number, (b"1", 1, 1))
                with looking(first.url) as store:
                    store.hdel(REGISTRY, "current")  # as a heartbeat ends a time bucket
            assert await remember(ledger, auction, (b"1", 1, PRICE))
        await moving.move(first, second, print)
    async with draining(second, dsn, tmp_path / "m2"):
        async with opened(second.url, spool, shards=2, confirmed=False) as ledger:
            assert await remember(ledger, auction, (b"1", 2, 5 * PRICE))
        await moving.move(second, third, print)
    async with (
        draining(third, dsn, tmp_path / "m3"),
        opened(third.url, spool, confirmed=False) as ledger,
    ):
        assert await ledger.settle(WIN, auction, b"1") == "c"
    counted = await books(dsn)
    assert (counted["c-1"][1], counted["c-2"][1]) == (0, 1)


async def test_holds_wait_for_what_was_spooled_during_the_move(
    fresh_redis: str, dsn: str, tmp_path: Path
) -> None:
    """A hold ends in the new ledger only once the spools of the old one's workers are settled."""
    old, new = places(fresh_redis, 2, 3)
    spool, hold_s = tmp_path / "spool", 1
    async with draining(old, dsn, tmp_path / "m1"), machine(old, spool, BIDS, hold_s) as before:
        assert [await before.bid(n) for n in range(4)] == ["k"] * 4
        assert await before.show("u", 0) == "k"
        await moving.move(old, new, print)
        won = [*auctions(0, 3), b"u-0"]
        assert await before.settle(WIN, *won) == "ssss"
    spool.rename(tmp_path / "elsewhere")  # a machine that is not started yet
    async with machine(new, spool, BIDS, hold_s) as after, draining(new, dsn, tmp_path / "m2"):
        await holds_are_over(new, hold_s)
        assert await after.used() == (4, 4), "held, though their time is over"
        assert await after.show("u", 1) == "k"
        assert [await after.show("u", n) for n in (2, 3)] == ["k", "c"]
    spool.rename(tmp_path / "empty")
    (tmp_path / "elsewhere").rename(spool)
    async with machine(new, spool, BIDS, hold_s) as after, draining(new, dsn, tmp_path / "m3"):
        await settled(spool)
        await until_used(after, 3, 0)
        assert await after.settle(WIN, *won) == "dddd"


# -- the command ----------------------------------------------------------------------------------


async def test_the_command_is_killed_and_run_again(
    fresh_redis: str, dsn: str, tmp_path: Path
) -> None:
    old, new = places(fresh_redis, 1, 4)
    environ = {"SNAPBID_REDIS_URL": old.url, "SNAPBID_HOME": str(tmp_path)}
    command = ("ledger", "move", "--to", new.url, "--shards", "4")
    spool = tmp_path / "spool"

    async def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return await asyncio.to_thread(invoke, environ, *arguments)

    async with draining(old, dsn, tmp_path / "m1"), machine(old, spool, BIDS) as before:
        await bid_before(before)
        await put_events(old)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "snapbid", *command,
            env=clean_environ(environ), stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        assert b"the old ledger is closed" in await process.stderr.readline()
        process.kill()
        await process.wait()
        done = await run(*command)
        assert done.returncode == 0, done.stderr
        records = 20 + 3 * len(USERS)
        is_over = "before" in done.stdout or "already" in done.stdout  # it was killed too late
        if not is_over:
            assert f"(database 1, 4 shards): {records} records of bids, 2 allowances" in done.stdout
        assert done.stdout.endswith("SNAPBID_REDIS_URL, without SNAPBID_LEDGER_SHARDS\n")
        done = await run(*command)
        assert done.stdout.startswith("the ledger has already been moved there\n")
        done = await run(*command, "--undo")
        assert done.stdout == "the old ledger is open again\n"
        await until(lambda: before.ledger.connected)
        assert await before.settle(WIN, *auctions(10, 11)) == "c"
        wrong = await run("ledger", "move", "--to", "http://there")
        assert (wrong.returncode, wrong.stderr[:5]) == (2, "--to:")
        for more in ((), ("--shards", "2"), ("--undo",)):
            silent = await run("ledger", "move", "--to", "redis://127.0.0.1:1", *more)
            assert (silent.returncode, silent.stderr) == (
                1,
                "Redis (--to) failed: nothing listens at 127.0.0.1:1; nothing was changed\n",
            )
        same = await run("ledger", "move", "--to", old.url)
        assert (same.returncode, same.stderr.count("\n")) == (1, 1)
        assert "the ledger is already at --to" in same.stderr


async def test_counters_that_the_warehouse_does_not_know_may_be_left_behind(
    fresh_redis: str, dsn: str, tmp_path: Path
) -> None:
    old, new = places(fresh_redis, 1, 2)
    async with draining(old, dsn, tmp_path / "m1"):
        async with opened(old.url, tmp_path / "spool", confirmed=False) as ledger:
            assert await remember(ledger, b"a", (b"1", 77, PRICE), ssp=88)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(moving, "CARRIED_S", 0.1)
            with pytest.raises(MoveError, match="counters have not been drained"):
                await moving.move(old, new, print)
        moved = await moving.move(old, new, print, leave_unknown=True)
        assert moved is not None
        assert moved.records == 1
