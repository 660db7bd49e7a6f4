"""Rebuild the demand signals in a child process when campaigns or SSPs have changed."""

import asyncio
import logging
from time import monotonic
from typing import Final

import asyncpg

from snapbid.base.child import run_child
from snapbid.base.tasks import end
from snapbid.warehouse import demand

LOOK_EVERY_S: Final = 5.0
MODULE: Final = "snapbid.partners.demand.making"
RENEW_EVERY_S: Final = 600.0  # campaigns also start and end as time passes

logger = logging.getLogger(__name__)


class DemandBuilder:
    """Starts a rebuild of the demand signals in the warehouse at `dsn` whenever one is due."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._looked_at = monotonic()  # a drain that has just started has other things to do first
        self._due_at = self._built_at = float("-inf")
        self._built: str | None = None
        self._building: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Cancel any build in progress; the next round starts a new one."""
        if self._building is not None:
            await end(self._building)
            self._building = None
        self._built = None

    async def round(self, connection: asyncpg.Connection) -> int:
        """Start a build if one is due; return 1 if one was started, else 0."""
        now = monotonic()
        if now - self._looked_at < LOOK_EVERY_S or now < self._due_at:
            return 0
        if self._building is not None and not self._building.done():
            return 0
        self._looked_at = now
        state = await demand.fetch_state(connection)
        if state == self._built and now - self._built_at < RENEW_EVERY_S:
            return 0
        self._built, self._built_at = state, now
        self._building = asyncio.create_task(self._build(now))
        return 1

    async def _build(self, started: float) -> None:
        try:
            status, _ = await run_child(MODULE, self._dsn.encode())
            if status:
                logger.warning(
                    "failed to build demand signals: exit status %(status)d; retrying",
                    {"status": status},
                )
                self._built = None
        finally:
            self._due_at = 2 * monotonic() - started  # builds take at most half of the time
