"""A name in SNAPBID_REDIS_URL that moves, and a proxy that ends idle connections.

Redis ends no connection when it is demoted, so those to the former primary stay open.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError, ResponseError
from support import sending
from support.cluster import Server, folder, until
from support.commands import invoke
from support.ops import bid, prepare
from support.partner import await_stored
from support.processes import eventually
from support.proxy import FaultProxy
from support.remembered import until as until_soon
from support.sending import SINGLE, event
from support.stack import Stack, draining

from snapbid.redisclient import connection, pipelined
from snapbid.redisclient.pipelined import PipelinedRedis, script

COUNT: Final = "return redis.call('INCRBY', KEYS[1], 1)"
READ: Final = "return redis.call('GET', KEYS[1])"


class Pair:
    """A primary and its replica, and a proxy that leads to the primary."""

    def __init__(self, path: Path) -> None:
        self.primary, self.replica = Server(path), Server(path)
        self.proxy = FaultProxy((self.primary.host, self.primary.port))
        self.replica.call("REPLICAOF", self.primary.host, self.primary.port)
        until(lambda: self.replica.call("ROLE")[3] == "connected", "the replica is in sync")

    def promote(self) -> None:
        """Promote the replica once it has all writes."""
        until(lambda: self.replica.call("ROLE")[4] == self.primary.call("ROLE")[1], "all writes")
        self.replica.call("REPLICAOF", "NO", "ONE")

    def demote(self) -> None:
        """Promote the replica; the former primary becomes its replica."""
        self.promote()
        self.primary.call("REPLICAOF", self.replica.host, self.replica.port)

    def move(self) -> None:
        """Have the name lead to the new primary."""
        self.proxy.redirect((self.replica.host, self.replica.port))

    def close(self) -> None:
        self.primary.close()
        self.replica.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with folder() as path, contextlib.closing(Pair(path)) as pair:
        yield pair


@pytest.fixture
async def proxy(pair: Pair) -> AsyncIterator[FaultProxy]:
    async with pair.proxy:
        yield pair.proxy


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[Redis]:
    client = connection.connect(proxy.redis_url)
    yield client
    await client.aclose()


@pytest.fixture
async def shared(proxy: FaultProxy) -> AsyncIterator[PipelinedRedis]:
    client = pipelined.connect(proxy.redis_url)
    assert isinstance(client, PipelinedRedis)
    await until_soon(lambda: client.calls.connected)
    yield client
    await client.aclose()


async def command(client: Redis) -> Any:
    return await client.incr("n")


async def run_script(client: Redis) -> Any:
    return await client.register_script(COUNT)(keys=["n"])


async def pipe(client: Redis) -> Any:
    async with client.pipeline(transaction=False) as pipe:
        pipe.incr("n")
        return (await pipe.execute())[0]


async def transaction(client: Redis) -> Any:
    async with client.pipeline(transaction=True) as pipe:
        pipe.incr("n")
        return (await pipe.execute())[0]


@pytest.mark.parametrize("count", [command, run_script, pipe, transaction])
async def test_a_pooled_client_leaves_a_demoted_primary(
    pair: Pair, client: Redis, count: Callable[[Redis], Awaitable[Any]]
) -> None:
    assert await count(client) == 1
    await asyncio.to_thread(pair.demote)
    pair.move()
    with pytest.raises(ResponseError):
        await count(client)
    assert await count(client) == 2


async def test_a_pooled_client_leaves_a_replica_without_its_primary(
    pair: Pair, client: Redis
) -> None:
    await client.set("n", 1)
    await asyncio.to_thread(pair.promote)
    pair.primary.call("CONFIG", "SET", "replica-serve-stale-data", "no")
    pair.primary.call("REPLICAOF", "127.0.0.1", 1)
    pair.move()
    with pytest.raises(ResponseError):
        await client.get("n")
    assert await client.get("n") == b"1"


async def test_script_calls_leave_a_demoted_primary(
    pair: Pair, shared: PipelinedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    count, read = script(shared, COUNT, 60.0), script(shared, READ, 60.0)
    assert await count(["n"], []) == 1
    await asyncio.to_thread(pair.demote)
    calls = await asyncio.gather(count(["n"], []), read(["n"], []), return_exceptions=True)
    assert isinstance(calls[0], ResponseError)
    assert calls[1] == b"1"
    await until_soon(lambda: not shared.calls.connected)
    for _ in range(3):  # the name still leads there
        with pytest.raises((ResponseError, ConnectionError)):
            await count(["n"], [])
        await asyncio.sleep(0.2)
    assert not shared.calls.connected
    assert len([each for each in caplog.messages if "script calls" in each]) == 1
    pair.move()
    assert await count(["n"], []) == 2  # at once, without the shared connection
    await until_soon(lambda: shared.calls.connected)
    assert await count(["n"], []) == 3


async def test_a_client_replaces_an_idle_connection_that_was_closed(
    client: Redis, proxy: FaultProxy
) -> None:
    for number in range(1, 4):
        assert await client.incr("n") == number
        proxy.cut()
        await asyncio.sleep(0.1)


async def test_a_machine_follows_the_name(
    pair: Pair, proxy: FaultProxy, database: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(_follow, pair, database, tmp_path)


def _follow(pair: Pair, database: str, home: Path) -> None:
    prepare(database)
    key = sending.issue(database, "casino", "igaming", rate=1_000_000)
    environ = {
        "SNAPBID_HOME": str(home),
        "SNAPBID_DATABASE_URL": database,
        "SNAPBID_REDIS_URL": pair.proxy.redis_url,
    }
    with contextlib.closing(Stack(environ)) as served, draining(served) as drain:
        served.start()
        sending.await_key(served.port, key)

        def status() -> str:
            own = {name: it for name, it in served.environ.items() if name.startswith("SNAPBID_")}
            return invoke(own, "status").stdout

        def sends(tag: str) -> bool:
            document = event("login", tag=tag)
            return sending.send(served.port, SINGLE, document, key).status == 202

        assert sends("before")
        await_stored(database, {"before"})
        eventually(lambda: bid(served, "before").status == 200, "a bid")
        pair.demote()
        eventually(lambda: "Redis refuses writes" in status(), f"the status, not {status()}")
        assert not sends("meanwhile")
        pair.move()
        eventually(lambda: sends("after"), f"events: {served.output}")
        eventually(lambda: bid(served, "after").status == 200, f"bids: {served.output}")
        await_stored(database, {"before", "after"})
        eventually(lambda: "resumed draining counters" in drain.output, drain.output)
        eventually(lambda: "Redis up" in status(), f"the status, not {status()}")
