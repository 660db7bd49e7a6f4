"""A persistent connection to Redis, which reconnects whenever it ends."""

import asyncio
import logging
from typing import Final, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from snapbid.base.tasks import end
from snapbid.redisclient.connection import Connector
from snapbid.redisclient.nodes import is_moved
from snapbid.redisclient.wire import ClosedIdleError

RETRY_S: Final = (0.05, 0.1, 0.2, 0.4)

logger = logging.getLogger("snapbid")


class LinkUser(Protocol):
    """The user of a persistent connection."""

    async def prepare(self, connection: AbstractConnection) -> None:
        """Set up a new connection. Any exception ends the connection."""

    async def use(self, connection: AbstractConnection) -> None:
        """Use the connection until it ends; raise the reason."""

    def disconnected(self) -> None:
        """Handle the loss of the connection; also called if connecting failed."""


class Link:
    """Keeps a connection for its user until it is closed.

    If a node redirects to another, it connects there at once. `describe` begins the warning that is
    logged once per outage; the end of an idle connection that is replaced is none. `connect_s`
    bounds connecting and `prepare`.
    """

    def __init__(
        self,
        connect: Connector,
        user: LinkUser,
        describe: str,
        connect_s: float,
    ) -> None:
        self._connect = connect
        self._user = user
        self._describe = describe
        self._connect_s = connect_s
        self._task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether `open` was called."""
        return self._task is not None

    def open(self) -> None:
        """Start connecting; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Disconnect and stop."""
        if self._task is not None:
            await end(self._task)

    async def _run(self) -> None:
        failures, logged = 0, False
        while True:
            connection = self._connect()
            has_moved = False
            try:
                async with asyncio.timeout(self._connect_s):
                    await connection.connect()  # type: ignore[no-untyped-call]
                    await self._user.prepare(connection)
                failures, logged = 0, False
                await self._user.use(connection)
            except (RedisError, OSError, EOFError) as error:  # TimeoutError is an OSError
                self._connect.doubt(error)
                has_moved = failures == 0 and is_moved(error)
                if not logged and not has_moved and not isinstance(error, ClosedIdleError):
                    logger.warning("%s: %s", self._describe, error or type(error).__name__)
                    logged = True
                failures += 1
            except Exception:
                logger.exception("%s", self._describe)
                failures += 1
            finally:
                self._user.disconnected()
                await connection.disconnect(nowait=True)
            if not has_moved:
                await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
