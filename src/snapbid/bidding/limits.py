"""Replacement of bids that the ledger refuses.

The ledger checks budgets and caps in the same round trip in which it stores the bids. A refused bid
is replaced with one of the next best campaign, unless it was refused because another SSP already
has a bid on the impression. A campaign that is out of budget stays refused until `reactivation`
lets it bid again.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from operator import itemgetter
from time import thread_time
from typing import TYPE_CHECKING, Final, Protocol

from snapbid.bidding._response import ledger_bids as ledger_bids
from snapbid.bidding.bounds import REPLACING
from snapbid.bidding.cost import cost_of
from snapbid.bidding.reasons import Reason
from snapbid.bidding.request import Imp
from snapbid.bidding.response import MAX_ANSWER, Bid, ResponseWriter
from snapbid.ledger.bids.records import BidVerdict, LedgerBid

if TYPE_CHECKING:  # types of the bid path, which imports this module
    from snapbid.bidding._bid_path import Choice, Proposal
    from snapbid.bidding.snapshot import CatalogSnapshot
    from snapbid.catalog.catalog import Query

Best = tuple[int, int, int]  # what `Query.next` returns

ATTEMPTS: Final = 5  # round trips for one request
_NOT_OF_BUDGETS: Final = (
    BidVerdict.OVER_CAP,
    BidVerdict.CAPS_UNAVAILABLE,
    BidVerdict.OVER_SHARE,
    BidVerdict.OVER_SUM,
)


class RemembersBids(Protocol):
    """The part of the ledger that remembers bids; see `ledger.bids.ledger.Ledger`."""

    def remember(
        self,
        auction_id: bytes,
        ssp: int,
        bids: list[LedgerBid],
        user: str | None,
        within_s: float,
        counted: bool = False,
    ) -> Awaitable[str] | None: ...

    def look(
        self, auction_id: bytes, bids: list[LedgerBid], user: str | None, within_s: float
    ) -> Awaitable[str]: ...

    def when_certain(self, then: Callable[[], object]) -> None: ...

    def shard_of(self, auction_id: bytes) -> int: ...


def affordable(
    best: Best | None, query: "Query", quantity: float, snapshot: "CatalogSnapshot", ssp: str
) -> Best | None:
    """Return the first campaign, starting with `best`, that may have budget for a bid.

    `quantity`: the number of impressions that the bid pays for. None if the search finds no such
    campaign.
    """
    while best is not None:
        rank = best[0]
        if not snapshot.is_refused_by_all(
            rank, cost_of(snapshot.catalog.index.price(rank), quantity), ssp
        ):
            break
        best = query.next()
    return best


async def replace_refused(
    writer: ResponseWriter,
    ledger: RemembersBids,
    ssp: int,
    ssp_id: str,
    auction: bytes,
    proposal: "Proposal",
    snapshot: "CatalogSnapshot",
    verdicts: str,
    left_s: Callable[[], float],
    test: bool,
) -> list[Bid] | Reason:
    """Replace refused bids; return the accepted ones in impression order, or the reason for no bid.

    `ssp`, `auction`: the SSP `ssp_id` and the auction, as the ledger identifies them;
    `verdicts`: the ledger's verdicts on the proposal. A request takes at most `ATTEMPTS` round
    trips, including the one already made. Replacing stops earlier if the time (`left_s`) or the
    processor time for replacements is used up. Replacements too long for the answer are dropped.
    With `test`, the ledger only gives its verdicts on replacements, and remembers none.
    """
    user = proposal.decision.user
    replacements = _Replacements(writer, proposal, snapshot, ledger.shard_of(auction), ssp_id)
    processor_s = REPLACING * proposal.processor_s
    choices, pending = list(proposal.choices), list(enumerate(proposal.bids))
    kept: list[tuple[int, Bid]] = []
    for attempt in range(ATTEMPTS):
        retries: list[tuple[int, Bid]] = []
        replacements.release(
            choices[position]
            for (position, _), verdict in zip(pending, verdicts, strict=True)
            if verdict != BidVerdict.KEPT
        )
        began = thread_time()
        proposal.decision.query.allow(left_s(), processor_s)
        for (position, bid), verdict in zip(pending, verdicts, strict=True):
            if verdict == BidVerdict.KEPT:
                kept.append((position, bid))
                continue
            if verdict == BidVerdict.TAKEN:
                continue
            out_of_money = verdict not in _NOT_OF_BUDGETS
            choice = replacements.replace(choices[position], out_of_money=out_of_money)
            if choice is not None:
                replacement = proposal.decision.bid_of(choice)
                if replacements.fits_answer(bid, replacement):
                    choices[position] = choice
                    retries.append((position, replacement))
                else:
                    replacements.release([choice])
        processor_s -= thread_time() - began
        if not retries or attempt == ATTEMPTS - 1:
            break
        pending = retries
        bids = ledger_bids(bid for _, bid in pending)
        if test:
            verdicts = await ledger.look(auction, bids, user, left_s())
        else:
            pending_verdicts = ledger.remember(auction, ssp, bids, user, left_s(), bool(kept))
            verdicts = "" if pending_verdicts is None else await pending_verdicts
        if not verdicts:
            if not kept:
                return Reason.LATE
            break
    if not kept:
        return _reason(verdicts)
    kept.sort(key=itemgetter(0))
    return [bid for _, bid in kept]


def without_refused(bids: list[Bid], verdicts: str) -> list[Bid] | Reason:
    """Drop refused bids without replacing them; if none is left, return the reason for no bid."""
    kept = [bid for bid, verdict in zip(bids, verdicts, strict=True) if verdict == BidVerdict.KEPT]
    return kept or _reason(verdicts)


def _reason(verdicts: str) -> Reason:
    return Reason.TAKEN if set(verdicts) == {BidVerdict.TAKEN} else Reason.LIMITED


class _Replacements:
    """Replacements for refused choices: the next best campaigns.

    For the last impression, the search continues where it stopped. For an earlier one, it starts
    over and skips the campaigns already tried: keeping a position for each impression would slow
    down every request for the sake of rare refusals. In a pod, the search always starts over,
    because the available advertisers may have changed.
    """

    def __init__(
        self,
        writer: ResponseWriter,
        proposal: "Proposal",
        snapshot: "CatalogSnapshot",
        shard: int,
        ssp: str,
    ) -> None:
        self._length = partial(writer.length, proposal.auction_id)
        self._bytes_left: int | None = None  # a single bid is never too long
        if len(proposal.bids) > 1:
            self._bytes_left = MAX_ANSWER - sum(map(self._length, proposal.bids))
        self._decision = proposal.decision
        self._current: Imp | None = proposal.decision.last
        self._snapshot = snapshot
        self._shard = shard
        self._ssp = ssp
        self._tried: dict[str, set[int]] = {}

    def release(self, refused: "Iterable[Choice]") -> None:
        """Let the advertisers of refused choices bid on other impressions of the same pods."""
        pods = self._decision.pods
        if pods is not None:
            for choice in refused:
                pods.release(choice.imp)

    def replace(self, choice: "Choice", *, out_of_money: bool) -> "Choice | None":
        """Choose the impression's next best campaign; None if none is left, or if time is up.

        `out_of_money`: the ledger refused the choice because of the campaign's budget.
        """
        imp = choice.imp
        if out_of_money:
            self._snapshot.refuse(
                choice.rank, self._shard, self._cost(choice.rank, choice.quantity), self._ssp
            )
        tried = self._tried.setdefault(str(imp.id), set())
        tried.add(choice.rank)
        query = self._decision.query
        if not query.has_time():
            return None
        pods = self._decision.pods
        rivals = None if pods is None else pods.rivals(imp)
        if self._current is not imp or rivals is not None:
            self._current = imp if query.impression(imp, rivals) else None
        while (best := query.next()) is not None:
            rank = best[0]
            if rank not in tried and not self._snapshot.is_refused(
                rank, self._shard, self._cost(rank, choice.quantity), self._ssp
            ):
                if pods is not None:
                    pods.take(imp, self._snapshot.catalog.index.advertiser(rank))
                return choice.replaced_by(*best)
        return None

    def _cost(self, rank: int, quantity: float) -> int:
        return cost_of(self._snapshot.catalog.index.price(rank), quantity)

    def fits_answer(self, refused: Bid, bid: Bid) -> bool:
        """Return whether `bid` fits into the answer in place of `refused`.

        Updates the number of bytes left in the answer.
        """
        if self._bytes_left is None:
            return True
        room = self._bytes_left + self._length(refused)
        left = room - self._length(bid)
        has_room = left >= 0
        self._bytes_left = left if has_room else room
        return has_room
