"""The drain when its connection to the warehouse breaks in unusual ways, or hangs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from support.proxy import FaultProxy, Way
from support.stack import connected

from snapbid.base.tasks import end
from snapbid.drain import run, watch
from snapbid.drain.run import COUNTERS, Process
from snapbid.warehouse.unavailable import UNAVAILABLE

PATIENCE_S = 0.1


class Interrupted:
    """Rounds, the first of which fails."""

    def __init__(self, error: Exception, stopping: asyncio.Event) -> None:
        self._error = error
        self._stopping = stopping
        self.connections: list[asyncpg.Connection] = []

    async def begin(self) -> None: ...

    async def round(self, connection: asyncpg.Connection) -> int:
        self.connections.append(connection)
        if len(self.connections) == 1:
            raise self._error
        self._stopping.set()
        return 0


@pytest.mark.parametrize("kind", UNAVAILABLE)
async def test_a_connection_that_fails_is_replaced(database: str, kind: type[Exception]) -> None:
    """PostgreSQL was killed within an answer, and an InternalClientError ended the drain."""
    stopping = asyncio.Event()
    rounds = Interrupted(kind("another operation is in progress"), stopping)
    async with asyncio.timeout(30):
        await Process(COUNTERS, rounds, database, stopping, {}).run()
    first, second = rounds.connections[:2]
    assert first is not second


async def test_a_missing_certificate_is_named(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    stopping = asyncio.Event()
    error = RedisConnectionError("Error 2 connecting to h:1. No such file or directory.")
    url = "rediss://:hidden@h:1?ssl_ca_certs=/no/ca.pem"
    async with asyncio.timeout(30):
        await Process(
            COUNTERS, Interrupted(error, stopping), database, stopping, {}, redis_url=url
        ).run()
    assert caplog.messages == [
        "paused draining counters: Redis is unavailable (the file /no/ca.pem (ssl_ca_certs) does"
        " not exist or cannot be read); retrying"
    ]


class Asking:
    """Rounds of a statement each, until one is answered; `before` runs before the first."""

    def __init__(self, statement: str, stopping: asyncio.Event) -> None:
        self._statement = statement
        self._stopping = stopping
        self.ready, self.go_on = asyncio.Event(), asyncio.Event()
        self.connections: list[asyncpg.Connection] = []

    async def begin(self) -> None: ...

    async def round(self, connection: asyncpg.Connection) -> int:
        self.connections.append(connection)
        self.ready.set()
        await self.go_on.wait()
        async with connection.transaction():
            await connection.fetchval(self._statement)
        self._stopping.set()
        return 0


@pytest.fixture
async def wire(database: str) -> AsyncIterator[tuple[FaultProxy, str]]:
    """A proxy before the warehouse, and the DSN to use it."""
    folder = parse_qs(urlsplit(database).query)["host"][0]
    async with FaultProxy(Path(folder) / ".s.PGSQL.5432") as proxy:
        yield proxy, database.replace(quote(folder), quote(str(proxy.socket.parent)))
        await proxy.resume()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATIENCE_S", "LOOK_S"):
        monkeypatch.setattr(watch, name, PATIENCE_S)


def stall_requests(proxy: FaultProxy) -> None:
    """The server does not learn that the connection ended, and keeps the drain's lock."""
    proxy.stall(Way.REQUESTS, new=False)


def stall_answers(proxy: FaultProxy) -> None:
    proxy.stall(Way.ANSWERS, new=False)


def damage_request(proxy: FaultProxy) -> None:
    proxy.damage(Way.REQUESTS)


def damage_answer(proxy: FaultProxy) -> None:
    proxy.damage(Way.ANSWERS)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("spoil", [stall_requests, stall_answers, damage_request, damage_answer])
async def test_silent_connections_are_given_up(wire: tuple[FaultProxy, str], spoil: object) -> None:
    """In the soak figures waited up to 32 s, twice the timeout of a statement."""
    assert callable(spoil)
    proxy, dsn = wire
    stopping = asyncio.Event()
    rounds = Asking("select 1", stopping)
    async with asyncio.timeout(30):  # half of the statement's timeout
        running = asyncio.create_task(Process(COUNTERS, rounds, dsn, stopping, {}).run())
        await rounds.ready.wait()
        spoil(proxy)
        rounds.go_on.set()
        await running
    assert len(set(rounds.connections)) == 2


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("statement", ["select pg_sleep(1)", "lock table campaign"])
async def test_a_slow_statement_is_waited_for(
    database: str, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes ten times as long as a silent connection is tolerated."""
    monkeypatch.setattr(watch, "ASK_S", 20.0)  # a busy machine is not a silent warehouse
    stopping = asyncio.Event()
    rounds = Asking(statement, stopping)
    rounds.go_on.set()
    async with asyncio.timeout(30):
        async with connected(database) as other, other.transaction():
            await other.execute("lock table campaign")
            process = Process(COUNTERS, rounds, database, stopping, {})
            running = asyncio.create_task(process.run())
            await rounds.ready.wait()
            await asyncio.sleep(10 * PATIENCE_S)
        await running
    assert len(set(rounds.connections)) == 1


async def test_a_frozen_drain_does_not_block_others(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the soak a drain was stopped within a transaction, and a migration waited for it."""
    monkeypatch.setattr(run, "FROZEN_S", PATIENCE_S)

    class Freezing:
        async def begin(self) -> None: ...

        async def round(self, connection: asyncpg.Connection) -> int:
            async with connection.transaction():
                await connection.execute("lock table bid_daily")
                locked.set()
                await asyncio.Event().wait()
            return 0

    stopping, locked = asyncio.Event(), asyncio.Event()
    frozen = asyncio.create_task(Process(COUNTERS, Freezing(), database, stopping, {}).run())
    async with asyncio.timeout(30), connected(database) as other, other.transaction():
        await locked.wait()
        await other.execute("lock table bid_daily")
    await end(frozen)
