"""A snapshot of a hundred thousand campaigns, within seconds: those of the benchmarks, repeated."""

import functools
import gc
import json
from collections.abc import Iterable

import msgspec

from snapbid.bidding.lookups import Lookups
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.campaigns.document import decode, parse
from snapbid.catalog._builder import Builder
from snapbid.catalog.catalog import Catalog, Head, encode
from snapbid.catalog.payload import put
from snapbid.reference import agents, rates
from snapbid.reference.geo import GeoDatabase
from workload.campaigns import documents
from workload.pools import REGISTRY

DIFFERENT = 2_000


@functools.cache
def large_snapshot(count: int = 100_000) -> CatalogSnapshot:
    """A snapshot of so many campaigns of every kind."""
    return repeated(documents(DIFFERENT), count)


def repeated(originals: Iterable[object], count: int) -> CatalogSnapshot:
    """A snapshot of so many campaigns that are like these, with ids and prices of their own."""
    parsed = [parse(decode(json.dumps(document))) for document in originals]
    builder = Builder()
    for number in range(count):
        turn, which = divmod(number, len(parsed))
        campaign = parsed[which]
        own = {"id": f"{number:06}", "cpm_micros": campaign.cpm_micros + 1 + turn}
        put(builder, msgspec.structs.replace(campaign, **own), number + 1)
    ssps = {name: (of, number) for number, (name, of) in enumerate(REGISTRY.items(), 1)}
    catalog = Catalog(b"".join(encode(Head(ssps, rates.load()), builder.build())))
    agents.load()
    gc.collect()
    gc.freeze()  # as a worker does
    return CatalogSnapshot(catalog, Lookups(GeoDatabase(), catalog.rates))
