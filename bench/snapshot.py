"""Builds a catalog snapshot of generated campaigns in this process, for the micro benchmarks."""

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from snapbid.bidding._bid_path import NoBid, propose
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.request import decode as decode_request
from snapbid.bidding.response import ResponseWriter
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.campaigns.click_id import ClickKey
from snapbid.campaigns.document import decode, parse
from snapbid.campaigns.suppression import Suppression
from snapbid.catalog._builder import Builder
from snapbid.catalog._members import MemberBook, Members, starts_of
from snapbid.catalog.catalog import Catalog, Head, encode
from snapbid.catalog.payload import put
from snapbid.reference import agents, rates
from snapbid.reference.geo import GeoDatabase
from workload import campaigns, pools

SSP = "acme"
NOW_MS = 1_800_000_000_000  # a Friday; the decision depends on the hour
PERSONS = b"p" * 16  # the key of their hashes
AUDIENCE = "depositors"

Document = dict[str, Any]


def snapshot(
    count: int, change: Callable[[Document], Document] = lambda document: document
) -> CatalogSnapshot:
    """Build a snapshot of `count` campaigns, as the publisher and a worker do.

    `change` is applied to each campaign.
    """
    builder = Builder()
    with _no_collection():
        for number, document in enumerate(campaigns.documents(count), 1):
            put(builder, parse(decode(json.dumps(change(document)))), number)
    index = builder.build()
    ssps = {name: (of, number) for number, (name, of) in enumerate(pools.REGISTRY.items(), 1)}
    catalog = Catalog(b"".join(encode(Head(ssps, rates.load()), index)))
    gc.freeze()  # as a worker does; otherwise each collection traverses the campaigns
    return CatalogSnapshot(catalog, lookups(catalog))


def lookups(catalog: Catalog) -> Lookups:
    """Return the lookups that a worker has beside the catalog."""
    agents.load()
    book = MemberBook()
    book.use(Members(PERSONS, {1: AUDIENCE}, {}, starts_of(b""), 0))
    return Lookups(
        GeoDatabase(),
        catalog.rates,
        suppression=Suppression(key=PERSONS),
        members=book,
        click_key=ClickKey(1, b"c" * 32),
    )


def clicked(document: Document) -> Document:
    """Add a click id to a campaign's creatives, and exclude the members of an audience from it."""
    text = json.dumps(document).replace("{{cachebuster}}", "{{cachebuster}}&click={{click_id}}")
    own: Document = json.loads(text)
    return own | {"targeting": own["targeting"] | {"audience": {"exclude": [AUDIENCE]}}}


def answer(writer: ResponseWriter, body: bytes, snapshot: CatalogSnapshot) -> bytes | NoBid:
    """Answer a bid request, without HTTP and without remembering the bid."""
    answer = propose(decode_request(body), SSP, snapshot, NOW_MS)
    return answer if isinstance(answer, NoBid) else writer.write(answer.auction_id, answer.bids)


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.disable()  # a large import leaves no garbage
    try:
        yield
    finally:
        gc.enable()
