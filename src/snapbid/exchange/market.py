"""What a worker decides from: the catalog, what is looked up beside it, templates and limits."""

from dataclasses import dataclass, field
from typing import Final

from snapbid.exchange.features import References
from snapbid.exchange.response import Template, template
from snapbid.ledger.limits import Limits
from snapbid.match.catalog import Catalog
from snapbid.match.compile import Document, read_document

MAX_TEMPLATES: Final = 100_000  # kept for one catalog


@dataclass(slots=True)
class Market:
    """A catalog with what is looked up beside it, and the templates of its creatives.

    `shards` of the ledger have each their share of the budgets. `refused`: the campaigns (ranks)
    that were out of money when they last bid, with the shards that refused them.
    """

    catalog: Catalog
    references: References
    shards: int = 1
    templates: dict[tuple[int, int], Template] = field(default_factory=dict)
    refused: dict[int, set[int]] = field(default_factory=dict)
    _limits: dict[int, Limits | None] = field(default_factory=dict)

    def template(self, rank: int, creative: int) -> Template:
        """The template of a creative, made at its first use."""
        found = self.templates.get((rank, creative))
        if found is None:
            document = read_document(self.catalog.index.payload(rank))
            price = self.catalog.index.price(rank)
            limits = self._limits_of(rank, document)
            found = template(document, document.creatives[creative], price, limits)
            if len(self.templates) >= MAX_TEMPLATES:
                self.templates.clear()
            self.templates[rank, creative] = found
        return found

    def _limits_of(self, rank: int, document: Document) -> Limits | None:
        if rank not in self._limits:
            self._limits[rank] = limits_of(document, self.shards)
        return self._limits[rank]

    # -- campaigns out of money -------------------------------------------------------------------

    def skip(self, rank: int, shard: int) -> None:
        """A shard has no money for the campaign; where none has, it does not bid any more."""
        shards = self.refused.setdefault(rank, set())
        shards.add(shard)
        if len(shards) == self.shards:
            self.catalog.index.set_active(rank, False)

    def skips(self, rank: int, shard: int) -> bool:
        """Whether the shard has refused the campaign since there last was money for it."""
        shards = self.refused.get(rank)
        return shards is not None and shard in shards

    def waiting(self) -> list[tuple[int, tuple[int, Limits]]]:
        """The refused campaigns: (rank, (price, limits)) each."""
        index = self.catalog.index
        limited = ((rank, self._limits[rank]) for rank in self.refused)
        return [(rank, (index.price(rank), of)) for rank, of in limited if of is not None]

    def resume(self, rank: int) -> None:
        """There is money for the campaign again."""
        if self.refused.pop(rank, None) is not None:
            self.catalog.index.set_active(rank, True)


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
