"""The catalog snapshot that a worker bids from: lookups, bid templates and campaign limits."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from snapbid.bidding._bid_path import SnapshotCore
from snapbid.bidding.cost import MAX_COST
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.native_answer import native_markup
from snapbid.bidding.native_request import NativeRequest
from snapbid.bidding.response import Template, adapted, template
from snapbid.catalog.catalog import Catalog
from snapbid.catalog.payload import CampaignPayload, CreativePayload, decode_payload
from snapbid.ledger.budgets.limits import Limits
from snapbid.ledger.budgets.releases import ALL, DAILY

MAX_TEMPLATES: Final = 30_000  # kept per index, about 2 KB each
MAX_NATIVE_TEMPLATES: Final = 10_000  # kept for native requests seen before
CARRY_BATCH: Final = 50  # campaigns carried over before yielding to other tasks


class Refused(NamedTuple):
    """The lowest cost (nano-USD) of a campaign's bids that a shard refused.

    `ssp`: the SSP for which it refused them; None if there were several.
    """

    cost: int
    ssp: str | None


class RefusedCampaign(NamedTuple):
    """A campaign refused for lack of headroom; `shards`: the refusals, by shard number."""

    document: CampaignPayload
    limits: Limits
    shards: dict[int, Refused]


@dataclass(slots=True)
class RankCache:
    """Values cached for one index: templates by rank and creative, limits by rank."""

    templates: dict[int, Template] = field(default_factory=dict)
    limits: dict[int, Limits | None] = field(default_factory=dict)


class CatalogSnapshot:
    """A catalog with its lookups and its creatives' templates; `core` is the Cython part.

    `shards`: the number of the ledger's shards, each of which has its own allowance of every
    budget. `before`: the snapshot that this one replaces; if both have the same base, the
    templates and limits that `before` has cached for the base's campaigns are reused.
    """

    def __init__(
        self,
        catalog: Catalog,
        lookups: Lookups,
        shards: int = 1,
        before: "CatalogSnapshot | None" = None,
    ) -> None:
        self.catalog = catalog
        self.lookups = lookups
        self.shards = shards
        self.refused: dict[int, RefusedCampaign] = {}  # by rank
        self._ranks: dict[int, int] = {}  # of refused campaigns, by number
        self._native: dict[tuple[int, int, int], Template] = {}
        self._adapted: dict[tuple[int, int, int | None, str, bool], Template] = {}
        self._of_base: RankCache = RankCache()
        self._of_overlay: RankCache = RankCache()
        if before is not None and before.catalog.base == catalog.base:
            self._of_base = before._of_base
        self._overlaid = catalog.base.campaigns if catalog.base is not None else 0
        self.core = SnapshotCore(
            lookups,
            catalog.index,
            catalog.ssps,
            self._of_base.templates,
            self._of_overlay.templates,
            self._overlaid,
        )

    def template(self, rank: int, creative: int, asked: NativeRequest | None = None) -> Template:
        """Return a creative's template, built on first use.

        `asked`: the native request of the impression, if any.
        """
        if asked is not None:
            return self._native_template(rank, creative, asked)
        result = self.core.found(rank, creative)
        if result is None:
            document = self._document(rank)
            result = self._build(rank, document, document.creatives[creative])
            self.core.keep(rank, creative, result, MAX_TEMPLATES)
        return result

    def adapted(
        self,
        rank: int,
        creative: int,
        lookups: Lookups,
        declares: bool,
        asked: NativeRequest | None = None,
    ) -> Template:
        """Return a creative's template, with the price in the currency of the lookups.

        `declares`: include the campaign's declaration under the Digital Services Act. `asked`: the
        native request to answer, if any.
        """
        number = None if asked is None else asked.number
        key = (rank, creative, number, lookups.currency, declares)
        is_kept = number != 0
        result = self._adapted.get(key)
        if result is None:
            plain = self.template(rank, creative, asked)
            price = lookups.price_micros(plain.price_micros)
            result = adapted(plain, price, self._document(rank).dsa if declares else None)
            if is_kept:
                if len(self._adapted) >= MAX_TEMPLATES:
                    self._adapted.clear()
                self._adapted[key] = result
        return result

    def _native_template(self, rank: int, creative: int, asked: NativeRequest) -> Template:
        key = asked.number, rank, creative
        result = self._native.get(key)
        if result is None:
            document = self._document(rank)
            payload = document.creatives[creative]
            if payload.native is None:  # of another medium that the impression also takes
                result = self.template(rank, creative)
            else:
                markup = native_markup(asked, payload.native)
                result = self._build(rank, document, replace(payload, adm=markup))
            if asked.number:  # the request is cached
                if len(self._native) >= MAX_NATIVE_TEMPLATES:
                    self._native.clear()
                self._native[key] = result
        return result

    def _build(self, rank: int, document: CampaignPayload, creative: CreativePayload) -> Template:
        limits = (self._of_base if rank < self._overlaid else self._of_overlay).limits
        if len(limits) >= MAX_TEMPLATES:
            limits.clear()
        if rank not in limits:
            limits[rank] = limits_of(document, self.shards)
        return template(document, creative, self.catalog.index.price(rank), limits[rank])

    def _document(self, rank: int) -> CampaignPayload:
        return decode_payload(self.catalog.index.payload(rank))

    # -- campaigns refused for lack of headroom ----------------------------------------------------

    def refuse(self, rank: int, shard: int, cost: int, ssp: str | None = None) -> None:
        """Record that a shard refused a bid of the campaign at this cost (nano-USD) for an SSP.

        Once every shard has refused the cost of a single impression, the campaign stops bidding on
        this SSP's requests. Once every shard has refused it for another SSP as well (or `ssp` is
        None), the campaign stops bidding on all requests. A single SSP is not enough: its own holds
        may take up the budget, and the ledger gives other SSPs a share only when one of them bids.
        """
        refused = self.refused.get(rank)
        if refused is None:
            document = self._document(rank)
            limits = limits_of(document, self.shards)
            if limits is None:
                return
            refused = self.refused[rank] = RefusedCampaign(document, limits, {})
            self._ranks[limits.campaign] = rank
        before = refused.shards.get(shard, Refused(cost, ssp))
        of_both = ssp if ssp == before.ssp else None
        refused.shards[shard] = Refused(min(cost, before.cost), of_both)
        price = self.catalog.index.price(rank)
        if self.is_refused_by_all(rank, price):
            self.core.refuse(rank, None)
        elif ssp is not None and self.is_refused_by_all(rank, price, ssp):
            self.core.refuse(rank, ssp)

    def is_refused(self, rank: int, shard: int, cost: int, ssp: str | None = None) -> bool:
        """Return whether a shard refuses the campaign at this cost.

        It does so if it has refused the same or a lower cost since the last reactivation, and
        always if the cost is above MAX_COST. `ssp`: the SSP of the bid; None: any SSP.
        """
        refused = self.refused.get(rank)
        least = None if refused is None else refused.shards.get(shard)
        if least is None or least.ssp not in (None, ssp):
            return cost > MAX_COST
        return cost >= min(least.cost, MAX_COST + 1)

    def is_refused_by_all(self, rank: int, cost: int, ssp: str | None = None) -> bool:
        """Return whether every shard refuses a bid of this cost; see `is_refused`."""
        return all(self.is_refused(rank, shard, cost, ssp) for shard in range(self.shards))

    def reactivate(self, releases: Iterable[tuple[int, int]] | None) -> None:
        """Let campaigns bid again in the shards that released them.

        `releases`: pairs of campaign number (or ALL, or DAILY) and shard; None: all campaigns, in
        all shards.
        """
        if releases is None:
            releases = [(ALL, shard) for shard in range(self.shards)]
        for number, shard in releases:
            if number == ALL:
                some = list(self.refused)
            elif number == DAILY:
                some = [rank for rank, of in self.refused.items() if of.limits.is_daily]
            else:
                some = [self._ranks.get(number, -1)]
            for rank in some:
                self._reactivate(rank, shard)

    def _reactivate(self, rank: int, shard: int) -> None:
        refused = self.refused.get(rank)
        if refused is not None and refused.shards.pop(shard, None) is not None:
            self.core.reactivate(rank)
            if not refused.shards:
                del self.refused[rank]
                self._ranks.pop(refused.limits.campaign, None)

    async def carry_over(self, before: "CatalogSnapshot") -> None:
        """Refuse the campaigns that `before` refused, unless their budget or price has changed.

        This keeps campaigns that are out of budget from bidding after a catalog update. Lets other
        tasks run meanwhile.
        """
        for number, (rank, refused) in enumerate(list(before.refused.items()), 1):
            now = self.catalog.index.rank(refused.document.cid)
            if now is not None and self._has_same_terms(now, before, rank, refused):
                for shard, (cost, ssp) in refused.shards.items():
                    self.refuse(now, shard, cost, ssp)
            if number % CARRY_BATCH == 0:
                await asyncio.sleep(0)

    def _has_same_terms(
        self, now: int, before: "CatalogSnapshot", rank: int, refused: RefusedCampaign
    ) -> bool:
        old, new = refused.document, self._document(now)
        if self.catalog.index.price(now) != before.catalog.index.price(rank):
            return False
        return (old.budget, old.since_ms) == (new.budget, new.since_ms)


def limits_of(document: CampaignPayload, shards: int = 1) -> Limits | None:
    """Return a campaign's limits; None if it has neither budget nor caps."""
    budget, caps = document.budget, document.caps
    if budget.daily_micros is None and budget.total_micros is None and not caps:
        return None
    return Limits(
        document.number,
        budget.daily_micros,
        budget.total_micros,
        document.since_ms if budget.pacing == "even" else None,
        tuple((cap.impressions, cap.seconds) for cap in caps),
        in_escrow=shards > 1,
    )
