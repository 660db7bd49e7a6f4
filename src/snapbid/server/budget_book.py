"""Budgets of the catalog's campaigns, by campaign number."""

from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

import msgspec

from snapbid.campaigns.campaign import Budget
from snapbid.catalog.catalog import Base, Catalog
from snapbid.ledger.budgets.allocator import EscrowedBudget
from snapbid.ledger.budgets.limits import Limits


class BudgetTerms(NamedTuple):
    """The values from which a campaign's budget is computed."""

    price: int
    budget: Budget
    since_ms: int


class _Payload(msgspec.Struct, frozen=True, array_like=True):
    """A CampaignPayload that decodes only the fields needed here."""

    cid: str
    number: int
    adomain: msgspec.Raw
    seat: msgspec.Raw
    cat: msgspec.Raw
    creatives: msgspec.Raw
    budget: Budget
    caps: msgspec.Raw
    since_ms: int


_decoder: Final = msgspec.json.Decoder(_Payload)


class BudgetBook:
    """Looks up a campaign's budget in the latest catalog, by campaign number."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._of_base: Base | None = None
        self._base_ranks = array("Q")  # number << 32 | rank, ascending
        self._ranks: dict[int, int] = {}  # in the overlay
        self._terms: dict[int, BudgetTerms] = {}

    def take_up(self, catalog: Catalog) -> list[int]:
        """Switch to a catalog; return the campaigns with new or changed budgets.

        In the first catalog, every budget counts as new. A later base adds nothing to the result,
        since its changes were already in overlays.
        """
        index, base, news = catalog.index, catalog.base, list[int]()
        overlaid = 0 if base is None else base.campaigns
        if base != self._of_base:
            ranks = [
                payload.number << 32 | rank
                for rank in range(overlaid)
                if _has_limit((payload := _decoder.decode(index.payload(rank))).budget)
            ]
            self._base_ranks = array("Q", sorted(ranks))
            if self._catalog is None:
                news += (each >> 32 for each in ranks)
        ranks_of, terms_of = {}, {}
        for rank in range(overlaid, len(index)):
            payload = _decoder.decode(index.payload(rank))
            if _has_limit(payload.budget):
                terms = BudgetTerms(index.price(rank), payload.budget, payload.since_ms)
                ranks_of[payload.number], terms_of[payload.number] = rank, terms
                if self._terms.get(payload.number) != terms:
                    news.append(payload.number)
        self._catalog, self._of_base = catalog, base
        self._ranks, self._terms = ranks_of, terms_of
        return news

    def _rank(self, number: int) -> int | None:
        rank = self._ranks.get(number)
        if rank is None:
            index = bisect_left(self._base_ranks, number << 32)
            if index < len(self._base_ranks) and self._base_ranks[index] >> 32 == number:
                return self._base_ranks[index] & 0xFFFFFFFF
        return rank

    def of(self, number: int, now: float) -> EscrowedBudget | None:
        """Return a campaign's budget at `now` (epoch s).

        Returns None if the campaign has no budget or is deleted.
        """
        rank = self._rank(number)
        if self._catalog is None or rank is None:
            return None
        index = self._catalog.index
        payload = _decoder.decode(index.payload(rank))
        if index.rank(payload.cid) != rank:  # the overlay has replaced or removed it
            return None
        budget, price = payload.budget, index.price(rank)
        is_even = budget.pacing == "even"
        limits = Limits(
            number,
            budget.daily_micros,
            budget.total_micros,
            payload.since_ms if is_even else None,
            in_escrow=True,
        )
        grows = is_even and budget.daily_micros is not None
        return EscrowedBudget(number, limits.periods(int(now)), price, grows)


def _has_limit(budget: Budget) -> bool:
    return budget.daily_micros is not None or budget.total_micros is not None
