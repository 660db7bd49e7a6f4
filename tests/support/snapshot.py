"""A snapshot in memory, built from campaign documents, as a worker would map it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache

import msgspec

from snapbid.bidding import privacy
from snapbid.bidding._bid_path import Choice, NoBid, search
from snapbid.bidding.lookups import CountryOfAddress, Lookups
from snapbid.bidding.request import BidRequest
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.campaigns.campaign import Campaign
from snapbid.campaigns.document import parse
from snapbid.campaigns.persons import PersonKey
from snapbid.campaigns.suspensions import CreativeSuspension
from snapbid.catalog import catalog
from snapbid.catalog._builder import Builder
from snapbid.catalog._index import Index
from snapbid.catalog._members import MemberBook, Members, starts_of
from snapbid.catalog.members import ENTRY, NEVER
from snapbid.catalog.payload import put
from snapbid.reference import agents, countries
from snapbid.reference.rates import Rates
from support import oracle, pools
from support.strategies import Surroundings

RATES = Rates(usd=dict(pools.USD), date=date(2026, 1, 2))
AROUND = Surroundings(
    agent=agents.parse,
    fold_os=agents.fold_os,
    brand=agents.brand,
    alpha3=countries.alpha3,
    may_use_user_data=lambda gvl_id, **given: privacy.may_use_user_data(
        privacy.PrivacySignals(**given), gvl_id
    ),
)
"""The product's own tables, so that an oracle's world differs from it in the rules alone."""


def parsed(document: object) -> Campaign:
    """Parse a document; one that was among the last few thousand is not parsed again."""
    return _parsed(msgspec.json.encode(document))


@lru_cache(4096)
def _parsed(text: bytes) -> Campaign:
    return parse(msgspec.json.decode(text))


def builder_of(documents: Iterable[object]) -> Builder:
    """A builder with these campaigns."""
    builder = Builder()
    for number, document in enumerate(documents, 1):
        put(builder, parsed(document), number)
    return builder


def catalog_of(
    documents: Iterable[object],
    ssps: Mapping[str, str],
    rates: Rates,
    suspended: Iterable[tuple[str, str, str]] = (),
) -> catalog.Catalog:
    """The catalog of these campaigns, as the publisher would write it."""
    index = builder_of(documents).build()
    suspensions = tuple(
        CreativeSuspension(*names, reason=202, losses=3, since=0, until=2**31)
        for names in suspended
    )
    head = catalog.Head(numbered(ssps), rates, suspensions=suspensions)
    return catalog.Catalog(b"".join(catalog.encode(head, index)))


def numbered(ssps: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Descriptor to canonical id and number, from 1 in the order given."""
    return {name: (of, number) for number, (name, of) in enumerate(ssps.items(), 1)}


def snapshot_of(
    documents: Iterable[object],
    ssps: Mapping[str, str],
    rates: Rates,
    geo: CountryOfAddress,
    gvl_id: int | None = None,
) -> CatalogSnapshot:
    """A snapshot of these campaigns."""
    return _snapshot(catalog_of(documents, ssps, rates), geo, gvl_id)


def decide(
    request: BidRequest, ssp: str, snapshot: CatalogSnapshot, now_ms: int
) -> list[Choice] | NoBid:
    """Return the choices of `search`."""
    decision = search(request, ssp, snapshot, now_ms)
    return decision if isinstance(decision, NoBid) else decision.choices


@cache
def members_of_pools() -> MemberBook:
    """Who is in the audiences of the pools, as a worker would map it."""
    key = PersonKey(b"of the pools")
    named = {name for own, products in pools.MEMBERS.values() for name in own | products}
    numbers = {name: number for number, name in enumerate(sorted(named), 1)}
    products = {name for _, each in pools.MEMBERS.values() for name in each}
    entries = sorted(
        (key.member(kind, id, scope), numbers[name], NEVER)
        for (kind, scope, id), (own, excluding) in pools.MEMBERS.items()
        for name in own | excluding
    )
    section = b"".join(ENTRY.pack(*entry) for entry in entries)
    audiences = {number: name for name, number in numbers.items() if name not in products}
    made = MemberBook()
    made.use(
        Members(
            key.key,
            audiences,
            {numbers[name]: name for name in products},
            section + starts_of(section),
            len(entries),
        )
    )
    return made


def _snapshot(
    catalog_: catalog.Catalog, geo: CountryOfAddress, gvl_id: int | None
) -> CatalogSnapshot:
    lookups = Lookups(geo, catalog_.rates, gvl_id=gvl_id, members=members_of_pools())
    return CatalogSnapshot(catalog_, lookups)


@dataclass(frozen=True)
class Geo:
    """A geo database of the addresses in the pools."""

    def country(self, ip: str) -> str | None:
        return pools.country_of_ip(ip)


def snapshot_of_world(world: oracle.World) -> CatalogSnapshot:
    """The product's snapshot for an oracle's world."""
    made = catalog_of(world.campaigns, world.registry, RATES, world.suspended)
    return _snapshot(made, Geo(), world.gvl_id)


def layered_snapshot(
    world: oracle.World, base: Iterable[object], changed: Iterable[object], gone: Iterable[str]
) -> CatalogSnapshot:
    """A snapshot of `base`, overlaid with changed, added and deleted campaigns."""
    overlay = builder_of(changed)
    for id in gone:
        overlay.hide(id)
    layered = catalog_of([], world.registry, RATES)
    layered.index = Index(builder_of(base).build(), overlay.build())
    for ssp, campaign, creative in world.suspended:
        layered.index.suspend(campaign, creative, ssp)
    return _snapshot(layered, Geo(), world.gvl_id)


def snapshot_of_catalog(opened: catalog.Catalog, gvl_id: int | None) -> CatalogSnapshot:
    """A snapshot of a published catalog, with the exchange rates of the pools."""
    opened.rates = RATES
    return _snapshot(opened, Geo(), gvl_id)
