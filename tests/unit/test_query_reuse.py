"""Queries of one index use the same memory in turns: none sees what another has read."""

import sys
from typing import Any

import pytest
from support.snapshot import RATES, Geo, builder_of

from snapbid.bidding.lookups import Lookups
from snapbid.bidding.request import BidRequest, decode
from snapbid.catalog._builder import DIMENSIONS
from snapbid.catalog._index import Index, Query, Refusal

CREATIVE = {"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "-"}
BRAND = {"id": "c", "advertiser": "brand.example", "cpm": 1, "creatives": [CREATIVE]}
CAPPED = {**BRAND, "id": "d", "cpm": 3, "frequency_caps": [{"impressions": 1, "seconds": 3600}]}
DUTCH = {**BRAND, "id": "e", "cpm": 2, "targeting": {"country": {"include": ["NLD"]}}}
RICH = (
    b'{"id":"1","device":{"ifa":"6d92078a-8246-4ba4-ae5b-76104861e7dc","geo":{"country":"NLD",'
    b'"lat":52.1,"lon":4.3}},"wseat":["nobody"],"badv":["brand.example"],'
    b'"imp":[{"id":"1","banner":{"w":300,"h":250},"bidfloor":0.5,"pmp":{"private_auction":1}}]}'
)
PLAIN = b'{"id":"2","imp":[{"id":"1","banner":{"w":300,"h":250}}]}'
DUTCH_USER = RICH.replace(b'"wseat":["nobody"],"badv":["brand.example"],', b"").replace(
    b',"pmp":{"private_auction":1}', b""
)


@pytest.fixture(params=[False, True], ids=["base", "overlay"])
def index(request: pytest.FixtureRequest) -> Index:
    campaigns = [BRAND, CAPPED, DUTCH]
    if not request.param:
        return Index(builder_of(campaigns).build())
    return Index(builder_of(campaigns).build(), builder_of([{**DUTCH, "cpm": 4}]).build())


def asked(index: Index, body: bytes) -> tuple[Query, BidRequest]:
    request = decode(body)
    return index.query(Lookups(Geo(), RATES), request, "acme", "acme", 0), request


def winners(index: Index, query: Query, imp: Any) -> list[int]:
    assert query.impression(imp)
    return [index.price(best[0]) for best in iter(query.next, None)]


def test_a_query_sees_nothing_of_the_one_before(index: Index) -> None:
    plain, request = asked(index, PLAIN)
    wanted = winners(index, plain, request.imp[0])  # type: ignore[index]
    carried, counts = plain.carried(), plain.counts
    del plain
    for _ in range(3):
        rich, other = asked(index, RICH)
        assert rich.user is not None
        assert rich.point == (52.1, 4.3)
        assert winners(index, rich, other.imp[0]) == []  # type: ignore[index]
        del rich
        plain, request = asked(index, PLAIN)
        assert (plain.user, plain.point) == (None, None)
        assert winners(index, plain, request.imp[0]) == wanted == [1_000_000]  # type: ignore[index]
        assert (plain.carried(), plain.counts) == (carried, counts)
        del plain


def test_queries_at_the_same_time_do_not_disturb_each_other(index: Index) -> None:
    rich, request = asked(index, DUTCH_USER)
    alone = winners(index, rich, request.imp[0])  # type: ignore[index]
    assert len(alone) == 3
    rich, request = asked(index, DUTCH_USER)
    assert rich.impression(request.imp[0])  # type: ignore[index]
    interleaved = []
    while (best := rich.next()) is not None:
        interleaved.append(index.price(best[0]))
        plain, other = asked(index, PLAIN)
        assert winners(index, plain, other.imp[0]) == [1_000_000]  # type: ignore[index]
        assert plain.explain(index.rank("e")) == (  # type: ignore[arg-type]
            Refusal.REFUSED_TARGETING,
            DIMENSIONS["country"],
        )
    assert interleaved == alone


def test_finished_queries_keep_nothing_of_their_request(index: Index) -> None:
    lookups, request, ssp = Lookups(Geo(), RATES), decode(RICH), "-".join("acme")
    kept = [lookups, request, request.imp[0], ssp]  # type: ignore[index]
    kept += [request.device, request.device.geo]  # type: ignore[union-attr]
    before = [sys.getrefcount(value) for value in kept]
    for _ in range(3):
        query = index.query(lookups, request, ssp, ssp, 0)
        query.impression(request.imp[0])  # type: ignore[index]
        query.next()
        del query
    assert [sys.getrefcount(value) for value in kept] == before


def test_a_broken_request_leaves_nothing_behind(index: Index) -> None:
    with pytest.raises(TypeError, match="not a decoded BidRequest"):
        index.query(Lookups(Geo(), RATES), None, "acme", "acme", 0)
    with pytest.raises(TypeError, match="instead of BidRequest"):
        index.query(Lookups(Geo(), RATES), decode(PLAIN).imp, "acme", "acme", 0)
    query, request = asked(index, PLAIN)
    with pytest.raises(TypeError, match="not a decoded Imp"):
        query.impression(None)
    assert query.next() is None
    assert winners(index, query, request.imp[0]) == [1_000_000]  # type: ignore[index]
