"""A ledger by itself, over a Redis that is empty when the test begins.

clock   what the ledger has for the time; a test may set it
ledger  connected
store   the same Redis, looked at from outside
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.remembered import NOON, Clock, looking, opened

from snapbid.ledger.ledger import Ledger


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about a Redis that is away: a busy machine may take its time."""
    monkeypatch.setattr("snapbid.ledger.ledger.NOTICE_S", 20.0)
    monkeypatch.setattr("snapbid.ledger.commit.STALL_S", 20.0)


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
