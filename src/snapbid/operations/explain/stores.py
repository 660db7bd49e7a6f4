"""Reads the data for `snapbid explain` from the stores: catalog, persons, budgets and caps."""

import contextlib
from collections.abc import Mapping, Sequence
from time import time
from typing import Final

import asyncpg
from redis.exceptions import RedisError

from snapbid.base.settings import Settings
from snapbid.bidding.cost import MAX_COST, cost_of, quantity_of
from snapbid.bidding.identity import member_ids
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.request import BidRequest, Device, Imp, User
from snapbid.bidding.snapshot import CatalogSnapshot, limits_of
from snapbid.campaigns import document, normalised
from snapbid.campaigns.campaign import Campaign
from snapbid.campaigns.member_file import in_hex
from snapbid.catalog._members import MemberBook, Members, starts_of
from snapbid.catalog.catalog import Catalog, CatalogError, Head, encode
from snapbid.catalog.members import ENTRY, until_of
from snapbid.catalog.payload import Builder, build_payload, put
from snapbid.catalog.single import index_of
from snapbid.ledger.admin import parts
from snapbid.ledger.bids.records import BidVerdict, LedgerBid
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.operations.explain import words
from snapbid.operations.explain.campaign import examine
from snapbid.operations.explain.codes import CAP_MET, Code, RuleCheck
from snapbid.operations.explain.overview import MatchableRequest
from snapbid.operations.explain.search import Search, Situation
from snapbid.operations.spending import Spending
from snapbid.operations.spending import fetch as fetch_spending
from snapbid.redisclient import connection
from snapbid.reference import agents, rates
from snapbid.reference.geo import GeoDatabase
from snapbid.reference.rates import Rates
from snapbid.warehouse import audiences, campaigns, persons, registry, suspensions, unavailable
from snapbid.warehouse import rates as operator_rates

BATCH: Final = 1000  # bids in one request for verdicts
_CAPS: Final[dict[str, tuple[str, Code | None]]] = {
    BidVerdict.OVER_CAP: ("the user has seen it that often", CAP_MET),
    BidVerdict.CAPS_UNAVAILABLE: ("the shard with this user's impressions is unavailable", None),
}


class LedgerUnavailable(Exception):
    """Redis, or the shard with the auction, does not answer."""


class Stores:
    """Connections to the stores, for one explanation."""

    def __init__(self, settings: Settings) -> None:
        assert settings.redis_url is not None
        self._settings = settings
        self._redis = connection.connect(settings.redis_url)
        self._budgets = Budgets(self._redis, settings.shards, time)
        self._members = MemberBook()
        self.unread: dict[str, str] = {}  # campaign -> the mistake in its document

    async def __aenter__(self) -> "Stores":
        self._warehouse = await asyncpg.connect(
            self._settings.database_url, timeout=unavailable.CONNECT_S
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._warehouse.close()
        await self._redis.aclose()

    async def snapshot(self, ssp: str) -> CatalogSnapshot | None:
        """Return a catalog snapshot as the workers have it; None if the SSP is not registered."""
        ssps = await registry.fetch_numbered(self._warehouse)
        if ssp not in ssps:
            return None
        settings = self._settings
        bid_rates = rates.load().overridden(await operator_rates.fetch_all(self._warehouse))
        catalog = await self._published(ssps, bid_rates) or await self._built(ssps, bid_rates)
        agents.load()
        lookups = Lookups(
            GeoDatabase(settings.geo_db),
            catalog.rates,
            gvl_id=settings.gvl_id,
            suppression=catalog.suppression,
            max_quantity=settings.max_quantity,
            members=self._members,
            former_ids=catalog.former_ids,
        )
        return CatalogSnapshot(catalog, lookups, settings.shards)

    async def look_up_persons(self, asked: MatchableRequest) -> list[str]:
        """Load the audiences of the persons that a request names.

        Returns a description of each person who is in an audience or restricted, with the hash of
        the id. Workers load the same data within seconds of a change.
        """
        request, situation, _ = asked
        former = situation.lookups.former_ids.get(situation.ssp, ())
        device, user = request.device or Device(), request.user or User()
        key = await persons.fetch_key(self._warehouse)
        kinds = {
            key.member(kind, id, scope): kind
            for kind, id, scope in member_ids(device, user, (situation.canonical, *former))
        }
        rows = await audiences.fetch_present(self._warehouse, kinds)
        names = await audiences.fetch_names(self._warehouse)
        entries = b"".join(
            ENTRY.pack(row.member, row.audience, until_of(row.until)) for row in rows
        )
        members = Members(key.key, *names, entries + starts_of(entries), len(rows))
        self._members.use(members)
        said = []
        for member in dict.fromkeys(row.member for row in rows):
            own, products = members.look_up(member, situation.now_ms)
            parts = [*(f"in {id}" for id in own), *(f"restricted for {id}" for id in products)]
            said.append(f"{kinds[member]} with hash {in_hex(member)}: {words.some(parts)}")
        return said

    async def _published(
        self, ssps: dict[str, tuple[str, int]], bid_rates: Rates
    ) -> Catalog | None:
        """Return the catalog that the server on this machine has published, if it is up to date."""
        try:
            catalog = Catalog.open(self._settings.catalog_path)
        except (OSError, CatalogError):
            return None
        standing = await campaigns.fetch_state(self._warehouse)
        suspended = await suspensions.fetch_suspended(self._warehouse)
        former_ids = await registry.fetch_former_ids(self._warehouse)
        numbers = {descriptor: number for descriptor, (_, number) in ssps.items()}
        is_current = (
            catalog.base is not None
            and catalog.base.warehouse == standing.warehouse
            and catalog.revision == standing.revision
            and catalog.ssp_numbers == numbers
            and catalog.former_ids == former_ids
            and list(catalog.suspensions) == suspended
            and catalog.rates == bid_rates
        )
        return catalog if is_current else None

    async def _built(self, ssps: dict[str, tuple[str, int]], bid_rates: Rates) -> Catalog:
        """Build a catalog from the warehouse, as the publisher would."""
        builder = Builder()

        def take(rows: list[campaigns.CampaignRow]) -> None:
            for row in rows:
                try:
                    campaign = normalised.load(
                        row.content, is_normalised=row.is_normalised, is_active=row.is_active
                    )
                    put(builder, campaign, row.number, row.created_at_ms)
                except ValueError as error:  # written by SQL, not by the import
                    self.unread[row.id.decode()] = str(error)

        async with self._warehouse.transaction(isolation="repeatable_read", readonly=True):
            await campaigns.copy_all(self._warehouse, normalised.RULES, take)
            suspended = await suspensions.fetch_suspended(self._warehouse)
            who = await persons.fetch_suppression(self._warehouse)
            former_ids = await registry.fetch_former_ids(self._warehouse)
        head = Head(
            ssps,
            bid_rates,
            suspensions=tuple(suspended),
            suppression=who,
            former_ids=former_ids,
        )
        return Catalog(b"".join(encode(head, builder.build())))

    async def documents(self, ids: Sequence[str]) -> Mapping[str, Campaign]:
        """Return the campaigns with these ids, leaving out those with invalid documents."""
        parsed = {}
        for stored in await campaigns.fetch_some(self._warehouse, ids):
            with contextlib.suppress(ValueError):
                parsed[stored.id] = _parse(stored)
        return parsed

    async def examine(self, id: str, asked: MatchableRequest) -> dict[str, list[RuleCheck]] | None:
        """Check every rule of a campaign, by impression; None if it does not exist.

        Raises CampaignError if its document is invalid, and LedgerUnavailable, RedisError or
        OSError if Redis does not answer.
        """
        rows = await campaigns.fetch_some(self._warehouse, [id])
        if not rows:
            return None
        (stored,) = rows
        campaign = _parse(stored)
        request, situation, _ = asked
        own = {
            cost: await self._limits(stored, campaign, cost, request, situation)
            for cost in {_cost(campaign, request, imp) for imp in request.imp or ()}
        }
        return {
            str(imp.id): [
                *examine(campaign, request, imp, situation),
                *self._quantity(campaign, request, imp),
                *own[_cost(campaign, request, imp)],
            ]
            for imp in request.imp or ()
        }

    def _quantity(self, campaign: Campaign, request: BidRequest, imp: Imp) -> list[RuleCheck]:
        """Check the number of impressions that `imp` stands for; return no row if it is 1."""
        quantity, most = quantity_of(request, imp), self._settings.max_quantity
        if quantity == 1:
            return []
        holds = quantity <= most and cost_of(campaign.cpm_micros, quantity) <= MAX_COST
        asks = f"at most {most}, and no win over 1,000,000 USD"
        return [RuleCheck("quantity", asks, f"qty.multiplier {quantity:g}", holds)]

    async def _limits(
        self,
        stored: campaigns.StoredCampaign,
        campaign: Campaign,
        cost: int,
        request: BidRequest,
        of: Situation,
    ) -> list[RuleCheck]:
        """Check the budget, for a bid of this cost, and the frequency caps."""
        described = build_payload(campaign, stored.number, stored.created_at_ms)
        limits = limits_of(described, self._settings.shards)
        if limits is None:
            return []
        auction, rows = str(request.id).encode(), []
        bids: list[LedgerBid] = [(b"", stored.number, cost, limits)]
        spending = await fetch_spending(self._settings, [stored])
        money = spending.campaigns.get(campaign.id)
        if money is not None:
            verdict = await self.look(auction, bids, None)
            carries = _spent(money)
            if spending.unavailable:
                carries += f"; without {parts.names(spending.unavailable)}, unavailable"
            if verdict == BidVerdict.UNCONFIRMED:
                carries += "; not restored by the drain since Redis started"
            rows.append(RuleCheck("budget", _budget(money), carries, verdict == BidVerdict.KEPT))
        user = Search(index_of(campaign), request, of).user
        if campaign.frequency_caps and user is not None:
            verdict = await self.look(auction, bids, user)
            caps = [f"{cap.impressions} in {cap.seconds} s" for cap in campaign.frequency_caps]
            carries, code = _CAPS.get(verdict, ("within them", None))
            holds = verdict not in _CAPS
            rows.append(RuleCheck("frequency caps", words.some(caps), carries, holds, code))
        return rows

    async def unavailable(self) -> list[int]:
        """Return the unavailable shards of the ledger. Raises LedgerUnavailable if all are."""
        try:
            return await parts.fetch_unavailable(self._redis, self._settings.shards)
        except (RedisError, OSError) as error:
            raise LedgerUnavailable from error

    async def look(self, auction_id: bytes, bids: list[LedgerBid], user: str | None) -> str:
        """Return the current verdicts on the bids, one character (a BidVerdict) for each.

        Raises LedgerUnavailable.
        """
        verdicts = ""
        for start in range(0, len(bids), BATCH):
            some = bids[start : start + BATCH]
            verdicts += await self._budgets.verdicts(auction_id, some, user)
        if len(verdicts) != len(bids):
            raise LedgerUnavailable
        return verdicts


def _parse(stored: campaigns.StoredCampaign) -> Campaign:
    """Parse a stored document. Raises ValueError if it is invalid."""
    return document.parse(document.decode(stored.document))


def _cost(campaign: Campaign, request: BidRequest, imp: Imp) -> int:
    return cost_of(campaign.cpm_micros, quantity_of(request, imp))


def _budget(money: Spending) -> str:
    parts = [f"{name} {most} USD" for name, most in (("daily", money.daily), ("total", money.total))
             if most is not None]  # fmt: skip
    return f"{', '.join(parts)}, {money.pacing}"


def _spent(money: Spending) -> str:
    spent = f"spent {money.spent} USD, today {money.spent_today}, held {money.held}"
    left = [f"{name} {amount}" for name, amount in (("today", money.remaining_today),
            ("in all", money.remaining)) if amount is not None]  # fmt: skip
    return f"{spent}; left: {', '.join(left)}"
