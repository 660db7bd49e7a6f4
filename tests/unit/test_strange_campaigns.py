"""Campaigns at their limits and documents beyond reason: an index is built, or they are refused."""

import json
from typing import Any

import pytest
from support.snapshot import RATES, Geo, decide, numbered

from snapbid.bidding._bid_path import NoBid
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.request import decode
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.campaigns.document import parse_json
from snapbid.catalog.catalog import Catalog, Head, encode
from snapbid.catalog.payload import Builder, decode_payload, put

MILLION = 1_000_000
NOW_MS = 1_800_000_000_000
CREATIVE = {"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "x"}


def document(id: str, **members: Any) -> bytes:
    common = {"id": id, "advertiser": "brand.example", "cpm": 2, "creatives": [CREATIVE]}
    return json.dumps({**common, **members}).encode()


def snapshot(*documents: bytes) -> CatalogSnapshot:
    builder = Builder()
    for number, text in enumerate(documents, 1):
        put(builder, parse_json(text), number)
    content = encode(Head(numbered({"acme": "acme"}), RATES), builder.build())
    return CatalogSnapshot(Catalog(b"".join(content)), Lookups(Geo(), RATES))


def winner(made: CatalogSnapshot, domain: str, **members: Any) -> str | None:
    request = {
        "id": "r",
        "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}],
        "site": {"domain": domain},
        **members,
    }
    choices = decide(decode(json.dumps(request).encode()), "acme", made, NOW_MS)
    if isinstance(choices, NoBid):
        return None
    return decode_payload(made.catalog.index.payload(choices[0].rank)).cid


@pytest.mark.long
def test_a_million_domains() -> None:
    domains = [f"host{number}.example" for number in range(MILLION)]
    allowing = document("allowing", targeting={"domain": {"include": domains}}, cpm=3)
    made = snapshot(allowing, document("blocking", targeting={"domain": {"exclude": domains}}))
    assert winner(made, "host999999.example") == "allowing"
    assert winner(made, "other.example") == "blocking"


@pytest.mark.long
def test_the_same_domain_a_million_times() -> None:
    again = {"include": ["A.example"] * MILLION, "exclude": ["b.a.example"] * 10}
    made = snapshot(document("a", targeting={"domain": again}))
    assert winner(made, "c.a.example") == "a"
    assert winner(made, "b.a.example") is None
    assert winner(made, "b.example") is None


def test_spellings_of_one_value_are_one_entry() -> None:
    def index(entries: list[str]) -> bytearray:
        builder = Builder()
        targeting = {"country": {"include": entries}, "city": {"include": ["x"]}}
        put(builder, parse_json(document("a", targeting=targeting)), 1)
        return builder.build()

    assert index(["us", "USA", "US", "usa", "uSa"]) == index(["USA"])


def test_maximum_creatives_and_circles() -> None:
    creatives = [{**CREATIVE, "id": f"k{number}", "w": number + 1} for number in range(1000)]
    circles = [{"lat": 10, "lon": number / 10, "km": 1} for number in range(1000)]
    made = snapshot(document("a", creatives=creatives, targeting={"geo_radius": circles}))
    near = {"device": {"geo": {"lat": 10, "lon": 99.9}}}
    assert winner(made, "a.example", **near) == "a"
    assert winner(made, "a.example") is None


def test_empty_lists_are_no_lists() -> None:
    empty: dict[str, Any] = {
        name: {"include": [], "exclude": []} for name in ("domain", "hour", "deal", "country")
    }
    made = snapshot(document("a", targeting={**empty, "geo_radius": []}, categories=[]))
    assert winner(made, "a.example") == "a"


@pytest.mark.parametrize(
    ("members", "rule"),
    [
        (
            {"creatives": [{**CREATIVE, "id": str(number)} for number in range(10_000)]},
            "creatives: must have at most 1000 entries, found 10000",
        ),
        (
            {"targeting": {"domain": {"include": ["x.example"] * (MILLION + 1)}}},
            "targeting.domain.include: must have at most 1000000 entries, found 1000001",
        ),
        ({"creatives": []}, "creatives: is required"),
        ({"cpm": 10**400}, "cpm: must be at most 1000000"),
        ({"name": "x" * 10**6}, "name: must have at most 512 bytes, found 1000000"),
        ({str(number): 1 for number in range(10_000)}, "is not a known field"),
    ],
)
def test_refusals(members: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule.replace(".", r"\.")):
        put(Builder(), parse_json(document("a", **members)), 1)


def test_refused_campaigns_do_not_affect_others() -> None:
    builder = Builder()
    put(builder, parse_json(document("a", targeting={"os": {"include": ["ios"]}})), 1)
    before = builder.build()
    for wrong in ({"os": {"include": ["linux", "plan 9"]}}, {"city": {"include": [""]}}):
        with pytest.raises(ValueError, match="targeting"):
            put(builder, parse_json(document("b", targeting=wrong)), 2)
    assert builder.build() == before
