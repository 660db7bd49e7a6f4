"""Lets campaigns that were out of budget bid again, once there is some."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from snapbid.base.beat import BEAT_S, left
from snapbid.base.tasks import end
from snapbid.bidding.snapshot import CatalogSnapshot

LISTEN_S: Final = 0.1  # with ROUND_S of server/allocating.py, within which a new budget bids
REST_S: Final = BEAT_S  # while no campaign is skipped
LATE_S: Final = 1.0  # after which no refusal from before an announcement is under way

logger = logging.getLogger("snapbid")

Announced = Sequence[tuple[int, int]] | None


class Recall:
    """Hears again and again what one reader of the machine announces; see `RoomReader.read`.

    What was announced counts once more a little later: a bid that was refused before may be told
    to the worker only then. `snapshot` returns the current snapshot.
    """

    def __init__(
        self, read: Callable[[], Announced], snapshot: Callable[[], CatalogSnapshot | None]
    ) -> None:
        self._read = read
        self._snapshot = snapshot
        self._again: deque[tuple[float, Announced]] = deque()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start listening; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep_listening())

    async def stop(self) -> None:
        if self._task is not None:
            await end(self._task)

    def listen(self) -> None:
        """Let bid again what has room by now."""
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
                snapshot.make_room(some)

    async def _keep_listening(self) -> None:
        while True:
            snapshot = self._snapshot()
            is_at_rest = snapshot is None or not snapshot.exhausted
            await asyncio.sleep(left(REST_S) if is_at_rest else LISTEN_S)
            try:
                self.listen()
            except Exception:
                logger.exception("campaigns that have budget again could not be told")
