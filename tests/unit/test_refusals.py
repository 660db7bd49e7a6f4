"""The last rule that refused the campaigns for a request (contract 11)."""

import json
from typing import Any

import pytest
from support import matching_cases
from support.matching_cases import campaign_of, request_of
from support.snapshot import AROUND, RATES, Geo, snapshot_of, snapshot_of_world

from snapbid.bidding._bid_path import NoBid, propose
from snapbid.bidding.reasons import Reason
from snapbid.bidding.refusals import MOST_CAMPAIGNS, RULES, last_rule
from snapbid.bidding.request import decode
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.partners.diagnosis.document import RULES as MEANINGS

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
VIDEO: dict[str, Any] = {"creative": {"media": "video", "duration": 15, "mimes": ["video/mp4"]}}
LINK = {"url": "https://shop.example/"}
TITLE: dict[str, Any] = {
    "creative": {"media": "native", "native": {"title": "Shoes", "link": LINK}}
}
ICON = json.dumps({"assets": [{"id": 1, "required": 1, "img": {"type": 1}}]})
UNREADABLE: list[dict[str, Any]] = [
    *({}, {"request": ""}, {"request": "no JSON"}, {"request": "{}"}, {"request": 1}),
    {"request": json.dumps(json.dumps(ICON))},  # encoded three times
    {"request": ICON, "ver": "9"},
]
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
        ([DEAL], {"imp": {"pmp": {"deals": [{"id": "d", "bidfloor": 3}, {"id": "e"}]}}},
         "deal floor"),
        ([DEAL], {"imp": {"pmp": {"deals": [{"id": "d", "bidfloor": 1, "bidfloorcur": "XXX"}]}}},
         "deal floor"),
        ([DEAL | VIDEO], {"media": {"video": {}}, "imp": {"pmp": {"deals": [
            {"id": "d", "mincpmpersec": 1}]}}}, "deal floor"),
        ([{}], {"imp": {"pmp": {"private_auction": 1}}}, "private auction"),
        ([{}], {"media": {"banner": {"w": 1, "h": 1}}}, "size"),
        ([{}], {"media": {"banner": {"format": [{"w": 1, "h": 1}]}}}, "size"),
        ([{}], {"media": {"banner": {}}}, "size missing"),
        ([{}], {"media": {"banner": {"w": 300, "format": [{}], "pos": 1}}}, "size missing"),
        ([VIDEO], {"media": {"banner": {}}}, "format"),
        ([VIDEO, {}], {"media": {"banner": {}, "native": {"request": "no JSON"}}}, "size missing"),
        ([VIDEO, TITLE], {"media": {"banner": {}, "native": {"request": "no JSON"}}},
         "native request"),
        *(([TITLE], {"media": {"native": native}}, "native request") for native in UNREADABLE),
        ([TITLE], {"media": {"native": {"request": ICON}}}, "creative native"),
        ([{}], {"media": {"native": {"request": ICON}}}, "format"),
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


OF_LIMITS = {
    "floor.rate": "no campaigns",  # the impression is left out
    "frequency_caps.user": "no recognised user",
    "private_auction": "private auction",
    "bcat": "blocked category",
    "acat": "blocked category",
    "badv": "blocked advertiser",
    "bapp": "blocked app",
    "bseat": "seat",
    "wseat": "seat",
    "starts_at": "flight",
    "ends_at": "flight",
    "status": "no campaigns",
    "deal.rate": "deal floor",
    "deal.floor": "deal floor",
    "deal.mincpmpersec": "deal floor",
    "deal.durfloors": "deal floor",
    "deal.wseat": "deal terms",
    "deal.wadomain": "deal terms",
    "creative.size": "size",
    "creative.media": "format",
    "creative.mincpmpersec": "floor",
    "creative.durfloors": "floor",
    "creative.battr": "creative attributes",
    "creative.duration.unknown": "creative duration",
    "creative.minduration": "creative duration",
    "creative.maxduration": "creative duration",
    "creative.rqddurs": "creative duration",
    "creative.poddur": "creative duration",
    "creative.api": "creative apis",
    "creative.btype": "creative type",
    "creative.linearity": "creative linear",
    "creative.skip": "creative skippable",
}
"""The plain bidder's names of what refuses, where they differ."""
WITHOUT_CAMPAIGNS = {
    "cur": Reason.CURRENCY,
    "floor.rate": Reason.FLOOR_CURRENCY,
    "private_auction": Reason.PRIVATE_AUCTION,
    "creative.media": Reason.NO_MEDIA,
}
"""The reasons of requests for which no campaign is looked at, by what refuses."""
UNSTATED = {"creative.size": "size missing", "creative.native": "native request"}


def of_limit(refused: str) -> str:
    if refused in OF_LIMITS:
        return OF_LIMITS[refused]
    kind, _, name = refused.partition(".")
    if kind == "targeting":
        dimension = name.split(".")[0]
        return "audience" if dimension == "product" else dimension
    return refused.replace(".", " ")


@pytest.mark.parametrize(
    "case",
    [case for case in matching_cases.load(AROUND) if case.refused],
    ids=lambda each: each.name,
)
def test_the_only_rule_that_refuses_is_named(case: matching_cases.MatchingCase) -> None:
    made, now_ms = snapshot_of_world(case.world), round(case.world.now.timestamp() * 1000)
    request = decode(json.dumps(case.request).encode())
    decided = propose(request, case.descriptor, made, now_ms)
    assert isinstance(decided, NoBid)
    assert case.refused is not None
    if decided.reason is Reason.NO_CAMPAIGN:
        named = last_rule(request, case.descriptor, made, now_ms)
        assert named in (of_limit(case.refused), UNSTATED.get(case.refused))
    else:
        assert decided.reason is WITHOUT_CAMPAIGNS.get(case.refused)


PLAIN = {"media": "banner", "w": 300, "h": 250, "adm": "-"}
NOT_SECURE = {"id": "a", **PLAIN, "secure": False}
EXPANDS = {"id": "b", **PLAIN, "attributes": [3]}
SILENT = {"id": "d", **PLAIN}
TITLED = {"id": "c", **TITLE["creative"]}


@pytest.mark.parametrize(
    ("campaigns", "wanted"),
    [
        ([[NOT_SECURE]], "creative secure"),
        ([[NOT_SECURE, EXPANDS]], "creative attributes"),
        ([[NOT_SECURE], [EXPANDS]], "creative attributes"),
        ([[EXPANDS], [NOT_SECURE, TITLED]], "creative attributes"),
        ([[EXPANDS, SILENT]], "creative language"),
    ],
)
def test_the_limit_that_keeps_the_last_creative_is_named(
    campaigns: list[list[dict[str, Any]]], wanted: str
) -> None:
    """Whatever keeps the others, and though the impression has a native request, too, if unread."""
    made = snapshot(*({"campaign": {"creatives": creatives}} for creatives in campaigns))
    banner = {"w": 300, "h": 250, "battr": [3]}
    imp = {"secure": 1, "banner": banner, "native": {"request": "no JSON"}}
    request = {"wlang": ["nl"]} if wanted == "creative language" else {}
    assert rule(made, media={}, imp=imp, request=request) == wanted


def test_the_placement_of_a_native_request_remains_without_its_limits() -> None:
    targeting = {"placement": {"include": ["n4"]}}
    made = snapshot({"campaign": {"targeting": targeting, "creatives": [NOT_SECURE]}})
    native = {"request": {"plcmttype": 4, **json.loads(ICON)}}
    imp = {"secure": 1, "banner": {"w": 300, "h": 250}, "native": native}
    assert rule(made, media={}, imp=imp) == "creative secure"


def test_every_rule_has_a_meaning() -> None:
    """Of its own, unless it is a dimension of targeting."""
    assert set(MEANINGS) <= RULES
    assert {rule for rule in RULES - set(MEANINGS) if " " in rule} == set()


def test_the_impression_that_got_furthest_decides() -> None:
    small: dict[str, Any] = {"banner": {"w": 1, "h": 1}}
    dear: dict[str, Any] = {"banner": {"w": 300, "h": 250}, "bidfloor": 9}
    for imps in ([small, dear], [dear, small]):
        numbered: list[dict[str, Any]] = [
            {"id": str(number)} | imp for number, imp in enumerate(imps)
        ]
        assert rule(snapshot({}), request={"imp": numbered}) == "floor"


def test_spent_campaigns_are_named_only_where_they_would_bid() -> None:
    """And goes on without: looking lets nothing bid."""
    spent = snapshot({"campaign": {"budget": {"daily": 1}}}, {"creative": {"w": 9, "h": 9}})
    rank = spent.catalog.index.rank("c0")
    assert rank is not None
    spent.refuse(rank, 0, 1)
    assert rule(spent) == "budget"
    assert rule(spent, media={"banner": {"w": 1, "h": 1}}) == "size"
    assert rule(spent) == "budget"


def test_many_campaigns_are_sampled_across_prices() -> None:
    many = [{"campaign": {"cpm": 1 + n / 10}, **GERMAN} for n in range(2 * MOST_CAMPAIGNS + 1)]
    assert rule(snapshot(*many), **AMERICAN) == "country"
