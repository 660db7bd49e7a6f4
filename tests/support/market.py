"""A market in memory, made of campaign documents: what a worker maps, without a server."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from snapbid.exchange import privacy
from snapbid.exchange.bid import Market
from snapbid.exchange.features import CountryOfAddress, References
from snapbid.match import catalog
from snapbid.match._builder import Builder
from snapbid.match.compile import put
from snapbid.match.document import parse
from snapbid.reference import agents, countries
from snapbid.reference.rates import Rates
from support import oracle, pools
from support.strategies import Surroundings

RATES = Rates(usd=dict(pools.USD), date=date(2026, 1, 2))
AROUND = Surroundings(
    agent=agents.parse,
    fold_os=agents.fold_os,
    alpha3=countries.alpha3,
    may_use_user_data=privacy.may_use_user_data,
)
"""The product's own tables, so that an oracle's world differs from it in the rules alone."""


def catalog_of(
    documents: Iterable[object], ssps: Mapping[str, str], rates: Rates
) -> catalog.Catalog:
    """The catalog of these campaigns, as the publisher would write it."""
    builder = Builder()
    for number, document in enumerate(documents, 1):
        put(builder, parse(document), number)
    return catalog.Catalog(b"".join(catalog.encode(numbered(ssps), rates, builder.build())))


def numbered(ssps: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Descriptor to canonical id and number, from 1 in the order given."""
    return {name: (of, number) for number, (name, of) in enumerate(ssps.items(), 1)}


def market_of(
    documents: Iterable[object],
    ssps: Mapping[str, str],
    rates: Rates,
    geo: CountryOfAddress,
    gvl_id: int | None = None,
) -> Market:
    """A market of these campaigns."""
    found = catalog_of(documents, ssps, rates)
    references = References(
        geo,
        rates,
        needs_geo=found.targets("country", "region"),
        needs_os=found.targets("os"),
        needs_browser=found.targets("browser"),
        needs_user=found.has_caps,
        gvl_id=gvl_id,
    )
    return Market(found, references)


@dataclass(frozen=True)
class Geo:
    """A geo database of the few addresses that the pools have."""

    def country(self, ip: str) -> str | None:
        return pools.country_of_ip(ip)


def market_of_world(world: oracle.World) -> Market:
    """The market that the product makes of an oracle's world."""
    return market_of(world.campaigns, world.registry, RATES, Geo(), world.gvl_id)
