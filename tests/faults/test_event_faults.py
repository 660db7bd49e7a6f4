"""Events while workers, the drain and both stores die: every 202 is stored, nothing twice.

EVENT_SEED repeats a run, EVENT_TOTAL says how many events are sent.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client
from support import sending
from support.lanes import Lane, Reply
from support.processes import workers_of
from support.proxy import FaultProxy, Way
from support.sending import BATCH, SINGLE, cashed_out, claimed, completed, event, money, offered
from support.stack import Stack

from snapbid.embedded import Home, Postgres, Redis
from snapbid.ledger import queue
from snapbid.ledger.queue import Queue
from snapbid.warehouse.migrate import migrate

SEED = int(os.environ.get("EVENT_SEED") or random.SystemRandom().randrange(10**9))
TOTAL = int(os.environ.get("EVENT_TOTAL") or 60_000)
VICTIMS = ("worker", "drain", "redis", "postgres")
LANES = 6
MARK = "mark-of-a-partner"  # in every event; must be in no log
PATIENCE_S = 120.0


class Machine:
    """Stores, a server with two workers and a drain, each to be killed on its own."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.redis, self.postgres = Redis(home), Postgres(home)
        self.redis.start()
        self.postgres.start()
        asyncio.run(migrate(self.postgres.dsn))
        self.key = sending.issue(self.postgres.dsn, "casino", "igaming", rate=1_000_000)

    def start(self, redis_url: str | None = None) -> None:
        environ = {
            "SNAPBID_HOME": str(self._home.path / "served"),
            "SNAPBID_DATABASE_URL": self.postgres.dsn,
            "SNAPBID_REDIS_URL": self.redis.url,
            "SNAPBID_WORKERS": "2",
        }
        self.drain = Stack(environ, "drain")
        self.drain.launch()
        self.served = Stack(environ | {"SNAPBID_REDIS_URL": redis_url or self.redis.url})
        self.served.start()
        sending.await_key(self.served.port, self.key)

    def close(self) -> None:
        for process in (getattr(self, name, None) for name in ("served", "drain")):
            if process:
                process.close()
        self.redis.stop()
        self.postgres.stop()

    def kill(self, victim: str, rng: random.Random) -> None:
        """Kill a worker, the drain, Redis or PostgreSQL with -9."""
        if victim == "worker":
            assert self.served.process
            if workers := sorted(workers_of(self.served.process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(workers), signal.SIGKILL)
            return
        process = getattr(self, victim).process
        process.kill()
        process.wait()

    def start_again(self, victim: str) -> None:
        if victim == "drain":
            self.drain.launch()
        elif victim != "worker":  # `serve` replaces workers itself
            getattr(self, victim).start()


@pytest.fixture
def machine() -> Iterator[Machine]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="snapbid-events-"))
        machine = Machine(stack.enter_context(Home(Path(folder))))
        stack.callback(machine.close)
        yield machine


class EventLane(Lane):
    """A connection that sends events."""

    async def send(self, path: str, document: Any, key: str) -> Reply | None:
        body = json.dumps(document).encode()
        return await self._ask(
            b"POST %b HTTP/1.1\r\nhost: events.example\r\ncontent-type: application/json\r\n"
            b"x-api-key: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (path.encode(), key.encode(), len(body), body)
        )


class Partner:
    """Sends events, again and again until they are acknowledged, and knows which were."""

    def __init__(self, rng: random.Random, port: int, key: str, total: int) -> None:
        self._rng = rng
        self._port = port
        self._key = key
        self._total = total
        self.sent = 0
        self.acknowledged: set[str] = set()
        self.statuses: Counter[int | None] = Counter()
        self.wrong: list[str] = []

    async def run(self) -> None:
        await asyncio.gather(*(self._work(EventLane(self._port)) for _ in range(LANES)))

    async def _work(self, lane: EventLane) -> None:
        while self.sent < self._total:
            size = self._rng.choice((1, 1, 2, 50, 300, 600))
            tags = [str(self.sent + place) for place in range(size)]
            self.sent += size
            events = [self._event(tag) for tag in tags]
            single = size == 1 and self._rng.random() < 0.5
            path, document = (SINGLE, events[0]) if single else (BATCH, events)
            for _ in range(self._rng.choice((1, 1, 1, 2))):  # some are sent again after their 202
                await self._until_acknowledged(lane, path, document)
            self.acknowledged.update(tags)
        lane.close()

    async def _until_acknowledged(self, lane: EventLane, path: str, document: Any) -> None:
        while True:
            reply = await lane.send(path, document, self._key)
            status = reply.status if reply else None
            self.statuses[status] += 1
            if status == 202:
                return
            if reply is not None and status != 503:
                self.wrong.append(f"{status}: {reply.body!r}")
                return
            await asyncio.sleep(0.02)

    def _event(self, tag: str) -> dict[str, Any]:
        more: dict[str, Any] = {"tag": tag, "mark": MARK}
        bonus, number = f"b{int(tag) // 5}", int(tag) % 5
        if int(tag) // 5 % 2:
            return [
                event("login", f"u{tag}", user_agent="Mozilla/5.0", **more),
                event("deposit_initiated", transaction_id=bonus, **money(5), **more),
                event("deposit", transaction_id=bonus, **money(5), **more),
                event("withdraw", transaction_id=bonus, **money(5), **more),
                event("app_open", platform="ios", **more),
            ][number]
        made = (offered, claimed, completed)
        return made[number](bonus, **more) if number < 3 else cashed_out(bonus, number, **more)


def stored(machine: Machine) -> Counter[str]:
    found = sending.rows(machine.postgres.dsn, "select context ->> 'tag' as tag from events")
    return Counter(row["tag"] for row in found)


def await_stored(machine: Machine, tags: set[str]) -> Counter[str]:
    deadline = time.monotonic() + PATIENCE_S
    while not tags <= (found := stored(machine)).keys():
        missing = len(tags - found.keys())
        assert time.monotonic() < deadline, f"{missing} not stored:\n{machine.drain.output}"
        time.sleep(0.2)
    return found


def test_every_202_is_stored_once(machine: Machine) -> None:
    print(f"EVENT_SEED={SEED} EVENT_TOTAL={TOTAL}")
    rng = random.Random(SEED)
    machine.start()
    partner = Partner(random.Random(SEED), machine.served.port, machine.key, TOTAL)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(partner.run())
        except BaseException as error:
            errors.append(error)

    sender = threading.Thread(target=run)
    sender.start()
    number = 0
    while sender.is_alive() or number < len(VICTIMS):
        time.sleep(rng.uniform(0.05, 0.4))  # the moment is what is random
        victims = rng.sample(VICTIMS, rng.choice((1, 1, 2)))
        if number < len(VICTIMS):
            victims = [VICTIMS[number]]
        print(f"round {number}: {victims} after {partner.sent} events")
        number += 1
        for victim in victims:
            machine.kill(victim, rng)
        time.sleep(rng.uniform(0, 0.3))
        for victim in victims:
            machine.start_again(victim)
    sender.join()
    assert not errors, errors
    assert not partner.wrong, partner.wrong[:5]
    print(partner.statuses)
    found = await_stored(machine, partner.acknowledged)
    assert found == Counter({str(tag): 1 for tag in range(partner.sent)})
    dsn = machine.postgres.dsn
    for table in ("event_conflicts", "event_dead_letters"):
        assert not sending.rows(dsn, f"select * from {table} limit 5")
    states = sending.rows(dsn, "select state, cashed_out, count(*) from bonus_status group by 1, 2")
    assert [(row["state"], row["cashed_out"]) for row in states if row["count"] > 1] == [
        ("cashed_out", 7)
    ]
    for process in (machine.served, machine.drain):
        assert MARK not in process.output


def test_events_wait_for_a_warehouse_that_is_away(machine: Machine) -> None:
    machine.start()
    machine.kill("postgres", random.Random(SEED))
    for number in range(3):
        document = event("login", tag=str(number), mark=MARK)
        assert sending.send(machine.served.port, SINGLE, document, machine.key).status == 202
    machine.kill("drain", random.Random(SEED))
    machine.start_again("drain")
    machine.start_again("postgres")
    assert await_stored(machine, {"0", "1", "2"}).total() == 3


@pytest.mark.parametrize("how", ["stalled", "unreachable", "killed"])
def test_redis_away_is_told_and_loses_nothing(machine: Machine, how: str) -> None:
    async def run() -> None:
        async with FaultProxy(machine.redis.socket) as proxy:
            await asyncio.to_thread(machine.start, proxy.redis_url)
            await _away(machine, proxy, how)
            for path, document in ((SINGLE, event("login")), (BATCH, [event("login")])):
                reply = await asyncio.to_thread(
                    sending.send, machine.served.port, path, document, machine.key
                )
                assert reply.status == 503
                assert int(reply.headers["retry-after"]) >= 1
                assert set(reply.json()) == {"code", "message", "violations"}
                assert reply.json()["code"] == "UNAVAILABLE"
            if how == "killed":
                machine.redis.start()
            await proxy.resume()
            partner = Partner(random.Random(1), machine.served.port, machine.key, 50)
            await partner.run()
            assert not partner.wrong
            await asyncio.to_thread(await_stored, machine, partner.acknowledged)

    asyncio.run(run())


async def _away(machine: Machine, proxy: FaultProxy, how: str) -> None:
    if how == "stalled":
        proxy.stall()
    elif how == "unreachable":
        await proxy.refuse()
        proxy.cut()
    else:
        machine.kill("redis", random.Random(SEED))


# -- the queue by itself --------------------------------------------------------------------------


@pytest.fixture
async def proxied(redis_url: str, fresh_redis: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(Path(redis_url.removeprefix("unix://"))) as proxy:
        yield proxy


async def connected(waiting: Queue, is_: bool = True) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while waiting.connected is not is_:
            await asyncio.sleep(0.005)


def pair(number: int, size: int = 10) -> list[tuple[str, bytes]]:
    return [(f"ev1-{number}", b"x" * size)]


async def ids(redis_url: str) -> list[str]:
    client = Client.from_url(redis_url)
    try:
        entries: Any = await client.xrange(queue.STREAM)
    finally:
        await client.aclose()
    requests = [queue.decode(packed) for _, fields in entries for packed in fields.values()]
    return [event_id for request in requests for event_id, _ in request.events]


async def test_requests_travel_together(proxied: FaultProxy, redis_url: str) -> None:
    own = Queue(proxied.redis_url)
    await own.open()
    try:
        await connected(own)
        assert await own.put(1, "p", pair(0))
        assert own.flushes == 1
        proxied.delay_s = 0.05
        assert all(await asyncio.gather(*(own.put(1, "p", pair(n)) for n in range(1, 200))))
        assert own.flushes <= 4
        large = [own.put(1, "p", pair(n, queue.MAX_ENTRY_BYTES // 2)) for n in range(200, 204)]
        before = own.flushes
        assert all(await asyncio.gather(*large))
        assert own.flushes - before == 4
    finally:
        await own.close()
    assert await ids(redis_url) == [f"ev1-{n}" for n in range(204)]


@pytest.mark.parametrize("way", list(Way))
async def test_a_stall_is_answered_and_ends(proxied: FaultProxy, redis_url: str, way: Way) -> None:
    own = Queue(proxied.redis_url)
    await own.open()
    try:
        await connected(own)
        proxied.stall(way)
        assert not any(await asyncio.gather(*(own.put(1, "p", pair(n)) for n in range(20))))
        assert not await own.put(1, "p", pair(30))
        await proxied.resume()
        await connected(own)
        assert await own.put(1, "p", pair(31))
    finally:
        await own.close()
    assert "ev1-31" in await ids(redis_url)


async def test_an_end_of_redis_is_noticed_by_itself(proxied: FaultProxy) -> None:
    own = Queue(proxied.redis_url)
    await own.open()
    try:
        await connected(own)
        await proxied.refuse()
        proxied.cut()
        await connected(own, False)
        assert not await own.put(1, "p", pair(1))
    finally:
        await own.close()


async def test_memory_is_bounded(
    proxied: FaultProxy, monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    own = Queue(proxied.redis_url)
    await own.open()
    try:
        await connected(own)
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
        await client.delete(queue.STREAM)
        await client.aclose()
        async with asyncio.timeout(PATIENCE_S):
            while not await own.put(1, "p", pair(202)):
                await asyncio.sleep(0.01)
    finally:
        await own.close()


async def test_closing_sends_what_waits(proxied: FaultProxy, redis_url: str) -> None:
    own = Queue(proxied.redis_url)
    await own.open()
    await connected(own)
    proxied.delay_s = 0.05
    waiting = [asyncio.create_task(own.put(1, "p", pair(n))) for n in range(10)]
    await asyncio.sleep(0)
    await own.close()
    assert all(await asyncio.gather(*waiting))
    assert len(await ids(redis_url)) == 10
