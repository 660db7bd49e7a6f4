"""Bids of campaigns with budgets or caps: what the ledger refuses is replaced by the next best.

Whether there is money, and whether the user may see one more, is decided where the bid is
remembered, in the same round trip. A campaign without money is skipped from then on, until `Recall`
finds that there is some again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from snapbid.exchange.bid import Choice, Market, Proposal, Reason, bid_of
from snapbid.exchange.response import Bid
from snapbid.ledger.limits import Limits
from snapbid.tasks import end

ATTEMPTS: Final = 5  # round trips for one request
RECALL_S: Final = 0.25  # a fresh budget bids after so long

Limited = tuple[bytes, int, int, Limits | None]

logger = logging.getLogger("snapbid")


class Reserves(Protocol):
    """A ledger that remembers bids within limits; see `ledger.Ledger`."""

    def reserve(
        self,
        auction_id: bytes,
        ssp: int,
        bids: list[Limited],
        user: str | None,
        within_s: float,
        counted: bool,
    ) -> Awaitable[str] | None: ...

    async def look(
        self, auction_id: bytes, bids: list[Limited], user: str | None, within_s: float
    ) -> str: ...

    def shard_of(self, auction_id: bytes) -> int: ...


class Room(Protocol):
    """Tells which campaigns have money; see `ledger.budgets.Budgets`."""

    async def room(self, wanted: list[tuple[int, Limits]]) -> list[bool]: ...


def wanted(bids: Iterable[Bid]) -> list[Limited]:
    """The bids as the ledger takes them."""
    templates = [(bid.imp_id.encode(), bid.template) for bid in bids]
    return [(imp_id, of.number, of.price_micros, of.limits) for imp_id, of in templates]


async def replace_refused(
    ledger: Reserves,
    ssp: int,
    proposal: Proposal,
    market: Market,
    letters: str,
    left_s: Callable[[], float],
    test: bool,
) -> list[Bid] | Reason:
    """The bids that the ledger keeps, in the order of the impressions; or why there are none.

    `letters` are its verdicts on the proposal; refused bids are replaced by the next best, as often
    as `ATTEMPTS` and the time allow. `left_s` gives the time left. A `test` is looked at only.
    """
    auction, user = proposal.auction_id.encode(), proposal.decision.user
    refused = _Refused(proposal, market, ledger.shard_of(auction))
    choices, tried = list(proposal.choices), list(enumerate(proposal.bids))
    kept: list[tuple[int, Bid]] = []
    for attempt in range(ATTEMPTS):
        following: list[tuple[int, Bid]] = []
        for (place, bid), letter in zip(tried, letters, strict=True):
            if letter == "k":
                kept.append((place, bid))
                continue
            choice = refused.replace(choices[place], out_of_money=letter == "b")
            if choice is not None:
                choices[place] = choice
                following.append((place, bid_of(choice, market)))
        if not following or attempt == ATTEMPTS - 1:
            break
        tried = following
        bids = wanted(bid for _, bid in tried)
        if test:
            letters = await ledger.look(auction, bids, user, left_s())
        else:
            waiting = ledger.reserve(auction, ssp, bids, user, left_s(), bool(kept))
            letters = "" if waiting is None else await waiting
        if not letters:
            if not kept:
                return Reason.LATE
            break
    kept.sort(key=_place)
    return [bid for _, bid in kept] or Reason.LIMITED


def _place(kept: tuple[int, Bid]) -> int:
    return kept[0]


class _Refused:
    """Takes up the search where a choice was refused.

    The search of the last impression goes on where it stood. That of an earlier one is begun anew
    and passes over what was tried: a query has one place, and one for each impression would cost
    every request what only a refusal needs.
    """

    def __init__(self, proposal: Proposal, market: Market, shard: int) -> None:
        self._decision = proposal.decision
        self._at = proposal.decision.last
        self._market = market
        self._shard = shard
        self._tried: dict[str, set[int]] = {}

    def replace(self, choice: Choice, *, out_of_money: bool) -> Choice | None:
        """The next best campaign that is not known to be out of money."""
        imp = choice.imp
        if out_of_money:
            self._market.skip(choice.rank, self._shard)
        tried = self._tried.setdefault(str(imp.id), set())
        tried.add(choice.rank)
        query = self._decision.query
        if self._at is not imp:
            query.impression(imp)
            self._at = imp
        while (best := query.next()) is not None:
            if best[0] not in tried and not self._market.skips(best[0], self._shard):
                return Choice(imp, *best)
        return None


class Recall:
    """Lets campaigns bid again that have money again. `market` gives the one in use."""

    def __init__(self, room: Room, market: Callable[[], Market | None]) -> None:
        self._room = room
        self._market = market
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to look; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    async def stop(self) -> None:
        if self._task is not None:
            await end(self._task)

    async def look(self) -> None:
        """One look at the campaigns that are skipped."""
        market = self._market()
        if market is None or not market.refused:
            return
        waiting = market.waiting()
        found = await self._room.room([limits for _, limits in waiting])
        for (rank, _), has_room in zip(waiting, found, strict=False):  # none where Redis is away
            if has_room:
                market.resume(rank)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(RECALL_S)
            try:
                await self.look()
            except Exception:
                logger.exception("the campaigns without money could not be looked at")
