"""Renews the demand signals when campaigns or SSPs have changed, in a process of its own."""

import asyncio
import contextlib
import logging
import os
import sys
from time import monotonic
from typing import Final

import asyncpg

from snapbid.base.settings import without_settings
from snapbid.base.tasks import end
from snapbid.warehouse import demand

LOOK_EVERY_S: Final = 5.0
RENEW_EVERY_S: Final = 600.0  # campaigns start and end, too

logger = logging.getLogger("snapbid")


class DemandMaker:
    """Makes the signals of the warehouse at `dsn`."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._looked_at = monotonic()  # a drain that has just come has other things to do first
        self._due_at = self._made_at = float("-inf")
        self._made: str | None = None
        self._making: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Make them anew; what is being made is given up."""
        if self._making is not None:
            await end(self._making)
            self._making = None
        self._made = None

    async def round(self, connection: asyncpg.Connection) -> int:
        """Begin to make the signals if they are due; returns whether."""
        now = monotonic()
        if now - self._looked_at < LOOK_EVERY_S or now < self._due_at:
            return 0
        if self._making is not None and not self._making.done():
            return 0
        self._looked_at = now
        state = await demand.fetch_state(connection)
        if state == self._made and now - self._made_at < RENEW_EVERY_S:
            return 0
        self._made, self._made_at = state, now
        self._making = asyncio.create_task(self._make(now))
        return 1

    async def _make(self, started: float) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "snapbid.partners.demand"),
            stdin=asyncio.subprocess.PIPE,  # stays open: the child exits when we do
            env=without_settings(os.environ),
            start_new_session=True,  # Ctrl-C is for its parent
        )
        assert process.stdin is not None
        try:
            process.stdin.write(self._dsn.encode() + b"\n")
            status = await process.wait()
            if status:
                logger.warning("demand signals could not be made (status %d)", status)
                self._made = None
        finally:
            process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()  # or Python 3.13 complains of the loop's end
            self._due_at = 2 * monotonic() - started  # it takes at most half of the time
