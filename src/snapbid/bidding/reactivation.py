"""Reactivation of refused campaigns that have headroom again."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from snapbid.base.beat import BEAT_S, left
from snapbid.base.tasks import end
from snapbid.bidding.snapshot import CatalogSnapshot

READ_S: Final = 0.1  # plus ROUND_S of server/allocating.py: how soon a new budget takes effect
IDLE_S: Final = BEAT_S  # while no campaign is refused
LATE_S: Final = 1.0  # by then, no refusal older than a release is still in flight

logger = logging.getLogger(__name__)

Releases = Sequence[tuple[int, int]] | None  # None: some were missed


class Reactivation:
    """A task that reactivates campaigns as their releases are published (`ReleaseReader.read`).

    Each release is applied again `LATE_S` later, since the worker may learn of an earlier refusal
    only after the release. `snapshot` returns the current snapshot.
    """

    def __init__(
        self, read: Callable[[], Releases], snapshot: Callable[[], CatalogSnapshot | None]
    ) -> None:
        self._read = read
        self._snapshot = snapshot
        self._again: deque[tuple[float, Releases]] = deque()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task; requires a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep_applying())

    async def stop(self) -> None:
        if self._task is not None:
            await end(self._task)

    def apply(self) -> None:
        """Reactivate the campaigns that have been released since the last call."""
        now, releases = asyncio.get_running_loop().time(), self._read()
        due = []
        if releases is None or releases:
            due.append(releases)
            self._again.append((now + LATE_S, releases))
        while self._again and self._again[0][0] <= now:
            due.append(self._again.popleft()[1])
        snapshot = self._snapshot()
        if snapshot is not None and snapshot.refused:
            for some in due:
                snapshot.reactivate(some)

    async def _keep_applying(self) -> None:
        while True:
            snapshot = self._snapshot()
            is_idle = snapshot is None or not snapshot.refused
            await asyncio.sleep(left(IDLE_S) if is_idle else READ_S)
            try:
                self.apply()
            except Exception:
                logger.exception("failed to reactivate released campaigns; retrying")
