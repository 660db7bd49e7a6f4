"""The self-audit of server events (contract 11): what was accepted is stored."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.event_bench import CASINO, Bench, accepted
from support.remembered import until
from support.sending import event, money

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.accepted import AcceptedEvents
from snapbid.ledger.admin.audits import Difference
from snapbid.queues.queue import EventQueue
from snapbid.redisclient.connection import Connections

AT = 1_717_243_201_000  # 2024-06-01 12:00:01 UTC
MINUTE = 60_000
HOUR = 60 * MINUTE
KEYS = ShardKeys(0)


class Accepting(Bench):
    """A bench with the queue of a worker, and the audit of what it acknowledges."""

    queue: EventQueue
    events: AcceptedEvents
    now = AT / 1000

    async def connect(self, queue: EventQueue) -> None:
        self.queue = queue
        await queue.open()
        await until(lambda: queue.connected)

    async def put(self, *documents: dict[str, Any], at: int = AT) -> None:
        assert await self.queue.put(at, CASINO.name, accepted(CASINO, *documents))

    async def counted(self) -> dict[str, int]:
        """The counts in Redis, once the worker has none left to bring."""
        await until(lambda: not self.queue._accepted and not self.queue._trips.is_busy)
        counts: Any = await self.redis.hgetall(KEYS.accepted)
        return {field.decode(): int(count) for field, count in counts.items()}

    async def audit(self, times: int = 1) -> list[Difference]:
        await self.counted()
        found: list[Difference] = []
        for _ in range(times):
            found = await self.events.compare(self.connection)
        return found


@pytest.fixture
async def bench(database: str, fresh_redis: str, tmp_path: Path) -> AsyncIterator[Accepting]:
    async with Accepting.open(database, fresh_redis, tmp_path) as bench:
        assert isinstance(bench, Accepting)
        bench.events = AcceptedEvents(bench.redis, 1, lambda: bench.now)
        await bench.connect(EventQueue(Connections(fresh_redis)))
        yield bench
        await bench.queue.close()


def logins(count: int, tag: str = "u") -> list[dict[str, Any]]:
    return [event("login", f"{tag}{number}") for number in range(count)]


def missing(accepted: int, stored: int, at: str = "12:00") -> list[Difference]:
    what = f"events of casino at 2024-06-01 {at}"
    return [Difference("events", what, accepted, stored)]


async def test_nothing_differs_without_a_defect(bench: Accepting) -> None:
    await bench.put(*logins(5))
    assert await bench.audit(3) == []  # they wait
    await bench.round()
    assert await bench.audit(3) == []
    await bench.put(*logins(3, "v"))
    assert await bench.audit() == []
    await bench.round()
    assert await bench.audit(2) == []


async def test_repeats_conflicts_and_dead_letters_are_no_difference(bench: Accepting) -> None:
    paid = [event("withdraw", transaction_id="t", **money(amount)) for amount in (5, 6)]
    await bench.put(*logins(4), *logins(4), *paid)
    await bench.put(*logins(4), at=AT + MINUTE)
    await bench.connection.execute(
        "alter table events add constraint no_u3 check (client_user_id <> 'u3')"
    )
    assert await bench.audit() == []
    await bench.round()
    assert await bench.audit(3) == []
    minute = AT // MINUTE
    assert await bench.counted() == {f"{minute} casino": 4, f"{minute + 1} casino": 0}
    await bench.connection.execute("delete from events where client_user_id = 'u1'")
    assert await bench.audit() == missing(4, 3)


@pytest.mark.parametrize("is_busy", [False, True], ids=["at rest", "while events come"])
async def test_an_event_that_leaves_the_stream_unstored_is_found(
    bench: Accepting, is_busy: bool
) -> None:
    await bench.put(*logins(5))
    await bench.put(event("login", "lost"))
    assert await bench.audit() == []
    entries: Any = await bench.redis.xrange(KEYS.events)
    await bench.redis.xdel(KEYS.events, entries[-1][0])
    await bench.round()
    if is_busy:
        await bench.put(*logins(9, "v"), at=AT + MINUTE)
    assert await bench.audit() == missing(6, 5)
    if is_busy:
        await bench.round()
        await bench.put(*logins(9, "w"), at=AT + 2 * MINUTE)
    assert await bench.audit() == missing(6, 5)


async def test_an_event_that_the_warehouse_lost_is_found(bench: Accepting) -> None:
    for minute in range(3):
        await bench.put(*logins(4, f"u{minute}"), at=AT + minute * MINUTE)
    await bench.round()
    assert await bench.audit(2) == []
    await bench.connection.execute("delete from events where client_user_id = 'u12'")
    assert await bench.audit() == missing(4, 3, "12:01")


async def test_a_count_that_was_raised_is_found(bench: Accepting) -> None:
    await bench.put(*logins(4))
    await bench.round()
    assert await bench.audit(2) == []
    await bench.redis.hincrby(KEYS.accepted, f"{AT // MINUTE} casino", 2)
    assert await bench.audit() == []
    assert await bench.audit() == missing(6, 4)


async def test_a_drain_that_stops_between_the_stores_makes_no_difference(bench: Accepting) -> None:
    """What it has stored is stored again, and taken off once more."""
    await bench.put(*logins(4))
    copies: Any = await bench.redis.xrange(KEYS.events)
    await bench.round()
    assert await bench.audit() == []
    await bench.add(*copies[0][1].values())
    assert await bench.audit() == []
    await bench.round()
    assert await bench.audit(2) == []


async def test_waiting_events_are_no_difference(bench: Accepting) -> None:
    await bench.put(*logins(4))
    assert await bench.audit(4) == []
    await bench.put(*logins(4, "v"))
    assert await bench.audit(2) == []


async def test_counts_are_kept_for_an_hour_and_what_differs_for_a_day(bench: Accepting) -> None:
    await bench.put(*logins(2, "old"))
    await bench.put(*logins(2, "new"), at=AT + HOUR)
    await bench.round()
    await bench.connection.execute("delete from events where client_user_id = 'old1'")
    bench.now += 3601
    assert await bench.audit(2) == missing(2, 1)
    minute = AT // MINUTE
    assert set(await bench.counted()) == {f"{minute} casino", f"{minute + 60} casino"}
    bench.now += 3660
    assert await bench.audit() == missing(2, 1)
    assert set(await bench.counted()) == {f"{minute} casino"}
    bench.now += 24 * 3600
    assert await bench.audit() == missing(2, 1)
    assert await bench.audit() == []
    assert await bench.counted() == {}


async def test_streams_of_a_former_ledger_are_compared_too(bench: Accepting) -> None:
    """Workers that have not been restarted write to a shard that there is no more."""
    keys = ShardKeys(1)
    await bench.redis.set(keys.epoch, "as of a ledger in use")
    await bench.queue.close()
    await bench.connect(EventQueue(Connections(bench.redis_url), 1, 2))
    await bench.put(*logins(3))
    assert await bench.audit() == []
    entries: Any = await bench.redis.xrange(keys.events)
    await bench.redis.xdel(keys.events, *(entry for entry, _ in entries))
    assert await bench.audit() == missing(3, 0)
