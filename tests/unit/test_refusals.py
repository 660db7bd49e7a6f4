"""The last rule that stood between a request and the campaigns (contract 11)."""

import json
from typing import Any

import pytest
from support.matching_cases import campaign_of, request_of
from support.snapshot import RATES, Geo, snapshot_of

from snapbid.bidding.bid import CatalogSnapshot
from snapbid.bidding.refusals import MOST_CAMPAIGNS, RULES, last_rule
from snapbid.bidding.request import decode

NOW_MS = 1_767_225_600_000


def snapshot(*campaigns: dict[str, Any]) -> CatalogSnapshot:
    """Campaigns with what differs from the plain one, a banner of 300x250 for 2 USD."""
    named = [campaign_of(one) | {"id": f"c{number}"} for number, one in enumerate(campaigns)]
    return snapshot_of(named, {"acme": "acme"}, RATES, Geo())


def rule(snapshot: CatalogSnapshot, **edits: Any) -> str:
    request = decode(json.dumps(request_of(edits)).encode())
    return last_rule(request, "acme", snapshot, NOW_MS)


GERMAN: dict[str, Any] = {"campaign": {"targeting": {"country": {"include": ["DEU"]}}}}
DEAL: dict[str, Any] = {"campaign": {"targeting": {"deal": {"include": ["d"]}}}}
AMERICAN: dict[str, Any] = {"request": {"device": {"geo": {"country": "USA"}}}}
OFFERED: dict[str, Any] = {"imp": {"pmp": {"deals": [{"id": "d", "bidfloor": 3}]}}}


@pytest.mark.parametrize(
    ("campaigns", "request_", "wanted"),
    [
        ([], {}, "no campaigns"),
        ([{"campaign": {"status": "paused"}}], {}, "no campaigns"),
        ([{"campaign": {"ends_at": "2020-01-01T00:00:00Z"}}], {}, "flight"),
        ([GERMAN], AMERICAN, "country"),
        ([DEAL], {}, "deal"),
        ([DEAL], OFFERED, "deal floor"),
        ([DEAL], {"imp": {"pmp": {"deals": [{"id": "d", "wseat": ["s"]}]}}}, "deal terms"),
        ([DEAL], {"imp": {"pmp": {"deals": [{"id": "d", "bidfloor": 2, "wseat": ["s"]}]}}},
         "deal terms"),
        ([{}], {"imp": {"pmp": {"private_auction": 1}}}, "private auction"),
        ([{}], {"media": {"banner": {"w": 1, "h": 1}}}, "size"),
        ([{}], {"media": {"banner": {"format": [{"w": 1, "h": 1}]}}}, "size"),
        ([{}], {"media": {"video": {"mimes": ["video/mp4"]}}}, "format"),
        ([{}], {"imp": {"bidfloor": 2.01}}, "floor"),
        ([{}], {"request": {"wseat": ["s"]}}, "seat"),
        ([{"campaign": {"bundle": "b"}}], {"request": {"bapp": ["b"]}}, "blocked app"),
        ([{}], {"request": {"badv": ["brand.example"]}}, "blocked advertiser"),
        ([{"campaign": {"categories": ["IAB1"]}}], {"request": {"bcat": ["IAB1"]}},
         "blocked category"),
        ([{}], {"request": {"regs": {"dsa": {"dsarequired": 3}}}}, "dsa"),
        ([{"campaign": {"targeting": {"geo_radius": [{"lat": 0, "lon": 0, "km": 1}]}}}], {},
         "geo_radius"),
        ([{"creative": {"attributes": [1]}}], {"media": {"banner": {"w": 300, "h": 250,
                                                                    "battr": [1]}}}, "creative"),
        ([{"campaign": {"frequency_caps": [{"impressions": 1, "seconds": 9}]}}], {},
         "no recognised user"),
        # The campaign that comes furthest tells, whatever keeps the others.
        ([{"campaign": {"status": "paused"}}, GERMAN], AMERICAN, "country"),
        ([GERMAN, {"creative": {"w": 1, "h": 1}}], AMERICAN, "size"),
        ([GERMAN, DEAL, {"creative": {"w": 1, "h": 1}}, {}], AMERICAN | {"imp": {"bidfloor": 9}},
         "floor"),
        ([{}, {"campaign": {"cpm": 9}}], {"imp": {"bidfloor": 5},
                                          "request": {"badv": ["brand.example"]}},
         "blocked advertiser"),
    ],
)  # fmt: skip
def test_the_last_rule(
    campaigns: list[dict[str, Any]], request_: dict[str, Any], wanted: str
) -> None:
    assert rule(snapshot(*campaigns), **request_) == wanted
    assert wanted in RULES


def test_of_several_impressions_the_one_that_came_furthest_tells() -> None:
    small: dict[str, Any] = {"banner": {"w": 1, "h": 1}}
    dear: dict[str, Any] = {"banner": {"w": 300, "h": 250}, "bidfloor": 9}
    for imps in ([small, dear], [dear, small]):
        numbered: list[dict[str, Any]] = [
            {"id": str(number)} | imp for number, imp in enumerate(imps)
        ]
        assert rule(snapshot({}), request={"imp": numbered}) == "floor"


def test_a_campaign_without_budget_is_told_of_only_where_it_would_bid() -> None:
    """And goes on without: looking lets nothing bid."""
    spent = snapshot({"campaign": {"budget": {"daily": 1}}}, {"creative": {"w": 9, "h": 9}})
    rank = spent.catalog.index.rank("c0")
    assert rank is not None
    spent.refuse(rank, 0, 1)
    assert rule(spent) == "budget"
    assert rule(spent, media={"banner": {"w": 1, "h": 1}}) == "size"
    assert rule(spent) == "budget"


def test_of_many_campaigns_some_of_each_price_are_looked_at() -> None:
    many = [{"campaign": {"cpm": 1 + n / 10}, **GERMAN} for n in range(2 * MOST_CAMPAIGNS + 1)]
    assert rule(snapshot(*many), **AMERICAN) == "country"
