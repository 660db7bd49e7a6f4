"""The engine of round trips: one at a time, none sent again, and closed once it has stalled."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import redis as sync_redis
from redis.asyncio.connection import AbstractConnection
from support.remembered import until

from snapbid.base.redis_keys import ShardKeys
from snapbid.queues.queue import EventQueue
from snapbid.redisclient.connection import Connections, connector
from snapbid.redisclient.replicas import Command
from snapbid.redisclient.trips import ENOUGH, Reply, Requests, RoundTrips

STALL_S = 60.0


class Push(NamedTuple):
    command: Command
    done: "Reply[Any]"


class List:
    """A list in Redis that requests append to; a request is answered None if it may have failed."""

    def __init__(self, url: str, stall_s: float = STALL_S) -> None:
        self.trips = RoundTrips(connector(url), self, "list", stall_s)
        self.requests = Requests[Push]()
        self.waited: list[float] = []

    def push(self, value: int) -> "Reply[int | None]":
        push = Push(("RPUSH", "list", value), self.trips.reply())
        self.requests.waiting.append(push)
        self.trips.schedule(self.waiting)
        return push.done

    @property
    def waiting(self) -> int:
        return len(self.requests.waiting)

    async def prepare(self, connection: AbstractConnection) -> None: ...

    def next_batch(self, now: float) -> list[Command]:
        return [push.command for push in self.requests.take(1_000)]

    def receive(self, replies: list[Any], asked_at: float, now: float) -> None:
        self.requests.resolve(replies)

    def expire(self, now: float, waited_s: float) -> None:
        self.waited.append(round(waited_s, 6))

    def is_due(self, now: float) -> bool:
        return False

    def disconnected(self) -> None:
        for push in self.requests.clear():
            push.done.set_result(None)


@pytest.fixture
async def shared(fresh_redis: str) -> AsyncIterator[List]:
    shared = List(fresh_redis)
    shared.trips.open()
    await until(lambda: shared.trips.connected)
    yield shared
    await shared.trips.close()


@pytest.fixture
def client(fresh_redis: str) -> sync_redis.Redis:
    return sync_redis.Redis.from_url(fresh_redis)


def connections(client: sync_redis.Redis) -> int:
    """How many Redis has taken."""
    return int(client.info("stats")["total_connections_received"])


async def test_one_round_trip_at_a_time(shared: List) -> None:
    first = [shared.push(number) for number in range(ENOUGH)]
    assert shared.trips.is_busy, "enough wait to send at once"
    others = [shared.push(number) for number in range(2 * ENOUGH)]
    assert shared.waiting == 2 * ENOUGH
    assert await asyncio.gather(*first) == list(range(1, ENOUGH + 1))
    assert len(await asyncio.gather(*others)) == 2 * ENOUGH


async def test_a_round_trip_that_takes_too_long_has_stalled(
    shared: List, client: sync_redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    trips = shared.trips
    caplog.set_level(logging.INFO)
    trips.tick(asyncio.get_running_loop().time() + 10 * STALL_S)  # nothing is under way
    client.client_pause(60_000, all=False)
    sent = [shared.push(number) for number in range(ENOUGH)]
    began, waiting = trips._sent_at, shared.push(ENOUGH)
    assert began is not None
    connected = []
    for waited_s in (STALL_S, STALL_S + 0.01):
        trips.tick(began + waited_s)
        connected.append(trips.connected)
    assert shared.waited == [STALL_S, STALL_S + 0.01]
    assert connected == [True, False]
    assert await asyncio.gather(*sent, waiting) == [None] * (ENOUGH + 1)
    client.client_unpause()
    await until(lambda: trips.connected)
    lost, regained = caplog.messages
    assert lost == f"list unavailable: no reply for {STALL_S:g} s"
    assert re.fullmatch(r"list available again after \d+\.\d s", regained)
    before = client.llen("list")
    assert await shared.push(7) == before + 1, "nothing is sent again"


async def test_a_missing_certificate_is_named(caplog: pytest.LogCaptureFixture) -> None:
    shared = List("rediss://:hidden@127.0.0.1:1?ssl_ca_certs=/no/ca.pem")
    shared.trips.open()
    await until(lambda: bool(caplog.messages))
    await shared.trips.close()
    missing = "the file /no/ca.pem (ssl_ca_certs) does not exist or cannot be read"
    assert caplog.messages[0] == f"list unavailable: {missing}"


async def test_a_server_that_never_answers_is_named(caplog: pytest.LogCaptureFixture) -> None:
    met = asyncio.Event()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(ignore, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        unanswered = List(f"redis://127.0.0.1:{port}", stall_s=0.05)
        unanswered.trips.open()
        await met.wait()
        await until(lambda: bool(caplog.messages))
        await unanswered.trips.close()
    assert caplog.messages[0] == "list unavailable: not connected within 0.05 s"


async def test_own_busy_time_does_not_count_against_redis(
    shared: List, client: sync_redis.Redis
) -> None:
    """A flood keeps it from reading the answer."""
    client.client_pause(60_000, all=False)
    sent = [shared.push(number) for number in range(ENOUGH)]
    began = shared.trips._sent_at
    assert began is not None
    for number in range(1, 21):
        shared.trips.tick(began + 0.3 * number, busy_s=0.29)
    assert shared.waited[-1] == pytest.approx(20 * 0.01)
    client.client_unpause()
    assert None not in await asyncio.gather(*sent)


async def test_done_requests_are_not_sent(shared: List, client: sync_redis.Redis) -> None:
    given_up, kept = shared.push(1), shared.push(2)
    given_up.cancel()
    assert await kept == 1
    assert client.lrange("list", 0, -1) == [b"2"]


async def test_a_connection_that_is_ended_takes_no_requests(shared: List) -> None:
    sent = [shared.push(number) for number in range(ENOUGH)]
    shared.trips.end(ConnectionError("enough"))
    assert not shared.trips.connected
    assert await asyncio.gather(*sent) == [None] * ENOUGH
    await until(lambda: shared.trips.connected)


async def test_without_its_replicas_a_queue_refuses_events_and_writes_none(
    fresh_redis: str, client: sync_redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue = EventQueue(Connections(fresh_redis, replicas=1))
    with caplog.at_level(logging.WARNING):
        await queue.open()
        await until(lambda: bool(caplog.messages))
        attempts = connections(client) + 3
        await until(lambda: connections(client) >= attempts)
        assert not queue.connected
        assert not await queue.put(1, "p", [("ev1-1", b"x")])
        await queue.close()
    assert caplog.messages == [
        "event stream unavailable: only 0 of 1 replicas (SNAPBID_REDIS_REPLICAS) confirmed the"
        " write"
    ]
    assert not client.exists(ShardKeys(0).events)
