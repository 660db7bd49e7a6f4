"""The daily report over real stores: several workers, crowds, and stores that are unavailable."""

import asyncio
import contextlib
import math
import os
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis.asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.clock import SettableClock
from support.commands import invoke
from support.http import Reply
from support.report import ISSUER, KEY, NOW, SECRET, SSPS, Reporter, fill, reporter, token
from support.stack import connected, run

from snapbid.embedded import Home, Postgres, Redis
from snapbid.redisclient.connection import connect
from snapbid.report import cache, gate, reports
from snapbid.report.tokens import check
from snapbid.report.window import parse
from snapbid.warehouse import reports as warehouse_reports
from snapbid.warehouse.migrate import migrate

WINDOW = "2026-03-01/2026-03-01"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WAITING = (
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock'"
)
MORE = {"bid_daily": [["2026-03-01", "acme", 1, 0, 0]]}


@pytest.fixture
async def warehouse(database: str) -> str:
    await fill(database, {"ssp": list(SSPS.items()), **MORE})
    return database


@contextlib.asynccontextmanager
async def locked(database: str) -> AsyncIterator[None]:
    """A warehouse whose figures nobody can read."""
    async with connected(database) as connection, connection.transaction():
        await connection.execute("lock table bid_daily in access exclusive mode")
        yield


async def until(condition: Callable[[], Awaitable[Any]], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.01)


def bids(reply: Reply) -> list[int]:
    assert reply.status == 200, reply
    return [day["bids"] for day in reply.json()["days"]]


def internal(reply: Reply) -> bool:
    assert reply.status == 500, reply
    assert reply.json()["error"] == "internal"
    assert "cache-control" not in reply.headers
    return True


@pytest.mark.usefixtures("patient_stores")
class TestLimit:
    async def test_workers_count_together(self, warehouse: str, fresh_redis: str) -> None:
        ours = token()
        started = time.monotonic()
        async with contextlib.AsyncExitStack() as stack:
            workers = [
                await stack.enter_async_context(reporter(warehouse, fresh_redis)) for _ in range(3)
            ]
            asked = [worker.report(ours) for _ in range(10) for worker in workers]
            replies = await asyncio.gather(*asked)
        took_s = math.ceil(time.monotonic() - started)
        assert sorted(reply.status for reply in replies) == [200] * 10 + [429] * 20
        left = {reply.headers["ratelimit"] for reply in replies if reply.status == 200}
        assert {each.split(";")[1] for each in left} == {f"r={n}" for n in range(10)}
        waits = {int(reply.headers["retry-after"]) for reply in replies if reply.status == 429}
        assert waits <= {*range(60 - took_s, 61)}

    async def test_counts_expire_and_hold_no_jti(self, warehouse: str, fresh_redis: str) -> None:
        ours = token()
        async with reporter(warehouse, fresh_redis) as worker, client_of(fresh_redis) as client:
            await worker.report(ours)
            keys = await client.keys("report:*")
            assert gate.redis_key(check(ours, KEY, ISSUER, NOW).jti).encode() in keys
            assert {len(key) < 64 for key in keys} == {True}
            lives = [await client.pttl(key) for key in keys]
        assert all(0 < life <= 300_000 for life in lives)
        assert min(lives) <= 60_000

    @settings(
        max_examples=25,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(st.lists(st.sampled_from([0, 0.000001, 1, 5.9, 6, 7, 29.999999, 60]), max_size=40))
    async def test_any_rolling_minute(self, fresh_redis: str, gaps: list[float]) -> None:
        clock = SettableClock(NOW)
        counted: deque[int] = deque()
        async with client_of(fresh_redis) as client:
            await client.flushall()
            rate = gate.TokenGate(client, key=KEY, issuer=ISSUER, registry=SSPS.copy, clock=clock)
            for gap in gaps:
                clock.now += timedelta(seconds=gap)
                now = (clock.now - EPOCH) // timedelta(microseconds=1)
                while counted and counted[0] <= now - 60_000_000:
                    counted.popleft()
                admitted = len(counted) < 10
                if admitted:
                    counted.append(now)
                reset_s = -(-(counted[0] + 60_000_000 - now) // 1_000_000)
                assert await rate.count("x") == (admitted, 10 - len(counted), reset_s)


@pytest.mark.usefixtures("patient_stores")
class TestCache:
    async def test_five_minutes_for_all_workers(self, warehouse: str, fresh_redis: str) -> None:
        window = parse(b"from=2026-03-01&to=2026-03-01", NOW.date())
        key = cache.redis_key("acme", window)
        async with (
            client_of(fresh_redis) as client,
            reporter(warehouse, fresh_redis) as first,
            reporter(warehouse, fresh_redis) as other,
        ):
            fresh = await first.report(token(), WINDOW)
            assert bids(fresh) == [1]
            assert "age" not in fresh.headers
            assert 290_000 < await client.pttl(key) <= 300_000
            await fill(warehouse, MORE)
            await client.pexpire(key, 179_999)
            most_ms = await client.pttl(key)
            repeat = await other.report(token(), WINDOW)
            least_ms = await client.pttl(key)
            assert repeat.body == fresh.body
            ages = [(300_000 - left_ms) // 1000 for left_ms in (most_ms, least_ms)]
            assert 120 <= ages[0] <= int(repeat.headers["age"]) <= ages[1]
            await client.pexpire(key, 1)
            await until(lambda: _gone(client, key))
            later = await other.report(token(), WINDOW)
            assert bids(later) == [2]
            assert "age" not in later.headers

    async def test_a_crowd_reaches_the_warehouse_once(
        self, warehouse: str, fresh_redis: str
    ) -> None:
        async with reporter(warehouse, fresh_redis) as worker, connected(warehouse) as watcher:
            async with asyncio.TaskGroup() as group, locked(warehouse):
                asked = [group.create_task(worker.report(token(), WINDOW)) for _ in range(50)]
                await until(lambda: _waits(watcher, 1))
                asked[0].cancel()
                another = group.create_task(worker.report(token(), "2026-03-02/2026-03-02"))
                await until(lambda: _waits(watcher, 2))
            assert asked[0].cancelled()
        assert {task.result().body for task in asked[1:]} == {asked[1].result().body}
        assert bids(asked[1].result()) == [1]
        assert bids(another.result()) == [0]


class TestRedisUnavailable:
    async def test_reports_come_from_the_warehouse(
        self, warehouse: str, own_redis: Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours = token()
        async with reporter(warehouse, own_redis.url) as worker:
            assert bids(await worker.report(ours, WINDOW)) == [1]
            own_redis.stop()
            await fill(warehouse, MORE)
            for _ in range(12):
                reply = await worker.report(ours, WINDOW)
                assert bids(reply) == [2]
                assert not reply.headers.keys() & {"age", "ratelimit", "ratelimit-policy"}
            own_redis.start()
            await until(lambda: _limited(worker))

    async def test_a_stalled_redis_does_not_stall_reports(
        self, warehouse: str, own_redis: Redis
    ) -> None:
        assert own_redis.process
        async with reporter(warehouse, own_redis.url) as worker:
            assert bids(await worker.report(token(), WINDOW)) == [1]
            own_redis.process.send_signal(signal.SIGSTOP)
            try:
                async with asyncio.timeout(30):
                    assert bids(await worker.report(token(), WINDOW)) == [1]
            finally:
                own_redis.process.send_signal(signal.SIGCONT)
            await until(lambda: _limited(worker))


async def test_a_cache_that_does_not_answer_is_named(
    own_redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    assert own_redis.process
    async with redis.asyncio.Redis.from_url(own_redis.url) as client:
        reports_kept = cache.ReportCache(client)
        assert await reports_kept.get("key") is None
        assert not caplog.records
        own_redis.process.send_signal(signal.SIGSTOP)
        try:
            assert await reports_kept.get("key") is None
        finally:
            own_redis.process.send_signal(signal.SIGCONT)
    assert "failed to read the report cache: no answer; querying" in caplog.text


class TestWarehouseUnavailable:
    @pytest.mark.usefixtures("patient_stores")
    async def test_a_query_that_takes_too_long(
        self, warehouse: str, fresh_redis: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with reporter(warehouse, fresh_redis) as worker:
            async with locked(warehouse):
                with monkeypatch.context() as impatient:
                    impatient.setattr(warehouse_reports, "TIMEOUT_S", 0.2)
                    reply = await worker.report(token(), WINDOW)
                assert internal(reply)
                assert reply.headers["ratelimit"].startswith('"token";r=9')
            back = await worker.report(token(), WINDOW)
            assert bids(back) == [1]
            assert "age" not in back.headers

    async def test_it_comes_back_by_itself(self, own_postgres: Postgres, fresh_redis: str) -> None:
        await migrate(own_postgres.dsn)
        await fill(own_postgres.dsn, {"ssp": list(SSPS.items()), **MORE})
        async with reporter(own_postgres.dsn, fresh_redis) as worker:
            assert bids(await worker.report(token(), WINDOW)) == [1]
            own_postgres.stop()
            assert bids(await worker.report(token(), WINDOW)) == [1]  # from the cache
            for _ in range(3):
                assert internal(await worker.report(token(), "2026-03-01/2026-03-02"))
            own_postgres.start()
            await until(lambda: _answered(worker, "2026-03-01/2026-03-02"))

    async def test_one_that_is_frozen(
        self, own_postgres: Postgres, fresh_redis: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await migrate(own_postgres.dsn)
        async with reporter(own_postgres.dsn, fresh_redis) as worker:
            assert bids(await worker.report(token(), WINDOW)) == [0]
            with frozen(own_postgres), monkeypatch.context() as impatient:
                impatient.setattr(warehouse_reports, "TIMEOUT_S", 0.2)
                impatient.setattr(reports, "ANSWER_TIMEOUT_S", 1)
                for _ in range(6):  # more than the pool has connections
                    assert internal(await worker.report(token(), "2026-03-01/2026-03-02"))
            await until(lambda: _answered(worker, "2026-03-01/2026-03-02"))

    async def test_an_unmigrated_one(self, postgres: Postgres, fresh_redis: str) -> None:
        async with reporter(postgres.dsn_of("postgres"), fresh_redis) as worker:
            assert internal(await worker.report(token(), WINDOW))


async def test_a_registry_that_is_not_loaded_yet(warehouse: str, fresh_redis: str) -> None:
    """A good token is not called invalid because this worker has only just started."""
    async with reporter(warehouse, fresh_redis, registry=lambda: None) as worker:
        assert internal(await worker.report(token(), WINDOW))
        assert (await worker.report("x", WINDOW)).status == 401


def test_token_issue(database: str, tmp_path: Path) -> None:
    asyncio.run(fill(database, {"ssp": list(SSPS.items())}))
    environ = {"SNAPBID_DATABASE_URL": database, "SNAPBID_JWT_SECRET": SECRET}
    issued = invoke({**environ, "SNAPBID_JWT_ISSUER": "us"}, "token", "issue", "acme")
    assert (issued.returncode, issued.stderr, issued.stdout.count("\n")) == (0, "", 1)
    assert check(issued.stdout.strip(), KEY, "us", NOW).sub == "acme"
    for ssp, rule in {
        "acme-eu": "is a variant of acme",
        "else": "'else' is not registered",
    }.items():
        refused = invoke(environ, "token", "issue", ssp)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert rule in refused.stderr
    environ["SNAPBID_JWT_SECRET"] = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7"
    refused = invoke(environ, "token", "issue", "acme")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("SNAPBID_JWT_SECRET cannot sign")


def test_token_issue_with_the_embedded_instances_secret(database: str, tmp_path: Path) -> None:
    asyncio.run(fill(database, {"ssp": list(SSPS.items())}))
    environ = {"SNAPBID_HOME": str(tmp_path / "home")}
    refused = run(environ, "token", "issue", "acme")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(
        "SNAPBID_JWT_SECRET is not set and no embedded instance is running"
    )
    with Home(tmp_path / "home") as home:
        running = {"DATABASE_URL": database, "JWT_SECRET": SECRET, "JWT_ISSUER": "embedded"}
        home.announce({f"SNAPBID_{name}": value for name, value in running.items()})
        issued = run(environ, "token", "issue", "acme")
        assert check(issued.stdout.strip(), KEY, "embedded", NOW).sub == "acme"
        issued = run({**environ, "SNAPBID_JWT_ISSUER": "us"}, "token", "issue", "acme")
        assert check(issued.stdout.strip(), KEY, "us", NOW).sub == "acme"


@contextlib.asynccontextmanager
async def client_of(url: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = connect(url)
    try:
        yield client
    finally:
        await client.aclose()


@contextlib.contextmanager
def frozen(server: Postgres) -> Iterator[None]:
    """All processes of a server stopped, as by a machine that hangs."""
    assert server.process
    parent = server.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    pids = [parent, *map(int, children)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def _gone(client: redis.asyncio.Redis, key: str) -> bool:
    return not await client.exists(key)


async def _waits(connection: asyncpg.Connection, count: int) -> bool:
    waiting: int = await connection.fetchval(WAITING)
    assert waiting <= count
    return waiting == count


async def _limited(worker: Reporter) -> bool:
    reply = await worker.report(token(), WINDOW)
    return reply.headers.get("ratelimit", "").startswith('"token";r=9')


async def _answered(worker: Reporter, window: str) -> bool:
    return (await worker.report(token(), window)).status == 200
