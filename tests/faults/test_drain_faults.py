"""The drain when its connection to the warehouse ends in unusual ways."""

import asyncio

import asyncpg
import pytest

from snapbid.drain.run import COUNTERS, Process
from snapbid.warehouse.away import AWAY


class Interrupted:
    """Rounds of which the first fails."""

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


@pytest.mark.parametrize("kind", AWAY)
async def test_a_connection_that_fails_is_replaced(database: str, kind: type[Exception]) -> None:
    """Seen when PostgreSQL was killed amid an answer: an InternalClientError ended the drain."""
    stopping = asyncio.Event()
    rounds = Interrupted(kind("another operation is in progress"), stopping)
    async with asyncio.timeout(30):
        await Process(COUNTERS, rounds, database, stopping).run()
    first, second = rounds.connections[:2]
    assert first is not second
