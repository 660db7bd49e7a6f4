"""One connection to Redis that is kept up: made, used, and made again whenever it ends."""

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
    """What a connection is kept up for."""

    async def prepare(self, connection: AbstractConnection) -> None:
        """Do what a new connection needs first. What it raises ends the connection."""

    async def use(self, connection: AbstractConnection) -> None:
        """Use the connection until it ends; raise how it did."""

    def disconnected(self) -> None:
        """Take note that the connection is gone; also called when none could be made."""


class Link:
    """Connects for its user, again and again, until it is closed.

    Where a node says that another one is to be asked now, that is connected to at once. `describe`
    begins the warning that is logged once for each time that Redis is away, which it is not where a
    connection ended idle and the next one is made;
    `connect_s` is how long connecting and `prepare` may take.
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
        """Start to connect; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Disconnect and stop."""
        if self._task is not None:
            await end(self._task)

    async def _run(self) -> None:
        failures, told = 0, False
        while True:
            connection = self._connect()
            has_moved = False
            try:
                async with asyncio.timeout(self._connect_s):
                    await connection.connect()  # type: ignore[no-untyped-call]
                    await self._user.prepare(connection)
                failures, told = 0, False
                await self._user.use(connection)
            except (RedisError, OSError, EOFError) as error:  # TimeoutError is an OSError
                self._connect.doubt(error)
                has_moved = failures == 0 and is_moved(error)
                if not told and not has_moved and not isinstance(error, ClosedIdleError):
                    logger.warning("%s: %s", self._describe, error or type(error).__name__)
                    told = True
                failures += 1
            except Exception:
                logger.exception("%s", self._describe)
                failures += 1
            finally:
                self._user.disconnected()
                await connection.disconnect(nowait=True)
            if not has_moved:
                await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
