"""Close the drain's warehouse connection once no server process is working on its statement.

A connection may fall silent without either side noticing: a message announces more bytes than
follow, or a middlebox stops forwarding. To the drain that looks like a slow statement. TCP
keepalives cannot tell the two apart as long as the peer's kernel, or a proxy, answers them, and
asyncpg's `command_timeout` must allow for statements that are really slow (60 s). So the drain asks
the warehouse over a second connection what the server process of the first one is doing. If twice
in a row that process is waiting for its client or is gone, or the warehouse does not answer, the
first connection is closed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

import asyncpg

from snapbid.warehouse.unavailable import UNAVAILABLE, apply, brief_session

PATIENCE_S: Final = 2.0  # before a statement is looked at
LOOK_S: Final = 1.0  # between looks
ASK_S: Final = 2.0  # for an answer to a look
APPLICATION: Final = "snapbid drain"

_WORKS: Final = """
    select state = 'active' and wait_event_type is distinct from 'Client'
    from pg_stat_activity where pid = $1 and application_name = $2
"""
_END: Final = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where pid = $1 and application_name = $2
"""

logger = logging.getLogger(__name__)


class WatchedConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that knows its server process's id, and when its pending statement was sent."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.asked_at: float | None = None
        self.server_process = 0
        self._quiet_since = monotonic()

    async def keep_alive(self, every_s: float) -> None:
        """Send a statement if there was none for `every_s`, since the server ends idle sessions."""
        if monotonic() - self._quiet_since >= every_s:
            await self.fetchval("select 1")

    async def _waiting(self, answer: Any) -> Any:
        self.asked_at = monotonic()
        try:
            return await answer
        finally:
            self.asked_at = None
            self._quiet_since = monotonic()

    async def execute(self, *args: Any, **more: Any) -> Any:
        return await self._waiting(super().execute(*args, **more))

    async def fetch(self, *args: Any, **more: Any) -> Any:
        return await self._waiting(super().fetch(*args, **more))

    async def fetchrow(self, *args: Any, **more: Any) -> Any:
        return await self._waiting(super().fetchrow(*args, **more))

    async def fetchval(self, *args: Any, **more: Any) -> Any:
        return await self._waiting(super().fetchval(*args, **more))


async def connect(
    dsn: str, within_s: float, settings: Mapping[str, str], **more: Any
) -> WatchedConnection:
    """Open a connection to watch, with `settings`; `more` is passed to asyncpg's `connect`."""
    connection: WatchedConnection
    async with asyncio.timeout(within_s):
        connection = await asyncpg.connect(dsn, connection_class=WatchedConnection, **more)
        await apply(connection, settings)
        try:
            # Behind a pooler, the protocol names another process.
            connection.server_process = await connection.fetchval("select pg_backend_pid()")
        except BaseException:
            connection.terminate()
            raise
    return connection


async def watch(connection: WatchedConnection, dsn: str) -> None:
    """Close the connection once the server no longer works on a statement sent over it."""
    pid, doubtful = connection.server_process, None
    while True:
        await asyncio.sleep(LOOK_S)
        asked_at = connection.asked_at
        if asked_at is None or monotonic() - asked_at < PATIENCE_S or await _works(dsn, pid):
            doubtful = None
        elif doubtful is None:
            doubtful = asked_at
        elif doubtful == connection.asked_at:
            logger.warning(
                "closed the warehouse connection served by process %(server_pid)d: the process is"
                " not working on the drain's statement; reconnecting",
                {"server_pid": pid},
            )
            with contextlib.suppress(*UNAVAILABLE):
                await _ask(dsn, _END, pid)  # it holds the drain's leases for as long as it waits
            connection.terminate()
            return


async def _works(dsn: str, pid: int) -> bool:
    """Return whether a server process is working on a statement.

    False if the warehouse does not answer, True if it answers with an error.
    """
    try:
        return bool(await _ask(dsn, _WORKS, pid))
    except asyncpg.PostgresError:  # too many connections, say
        return True
    except UNAVAILABLE:
        return False


async def _ask(dsn: str, question: str, pid: int) -> Any:
    async with brief_session(dsn, ASK_S) as connection:
        return await connection.fetchval(question, pid, APPLICATION)
