"""The product's parts over the generated workload, in this process, for the micro benchmarks."""

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager

from bench import campaigns, pools
from snapbid.exchange.bid import Answered, Bidder, Market, NoBid
from snapbid.exchange.features import References
from snapbid.exchange.request import decode as decode_request
from snapbid.match._builder import Builder
from snapbid.match.catalog import Catalog, encode
from snapbid.match.compile import put
from snapbid.match.document import decode, parse
from snapbid.reference import agents, rates
from snapbid.reference.geo import DEFAULT_PATH, GeoDatabase

SSP = "acme"
NOW_MS = 1_800_000_000_000  # a Friday; the decision depends on the hour


def market(count: int) -> Market:
    """A market of `count` campaigns, made as the publisher and a worker make theirs."""
    builder = Builder()
    with _no_collection():
        for number, document in enumerate(campaigns.documents(count), 1):
            put(builder, parse(decode(json.dumps(document))), number)
    index = builder.build()
    ssps = {name: (of, number) for number, (name, of) in enumerate(pools.REGISTRY.items(), 1)}
    catalog = Catalog(b"".join(encode(ssps, rates.load(), index)))
    agents.load()
    references = References(
        GeoDatabase(DEFAULT_PATH),
        catalog.rates,
        needs_geo=catalog.targets("country", "region"),
        needs_os=catalog.targets("os"),
        needs_browser=catalog.targets("browser"),
    )
    return Market(catalog, references)


def answer(bidder: Bidder, body: bytes, market: Market) -> Answered | NoBid:
    """All that a bid takes but HTTP and remembering it."""
    return bidder.answer(decode_request(body), SSP, market, NOW_MS)


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.disable()  # what a large import makes is no garbage
    try:
        yield
    finally:
        gc.enable()
