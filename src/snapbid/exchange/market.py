"""What a worker decides from: the catalog, what is looked up beside it, templates and limits."""

import asyncio
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from snapbid.exchange.lookups import Lookups
from snapbid.exchange.response import Template, template
from snapbid.ledger.limits import Limits
from snapbid.match.catalog import Catalog
from snapbid.match.compile import Document, read_document

MAX_TEMPLATES: Final = 30_000  # kept for one index, some 2 KB each
AT_ONCE: Final = 50  # campaigns carried over before other work may go on


class Refused(NamedTuple):
    """A campaign that was out of money when it last bid, with the shards that refused it."""

    document: Document
    limits: Limits
    shards: set[int]


@dataclass(slots=True)
class Known:
    """What is made of one index at its first use, by rank: templates by creative, and limits."""

    templates: dict[tuple[int, int], Template] = field(default_factory=dict)
    limits: dict[int, Limits | None] = field(default_factory=dict)


class Market:
    """A catalog with what is looked up beside it, and the templates of its creatives.

    `shards` of the ledger have each their share of the budgets. `refused`: the campaigns (ranks)
    that were out of money when they last bid. `before` is the market that it takes the place of:
    what is known of the same base remains so.
    """

    def __init__(
        self,
        catalog: Catalog,
        lookups: Lookups,
        shards: int = 1,
        before: "Market | None" = None,
    ) -> None:
        self.catalog = catalog
        self.lookups = lookups
        self.shards = shards
        self.refused: dict[int, Refused] = {}
        self._of_base: Known = Known()
        self._of_overlay: Known = Known()
        if before is not None and before.catalog.base == catalog.base:
            self._of_base = before._of_base
        self._overlaid = catalog.base.campaigns if catalog.base is not None else 0

    def template(self, rank: int, creative: int) -> Template:
        """The template of a creative, made at its first use."""
        known = self._of_base if rank < self._overlaid else self._of_overlay
        found = known.templates.get((rank, creative))
        if found is None:
            document = self._document(rank)
            if rank not in known.limits:
                known.limits[rank] = limits_of(document, self.shards)
            price = self.catalog.index.price(rank)
            found = template(document, document.creatives[creative], price, known.limits[rank])
            if len(known.templates) >= MAX_TEMPLATES:
                known.templates.clear()
                known.limits.clear()
            known.templates[rank, creative] = found
        return found

    def _document(self, rank: int) -> Document:
        return read_document(self.catalog.index.payload(rank))

    # -- campaigns out of money -------------------------------------------------------------------

    def skip(self, rank: int, shard: int) -> None:
        """A shard has no money for the campaign; where none has, it does not bid any more."""
        refused = self.refused.get(rank)
        if refused is None:
            document = self._document(rank)
            limits = limits_of(document, self.shards)
            if limits is None:
                return
            refused = self.refused[rank] = Refused(document, limits, set())
        refused.shards.add(shard)
        if len(refused.shards) == self.shards:
            self.catalog.index.set_active(rank, False)

    def skips(self, rank: int, shard: int) -> bool:
        """Whether the shard has refused the campaign since there last was money for it."""
        refused = self.refused.get(rank)
        return refused is not None and shard in refused.shards

    def waiting(self) -> list[tuple[int, tuple[int, Limits]]]:
        """The refused campaigns: (rank, (price, limits)) each."""
        price = self.catalog.index.price
        return [(rank, (price(rank), refused.limits)) for rank, refused in self.refused.items()]

    def resume(self, rank: int) -> None:
        """There is money for the campaign again."""
        if self.refused.pop(rank, None) is not None:
            self.catalog.index.set_active(rank, True)

    async def carry_over(self, before: "Market") -> None:
        """Skips what the market before skips, but for what has another budget or price now.

        So no catalog lets campaigns bid that are out of money. Other work goes on meanwhile.
        """
        for number, (rank, refused) in enumerate(list(before.refused.items()), 1):
            now = self.catalog.index.rank(refused.document.cid)
            if now is not None and self._has_same_terms(now, before, rank, refused):
                for shard in refused.shards:
                    self.skip(now, shard)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    def _has_same_terms(self, now: int, before: "Market", rank: int, refused: Refused) -> bool:
        document, own = refused.document, self._document(now)
        if self.catalog.index.price(now) != before.catalog.index.price(rank):
            return False
        return (document.budget, document.since_ms) == (own.budget, own.since_ms)


def limits_of(document: Document, shards: int = 1) -> Limits | None:
    """The limits of a campaign that has any."""
    budget, caps = document.budget, document.caps
    if budget.daily_micros is None and budget.total_micros is None and not caps:
        return None
    return Limits(
        document.number,
        budget.daily_micros,
        budget.total_micros,
        document.since_ms if budget.pacing == "even" else None,
        tuple((cap.impressions, cap.seconds) for cap in caps),
        shards,
    )
