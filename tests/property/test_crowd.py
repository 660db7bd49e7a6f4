"""Agreement with the plain bidder where campaigns are many and change meanwhile."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from support.crowd import Changes, Crowd, compare
from support.oracle_reading import World
from support.oracle_values import Document
from support.snapshot import AROUND, numbered

from snapbid.bidding.lookups import Lookups
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.campaigns.document import parse_json
from snapbid.catalog._index import Index
from snapbid.catalog.catalog import Catalog, Head, encode
from snapbid.catalog.payload import Builder, put
from snapbid.reference import rates
from snapbid.reference.geo import GeoDatabase
from workload import campaigns, pools, requests

DIFFERENT, ALIKE = 4_000, 4  # so many of which only ids and prices differ
SSP = "acme"
GEO = GeoDatabase()
WORLD = World(
    campaigns=[],
    registry=dict(pools.REGISTRY),
    now=datetime(2027, 1, 15, 8, tzinfo=UTC),
    **vars(replace(AROUND, country_of_ip=GEO.country, usd=rates.load().usd)),
)


def crowd_of(originals: Iterable[Document]) -> tuple[list[bytes], Builder]:
    """The documents of all campaigns, and the product's builder with them."""
    documents, builder = [], Builder()
    for original in originals:
        campaign = parse_json(json.dumps(original).encode())
        for turn in range(ALIKE):
            own = {"id": f"{original['id']}-{turn}", "cpm": round(original["cpm"] + turn / 100, 2)}
            documents.append(json.dumps(original | own).encode())
            changed = {"id": own["id"], "cpm_micros": round(own["cpm"] * 1_000_000)}
            put(builder, msgspec.structs.replace(campaign, **changed), len(documents))
    return documents, builder


@pytest.mark.parametrize("shape", ["std", "rare"])
def test_agreement_while_campaigns_change(shape: str) -> None:
    documents, builder = crowd_of(campaigns.documents(DIFFERENT, shape=shape))
    base, overlay = builder.build(), Builder()
    catalog = Catalog(b"".join(encode(Head(numbered(pools.REGISTRY), rates.load()), base)))
    lookups = Lookups(GEO, catalog.rates)

    def publish(changes: Changes) -> CatalogSnapshot:
        for id, document in changes.items():
            if document is None:
                overlay.hide(id)
            else:
                put(overlay, parse_json(json.dumps(document).encode()), 1)
        catalog.index = Index(base, overlay.build())
        return CatalogSnapshot(catalog, lookups)

    asked: list[Any] = requests.make(60, seed=4)
    crowd = Crowd(WORLD, documents)
    tally = compare(crowd, WORLD, SSP, [asked[:30], asked[30:]], publish, 60)
    assert tally.differences == []
    assert (tally.requests, tally.changes) == (90, 240)
    assert tally.bids > 30
