"""A market in memory, made of campaign documents: what a worker maps, without a server."""

from collections.abc import Iterable, Mapping

from snapbid.exchange.bid import Market
from snapbid.exchange.features import CountryOfAddress, References
from snapbid.match import campaign, catalog
from snapbid.match.compile import Builder, put
from snapbid.reference.rates import Rates


def catalog_of(
    documents: Iterable[object], ssps: Mapping[str, str], rates: Rates
) -> catalog.Catalog:
    """The catalog of these campaigns, as the publisher would write it."""
    builder = Builder()
    for document in documents:
        put(builder, campaign.parse(document))
    return catalog.Catalog(b"".join(catalog.encode(dict(ssps), rates, builder.build())))


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
        gvl_id=gvl_id,
    )
    return Market(found, references)
