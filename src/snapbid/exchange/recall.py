"""Lets campaigns that were out of budget bid again, once there is some."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from snapbid.exchange.market import Market
from snapbid.ledger.limits import Limits
from snapbid.tasks import end

RECALL_S: Final = 0.25  # a new budget bids within this time
LISTEN_S: Final = 0.05
LATE_S: Final = 1.0  # after which no refusal from before an announcement is under way

logger = logging.getLogger("snapbid")


class BudgetSource(Protocol):
    """Tells which campaigns have budget left; see `ledger.budgets.Budgets`."""

    async def has_money(self, bids: list[tuple[int, Limits]]) -> list[bool]: ...


class Recalling:
    """Looks again and again; `market` returns the current market."""

    every_s: float

    def __init__(self, market: Callable[[], Market | None]) -> None:
        self._market = market
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start looking; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    async def stop(self) -> None:
        if self._task is not None:
            await end(self._task)

    async def look(self) -> None:
        """Look once."""
        raise NotImplementedError

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self.every_s)
            try:
                await self.look()
            except Exception:
                logger.exception("the budgets of skipped campaigns could not be checked")


class Recall(Recalling):
    """Asks the ledger for those that are skipped."""

    every_s = RECALL_S

    def __init__(self, budgets: BudgetSource, market: Callable[[], Market | None]) -> None:
        super().__init__(market)
        self._budgets = budgets

    async def look(self) -> None:
        market = self._market()
        if market is None or not market.exhausted:
            return
        skipped = market.skipped()
        have_budget = await self._budgets.has_money([limits for _, limits in skipped])
        # Redis may be away: then the answer is empty.
        for (rank, _), has_budget in zip(skipped, have_budget, strict=False):
            if has_budget:
                market.resume(rank)


Announced = Sequence[tuple[int, int]] | None


class AnnouncedRecall(Recalling):
    """Hears what the machine's banker announces, whatever is skipped; see `RoomReader.read`.

    What was announced counts once more a little later: a bid that was refused before may be told
    to the worker only then.
    """

    every_s = LISTEN_S

    def __init__(self, read: Callable[[], Announced], market: Callable[[], Market | None]) -> None:
        super().__init__(market)
        self._read = read
        self._again: deque[tuple[float, Announced]] = deque()

    async def look(self) -> None:
        now, rooms = asyncio.get_running_loop().time(), self._read()
        due = [rooms]
        if rooms is None or rooms:
            self._again.append((now + LATE_S, rooms))
        while self._again and self._again[0][0] <= now:
            due.append(self._again.popleft()[1])
        market = self._market()
        if market is not None and market.exhausted:
            for some in due:
                market.make_room(some)
