"""Events while a store is unavailable: every 202 is stored, and what cannot be is refused.

The soak kills what there is while events come.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client
from support import sending
from support.machine import Machine, temporary_home
from support.partner import MARK, Partner, await_stored
from support.proxy import FaultProxy, Way
from support.sending import BATCH, SINGLE, event

from snapbid.base.redis_keys import ShardKeys
from snapbid.queues import queue
from snapbid.queues.queue import EventQueue
from snapbid.redisclient.connection import Connections

PATIENCE_S = 120.0


@pytest.fixture
def machine(initialise: Callable[[Path], None]) -> Iterator[Machine]:
    with temporary_home() as home:
        initialise(home.path)
        with contextlib.closing(Machine(home)) as machine:
            yield machine


@pytest.fixture
def key(machine: Machine) -> str:
    return sending.issue(machine.postgres.dsn, "casino", "igaming", rate=1_000_000)


def start(machine: Machine, key: str, **served: str) -> None:
    machine.start(served)
    sending.await_key(machine.served.port, key)


def test_events_wait_for_a_warehouse_that_is_unavailable(machine: Machine, key: str) -> None:
    start(machine, key)
    machine.kill("postgres")
    for number in range(3):
        document = event("login", tag=str(number), mark=MARK)
        assert sending.send(machine.served.port, SINGLE, document, key).status == 202
    machine.kill("drain")
    machine.start_again("drain")
    machine.start_again("postgres")
    assert await_stored(machine.postgres.dsn, {"0", "1", "2"}).total() == 3


async def test_without_redis_events_are_refused_and_none_is_lost(
    machine: Machine, key: str
) -> None:
    async with FaultProxy(machine.redis.socket) as proxy:
        await asyncio.to_thread(start, machine, key, SNAPBID_REDIS_URL=proxy.redis_url)
        sent = 0
        for how in ("stalled", "unreachable", "killed"):
            print(how)
            await machine.lose_redis(proxy, how)
            await _refused(machine, key)
            await machine.regain_redis(proxy)
            sent = await _stored_again(machine, key, sent)


async def _refused(machine: Machine, key: str) -> None:
    for path, document in ((SINGLE, event("login")), (BATCH, [event("login")])):
        reply = await asyncio.to_thread(sending.send, machine.served.port, path, document, key)
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert set(reply.json()) == {"code", "message", "violations"}
        assert reply.json()["code"] == "UNAVAILABLE"


async def _stored_again(machine: Machine, key: str, sent: int) -> int:
    """Send events with tags from `sent` on; return the next tag."""
    rng, enough = random.Random(1), sent + 50
    partner = Partner(rng, machine.served.port, key, lambda own: own.sent < enough)
    partner.sent = sent
    await partner.run()
    assert not partner.wrong
    await asyncio.to_thread(await_stored, machine.postgres.dsn, partner.acknowledged)
    return partner.sent


# -- the queue alone ------------------------------------------------------------------------------


@pytest.fixture
async def proxied(redis_url: str, fresh_redis: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(Path(redis_url.removeprefix("unix://"))) as proxy:
        yield proxy


@pytest.fixture
async def own(proxied: FaultProxy) -> AsyncIterator[EventQueue]:
    """A queue that is connected through the proxy."""
    queue = EventQueue(Connections(proxied.redis_url))
    await queue.open()
    await connected(queue)
    yield queue
    await queue.close()


async def connected(waiting: EventQueue, is_: bool = True) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while waiting.connected is not is_:
            await asyncio.sleep(0.005)


def pair(number: int, size: int = 10) -> list[tuple[str, bytes]]:
    return [(f"ev1-{number}", b"x" * size)]


async def ids(redis_url: str) -> list[str]:
    client = Client.from_url(redis_url)
    try:
        entries: Any = await client.xrange(ShardKeys(0).events)
    finally:
        await client.aclose()
    requests = [queue.decode(packed) for _, fields in entries for packed in fields.values()]
    return [event_id for request in requests for event_id, _ in request.events]


async def test_concurrent_requests_share_a_round_trip(
    own: EventQueue, proxied: FaultProxy, redis_url: str
) -> None:
    assert await own.put(1, "p", pair(0))
    assert own.flushes == 1
    proxied.delay_s = 0.05
    assert all(await asyncio.gather(*(own.put(1, "p", pair(n)) for n in range(1, 200))))
    assert own.flushes <= 4
    large = [own.put(1, "p", pair(n, queue.MAX_ENTRY_BYTES // 2)) for n in range(200, 204)]
    before = own.flushes
    assert all(await asyncio.gather(*large))
    assert own.flushes - before == 4
    assert await ids(redis_url) == [f"ev1-{n}" for n in range(204)]


@pytest.mark.parametrize("way", list(Way))
async def test_a_stall_is_answered_and_ends(
    own: EventQueue, proxied: FaultProxy, redis_url: str, way: Way
) -> None:
    proxied.stall(way)
    assert not any(await asyncio.gather(*(own.put(1, "p", pair(n)) for n in range(20))))
    assert not await own.put(1, "p", pair(30))
    await proxied.resume()
    await connected(own)
    assert await own.put(1, "p", pair(31))
    assert "ev1-31" in await ids(redis_url)


async def test_a_lost_connection_is_noticed_without_traffic(
    own: EventQueue, proxied: FaultProxy
) -> None:
    await proxied.disconnect()
    await connected(own, False)
    assert not await own.put(1, "p", pair(1))


async def test_memory_is_bounded(
    own: EventQueue, proxied: FaultProxy, monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    monkeypatch.setattr(queue, "MAX_WAITING_BYTES", 100_000)
    proxied.delay_s = 0.05
    kept = await asyncio.gather(*(own.put(1, "p", pair(n, 1000)) for n in range(200)))
    assert 90 <= sum(kept) < 100
    assert await own.put(1, "p", pair(200, 1000))
    proxied.delay_s = 0
    monkeypatch.setattr(queue, "MAX_STREAM_BYTES", 1000)
    async with asyncio.timeout(PATIENCE_S):
        while await own.put(1, "p", pair(201)):
            await asyncio.sleep(0.01)
    client = Client.from_url(redis_url)
    await client.delete(ShardKeys(0).events)
    await client.aclose()
    async with asyncio.timeout(PATIENCE_S):
        while not await own.put(1, "p", pair(202)):
            await asyncio.sleep(0.01)


async def test_closing_flushes_pending_events(
    own: EventQueue, proxied: FaultProxy, redis_url: str
) -> None:
    proxied.delay_s = 0.05
    waiting = [asyncio.create_task(own.put(1, "p", pair(n))) for n in range(10)]
    await asyncio.sleep(0)
    await own.close()
    assert all(await asyncio.gather(*waiting))
    assert len(await ids(redis_url)) == 10
