"""Agreement with the plain bidder where campaigns are many and change meanwhile."""

import json
from typing import Any

import pytest
from support.crowd import Changes, Crowd, compare
from support.market import numbered

from bench import campaigns, pools, requests
from bench.agreement import world
from bench.market import SSP, lookups
from snapbid.exchange.market import Market
from snapbid.match._matcher import Index
from snapbid.match.catalog import Catalog, encode
from snapbid.match.document import parse_json
from snapbid.match.payload import Builder, put
from snapbid.reference import rates

COUNT = 16_000


def builder_of(documents: list[bytes]) -> Builder:
    builder = Builder()
    for number, document in enumerate(documents, 1):
        put(builder, parse_json(document), number)
    return builder


@pytest.mark.parametrize("shape", ["std", "rare"])
def test_agreement_while_campaigns_change(shape: str) -> None:
    documents = [json.dumps(each).encode() for each in campaigns.documents(COUNT, shape=shape)]
    base, overlay = builder_of(documents).build(), builder_of([])
    catalog = Catalog(b"".join(encode(numbered(pools.REGISTRY), rates.load(), base)))
    around = lookups(catalog)

    def publish(changes: Changes) -> Market:
        for id, document in changes.items():
            if document is None:
                overlay.hide(id)
            else:
                put(overlay, parse_json(json.dumps(document).encode()), 1)
        catalog.index = Index(base, overlay.build())
        return Market(catalog, around)

    asked: list[Any] = requests.make(60, seed=4)
    plain = world()
    crowd = Crowd(plain, documents)
    tally = compare(crowd, plain, SSP, [asked[:30], asked[30:]], publish, 60)
    assert tally.differences == []
    assert (tally.requests, tally.changes) == (90, 240)
    assert tally.bids > 30
