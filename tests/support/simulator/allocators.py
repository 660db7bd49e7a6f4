"""A machine's allocator: the product's thread on the virtual loop, in a process of its own.

It moves the money of budgets between shards and delivers their outboxes, in the same rounds, and
knows budgets from the world's catalog instead of a catalog's file.
"""

from pathlib import Path
from typing import Final, Protocol

from snapbid.ledger.budgets.allocator import EscrowedBudget
from snapbid.ledger.budgets.releases import ReleaseWriter, releases_path
from snapbid.redisclient.connection import Connections
from snapbid.server.allocating import AllocatorThread
from support.simulator.entries import Campaign
from support.simulator.loop import VirtualLoop
from support.simulator.snapshot import Catalog, limits_of

ROUND_S: Final = 0.4  # rather than 0.1 s, which would be most of what a run takes


class Trade(Protocol):
    """A world. `campaigns`: all that there ever were, by name."""

    loop: VirtualLoop
    catalog: Catalog
    campaigns: dict[str, Campaign]
    shards: int
    start_s: float


class Budgets:
    """A stand-in for `BudgetBook`."""

    def __init__(self, trade: Trade) -> None:
        self._trade = trade
        self._known: Catalog | None = None

    def news(self) -> list[int]:
        """All campaigns if the catalog has changed since the last call, else none."""
        if self._trade.catalog == self._known:
            return []
        self._known = self._trade.catalog
        return sorted(self._known.campaigns.values())

    def of(self, number: int, now: float) -> EscrowedBudget | None:
        trade = self._trade
        names = [name for name, other in trade.catalog.campaigns.items() if other == number]
        campaign = trade.campaigns[names[0]] if names else None
        if campaign is None or (campaign.daily, campaign.total) == (None, None):
            return None
        limits = limits_of(campaign, number, trade.shards, trade.start_s)
        assert limits is not None
        grows = campaign.is_even and campaign.daily is not None
        return EscrowedBudget(number, limits.periods(int(now)), campaign.cpm, grows)


class Allocator(AllocatorThread):
    """A machine's allocator; `work` is what its thread does."""

    def __init__(self, url: str, trade: Trade, folder: Path) -> None:
        self._connections = Connections(url)
        self._shards = trade.shards
        self._writer = ReleaseWriter(releases_path(folder))
        self._own = Budgets(trade)
        self._book = self._own  # type: ignore[assignment]
        self._requested = set()
        self._fresh = {}
        self._unknown = {}
        self._unavailable = set()
        self._ahead_s = 0.0
        self._loop = trade.loop

    async def work(self) -> None:
        await self._work()

    async def _follow_catalog(self) -> None:
        self._fresh |= dict.fromkeys(self._own.news(), 0.0)
