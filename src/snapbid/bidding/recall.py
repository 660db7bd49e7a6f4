"""Reactivation of campaigns that were out of budget and have headroom again."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from snapbid.base.beat import BEAT_S, left
from snapbid.base.tasks import end
from snapbid.bidding.snapshot import CatalogSnapshot

LISTEN_S: Final = 0.1  # plus ROUND_S of server/allocating.py: how soon a new budget takes effect
IDLE_S: Final = BEAT_S  # while no campaign is skipped
LATE_S: Final = 1.0  # after which no refusal older than an announcement is still in flight

logger = logging.getLogger("snapbid")

Announced = Sequence[tuple[int, int]] | None


class Recall:
    """A task that reactivates campaigns as the machine's reader announces them (`RoomReader.read`).

    Each announcement is applied a second time `LATE_S` later: a refusal from before it may reach
    the worker only then. `snapshot` returns the current snapshot.
    """

    def __init__(
        self, read: Callable[[], Announced], snapshot: Callable[[], CatalogSnapshot | None]
    ) -> None:
        self._read = read
        self._snapshot = snapshot
        self._again: deque[tuple[float, Announced]] = deque()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start listening; needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep_listening())

    async def stop(self) -> None:
        if self._task is not None:
            await end(self._task)

    def listen(self) -> None:
        """Reactivate the campaigns that have been announced since the last call."""
        now, rooms = asyncio.get_running_loop().time(), self._read()
        due = []
        if rooms is None or rooms:
            due.append(rooms)
            self._again.append((now + LATE_S, rooms))
        while self._again and self._again[0][0] <= now:
            due.append(self._again.popleft()[1])
        snapshot = self._snapshot()
        if snapshot is not None and snapshot.exhausted:
            for some in due:
                snapshot.reactivate(some)

    async def _keep_listening(self) -> None:
        while True:
            snapshot = self._snapshot()
            is_idle = snapshot is None or not snapshot.exhausted
            await asyncio.sleep(left(IDLE_S) if is_idle else LISTEN_S)
            try:
                self.listen()
            except Exception:
                logger.exception("reactivating campaigns with new headroom failed; trying again")
