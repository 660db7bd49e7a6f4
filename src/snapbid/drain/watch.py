"""Whether the warehouse still works on what the drain has asked.

A wire may fall silent so that neither side notices: a length announces more than what comes, or a
network passes nothing any more. To who waits, that looks like a statement that is slow. So the
warehouse is asked over another connection what the first one's server process does; that it waits
for its client, too, or is gone, or that nobody answers, twice in a row, ends the first one.
"""

import asyncio
import contextlib
import logging
from time import monotonic
from typing import Any, Final

import asyncpg

from snapbid.warehouse.away import AWAY

PATIENCE_S: Final = 2.0  # with a statement, before anybody looks
LOOK_S: Final = 1.0  # between looks
ASK_S: Final = 2.0  # for a look
APPLICATION: Final = "snapbid drain"

_WORKS: Final = """
    select state = 'active' and wait_event_type is distinct from 'Client'
    from pg_stat_activity where pid = $1 and application_name = $2
"""
_END: Final = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where pid = $1 and application_name = $2
"""

logger = logging.getLogger("snapbid")


class Connection(asyncpg.Connection):  # type: ignore[misc]
    """One that knows since when it waits for an answer, and who gives it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.asked_at: float | None = None
        self.server_process = 0

    async def _waiting(self, answer: Any) -> Any:
        self.asked_at = monotonic()
        try:
            return await answer
        finally:
            self.asked_at = None

    async def execute(self, *args: Any, **more: Any) -> Any:
        return await self._waiting(super().execute(*args, **more))

    async def fetch(self, *args: Any, **more: Any) -> Any:
        return await self._waiting(super().fetch(*args, **more))

    async def fetchrow(self, *args: Any, **more: Any) -> Any:
        return await self._waiting(super().fetchrow(*args, **more))

    async def fetchval(self, *args: Any, **more: Any) -> Any:
        return await self._waiting(super().fetchval(*args, **more))


async def connect(dsn: str, within_s: float, **more: Any) -> Connection:
    """A connection to watch; the rest as asyncpg's `connect` takes it."""
    connection: Connection
    async with asyncio.timeout(within_s):
        connection = await asyncpg.connect(dsn, connection_class=Connection, **more)
        try:
            # Behind a pooler it is not the one that the protocol told.
            connection.server_process = await connection.fetchval("select pg_backend_pid()")
        except BaseException:
            connection.terminate()
            raise
    return connection


async def watch(connection: Connection, dsn: str) -> None:
    """Look until a statement is found that nobody works on; end the connection then."""
    pid, doubtful = connection.server_process, None
    while True:
        await asyncio.sleep(LOOK_S)
        asked_at = connection.asked_at
        if asked_at is None or monotonic() - asked_at < PATIENCE_S or await _works(dsn, pid):
            doubtful = None
        elif doubtful is None:
            doubtful = asked_at
        elif doubtful == connection.asked_at:
            logger.warning("the warehouse works on nothing and does not answer: connecting anew")
            with contextlib.suppress(*AWAY):
                await _ask(dsn, _END, pid)  # it holds the drain's place for as long as it waits
            connection.terminate()
            return


async def _works(dsn: str, pid: int) -> bool:
    """Whether a server process works, as far as is known."""
    try:
        return bool(await _ask(dsn, _WORKS, pid))
    except asyncpg.PostgresError:  # it has too many connections, say
        return True
    except AWAY:
        return False


async def _ask(dsn: str, question: str, pid: int) -> Any:
    async with asyncio.timeout(ASK_S):
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(question, pid, APPLICATION)
        finally:
            connection.terminate()
