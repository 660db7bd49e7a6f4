"""`snapbid drain` as a process: several of them, unavailable stores, clean ends."""

import asyncio
import contextlib
import os
import random
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis as Client
from support.counted import Ledger, Tables, counted, some_counts
from support.event_bench import CASINO, accepted
from support.restoring import prepare
from support.sending import NOW, event
from support.stack import Stack, connected, execute

from snapbid.base.redis_keys import ShardKeys
from snapbid.embedded import Home, Postgres, Redis
from snapbid.metrics import exposition
from snapbid.queues import queue

DAY = "2024-05-01"
WAIT_S = 60
Start = Callable[..., Stack]


class Stores:
    """A Redis and a PostgreSQL of one test's own, to kill."""

    def __init__(self, home: Home) -> None:
        self.redis, self.postgres = Redis(home), Postgres(home)
        self.redis.start()
        self.postgres.start()

    def kill(self, server: Redis | Postgres) -> None:
        assert server.process
        server.process.kill()
        server.process.wait()

    def close(self) -> None:
        self.redis.stop()
        self.postgres.stop()


@pytest.fixture(scope="module")
def stores(initialise: Callable[[Path], None]) -> Iterator[Stores]:
    path = Path(tempfile.mkdtemp(prefix="snapbid-drain-"))
    initialise(path)
    with Home(path) as home, contextlib.closing(Stores(home)) as stores:
        asyncio.run(prepare(stores.postgres.dsn))
        yield stores
    shutil.rmtree(path)


@pytest.fixture
async def ledger(stores: Stores) -> AsyncIterator[Ledger]:
    """An empty ledger, and an empty warehouse but for what is registered."""
    client = Client.from_url(stores.redis.url)
    await client.flushall()
    await execute(
        stores.postgres.dsn,
        "truncate bid_daily, impression_daily, loss_daily, campaign_daily, drain_source, events,"
        " event_ids cascade",
    )
    yield Ledger(client)
    await client.aclose()


@pytest.fixture
def start(stores: Stores, tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def start(**environ: str) -> Stack:
            drain = Stack(
                {
                    "SNAPBID_HOME": str(tmp_path / "home"),
                    "SNAPBID_DATABASE_URL": stores.postgres.dsn,
                    "SNAPBID_REDIS_URL": stores.redis.url,
                    **environ,
                },
                "drain",
            )
            stack.callback(drain.close)
            drain.launch()
            return drain

        yield start


async def tables(stores: Stores) -> Tables:
    async with connected(stores.postgres.dsn) as connection:
        return await counted(connection)


async def await_drained(ledger: Ledger, stores: Stores, *drains: Stack) -> None:
    """Wait until no names are left; the tables must equal the counters then."""
    try:
        async with asyncio.timeout(WAIT_S):
            while await ledger.undrained():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail("\n".join(["not drained", *(drain.output for drain in drains)]))
    assert await tables(stores) == ledger.tables()


async def await_text(drain: Stack, text: str, times: int = 1) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while drain.output.count(text) < times:
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"{text!r} was not said {times} times:\n{drain.output}")


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("DRAIN_SEED") or random.SystemRandom().randrange(1 << 32))


async def test_a_second_drain_waits_and_takes_over(
    stores: Stores, ledger: Ledger, start: Start
) -> None:
    first = start()
    await ledger.count(DAY, {"b:1": 1})
    await await_drained(ledger, stores, first)
    second = start()
    await await_text(second, "on standby for draining counters")
    choose = random.Random(2)
    for _ in range(20):
        await ledger.count(DAY, some_counts(choose))
    await await_drained(ledger, stores, first, second)
    await ledger.count(DAY, {"b:2": 1})
    first.stop(signal.SIGKILL)
    await ledger.count(DAY, {"b:2": 1})
    await await_drained(ledger, stores, second)
    assert second.stop() == 0


async def test_two_that_share_the_shards_are_killed_in_turn(
    stores: Stores, ledger: Ledger, start: Start, seed: int
) -> None:
    print(f"DRAIN_SEED={seed} repeats the choices of this run")
    choose = random.Random(seed)
    drains = [start(SNAPBID_LEDGER_SHARDS="4") for _ in range(2)]
    for drain in drains:
        await await_text(drain, "draining counters of ")
    sent = set[str]()
    for victim in (0, 1):
        for count in range(40):
            await ledger.count(DAY, some_counts(choose), choose.randrange(4))
            await queue_events(ledger, choose, sent)
            if count == 20:
                drains[victim].stop(signal.SIGKILL)
        await await_drained(ledger, stores, *drains)
        await await_stored(stores, sent)
        drains[victim] = start(SNAPBID_LEDGER_SHARDS="4")
        await await_text(drains[victim], "draining counters of ")
    for drain in drains:
        await await_text(drain, "draining events of ")


async def queue_events(ledger: Ledger, choose: random.Random, sent: set[str]) -> None:
    """Put a new event and an earlier one into streams."""
    number = len(sent)
    for chosen in (number, choose.randrange(number + 1)):
        pairs = accepted(CASINO, event("login", f"u{chosen}"))
        stream = ShardKeys(choose.randrange(4)).events
        command = queue.add([queue.encode(NOW, CASINO.name, pairs)], stream)
        await ledger.redis.execute_command(*command)  # type: ignore[no-untyped-call]
        sent.add(pairs[0][0])


async def await_stored(stores: Stores, sent: set[str]) -> None:
    """Wait until each event that was ever sent is stored, once."""
    async with asyncio.timeout(WAIT_S):
        while True:
            async with connected(stores.postgres.dsn) as connection:
                rows = await connection.fetch("select event_id from events")
            if len(rows) >= len(sent):
                break
            await asyncio.sleep(0.05)
    assert sorted(row["event_id"] for row in rows) == sorted(sent)


async def test_unavailable_stores_are_logged_once(
    stores: Stores, ledger: Ledger, start: Start
) -> None:
    drain = start()
    await ledger.count(DAY, {"b:1": 1})
    await await_drained(ledger, stores, drain)
    stores.kill(stores.postgres)
    await ledger.count(DAY, {"b:1": 1})
    await await_text(drain, "paused draining counters: the warehouse is unavailable")
    stores.postgres.start()
    await await_drained(ledger, stores, drain)
    await await_text(drain, "resumed draining counters")  # that is said after the commit
    stores.kill(stores.redis)
    await await_text(drain, "paused draining counters: Redis is unavailable")
    stores.redis.start()
    await ledger.redis.connection_pool.disconnect()
    await ledger.count(DAY, {"b:1": 1})
    await await_drained(ledger, stores, drain)
    await await_text(drain, "resumed draining counters", times=2)
    assert drain.stop() == 0
    assert len(re.findall("paused draining counters", drain.output)) == 2, drain.output
    assert len(re.findall("resumed draining counters", drain.output)) == 2, drain.output
    assert "Traceback" not in drain.output


async def test_it_starts_before_the_stores_do(stores: Stores, ledger: Ledger, start: Start) -> None:
    await ledger.count(DAY, {"b:1": 1})
    stores.kill(stores.redis)
    stores.kill(stores.postgres)
    drain = start()
    await await_text(drain, "the warehouse is unavailable")
    stores.postgres.start()
    await await_text(drain, "Redis is unavailable")
    stores.redis.start()
    await ledger.redis.connection_pool.disconnect()
    await await_drained(ledger, stores, drain)


async def test_a_stop_while_a_store_is_unavailable(
    stores: Stores, ledger: Ledger, start: Start
) -> None:
    stores.kill(stores.postgres)
    try:
        drain = start()
        await await_text(drain, "the warehouse is unavailable")
        assert drain.stop() == 0
    finally:
        stores.postgres.start()
    assert "Traceback" not in drain.output


async def test_a_stop_leaves_nothing_behind(stores: Stores, ledger: Ledger, start: Start) -> None:
    drain = start()
    await ledger.count(DAY, {"b:1": 1})
    await await_drained(ledger, stores, drain)
    await ledger.count(DAY, {"b:1": 5})
    assert drain.stop(signal.SIGINT) == 0
    assert not await ledger.undrained()
    assert await tables(stores) == ledger.tables()


async def test_its_counts_are_on_the_operators_page(
    stores: Stores, ledger: Ledger, start: Start, tmp_path: Path
) -> None:
    drain = start()
    await ledger.count(DAY, {"b:1": 1})
    await await_drained(ledger, stores, drain)
    assert drain.stop() == 0
    page = exposition(tmp_path / "home" / f"serve-{drain.port}" / "metrics").decode()
    assert "snapbid_drain_counters_total 1.0" in page
    assert "snapbid_drain_lag_seconds_count 1.0" in page


def test_settings_it_needs(start: Start) -> None:
    drain = start(SNAPBID_REDIS_URL="")
    assert drain.process
    assert drain.process.wait(WAIT_S) == 2
    assert "SNAPBID_REDIS_URL must be set" in drain.output
