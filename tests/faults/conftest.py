"""A Redis for each test, and a proxy before it.

own_redis  a Redis that the test may kill
store      a client that bypasses the proxy
proxy      between the ledger and that Redis
ledger     a ledger that reaches Redis through the proxy

no_heartbeats  ledgers send requests alone
"""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from support.proxy import FaultProxy
from support.remembered import looking, opened

from snapbid.embedded import Home, Redis
from snapbid.ledger.bids.ledger import Ledger


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow for a busy machine: longer timeouts for the ledgers of this process."""
    monkeypatch.setattr("snapbid.ledger.bids.shard.NOTICE_S", 2.0)
    monkeypatch.setattr("snapbid.ledger.bids.shard.STALL_S", 2.0)
    monkeypatch.setattr("snapbid.redisclient.replicas.WAIT_MS", 800)  # other clients wait 1 s


@pytest.fixture
def no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name it before the ledger, where a test holds back the next answer, which might else be a
    heartbeat's.
    """
    monkeypatch.setattr("snapbid.ledger.bids.shard.HEARTBEAT_S", 3600.0)


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="snapbid-faults-"))
        server = Redis(stack.enter_context(Home(Path(folder))))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def store(own_redis: Redis) -> Iterator[redis.Redis]:
    with looking(own_redis.url) as client:
        yield client


@pytest.fixture
async def proxy(own_redis: Redis) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(own_redis.socket) as proxy:
        yield proxy


@pytest.fixture
async def ledger(proxy: FaultProxy, tmp_path: Path) -> AsyncIterator[Ledger]:
    async with opened(proxy.redis_url, tmp_path / "spool") as ledger:
        yield ledger
        await proxy.resume()
