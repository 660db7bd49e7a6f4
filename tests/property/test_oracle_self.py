"""The oracle itself: the sentences of the contract by example, and what its generators reach."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from support import consent, matching_cases, pools, strategies
from support.oracle import (
    Document,
    Malformed,
    Offer,
    World,
    distance_km,
    micros,
    offers,
    refusal,
    refusals,
    rules,
    slots,
)
from support.oracle_reading import read_request
from support.oracle_spending import MOST_QUANTITY
from support.snapshot import AROUND

from snapbid.campaigns.document import parse
from snapbid.reference import agents, countries

CASES = matching_cases.load()
BANNER = {"banner": {"w": 300, "h": 250}}
EDGE = 1e-6
"""How near, relatively, no random point may come to a random circle."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sentence(case: matching_cases.MatchingCase) -> None:
    imp, campaign = case.request["imp"][0], case.world.campaigns[0]

    refused = refusals(case.world, case.descriptor, case.request, imp, campaign)

    assert refused == ([case.refused] if case.refused else [])
    expected = {Offer("c", "k", case.deal, micros(campaign["cpm"]))}
    given_offers = offers(case.world, case.descriptor, case.request)
    assert given_offers == {"1": set() if case.refused else expected}


def world_of(*campaigns: Document) -> World:
    """Give a world of campaigns that differ from a plain one."""
    plain = matching_cases.case_of("plain", {"says": "plain"}, strategies.Surroundings()).world
    plain.campaigns = [matching_cases.campaign_of({"campaign": each}) for each in campaigns]
    return plain


def test_highest_cpm_wins() -> None:
    world = world_of({"id": "low", "cpm": 1}, {"id": "high", "cpm": 1.000001})

    assert offers(world, "acme", {"id": "a", "imp": [{"id": "1", **BANNER}]}) == {
        "1": {Offer("high", "k", None, 1_000_001)}
    }


def test_the_next_campaign_answers_for_a_refused_one() -> None:
    world = world_of({"id": "low", "cpm": 1}, {"id": "high", "cpm": 3, "seat": "blocked"})
    request = {"id": "a", "bseat": ["blocked"], "imp": [{"id": "1", **BANNER}]}

    assert offers(world, "acme", request) == {"1": {Offer("low", "k", None, 1_000_000)}}


def test_every_tie_and_fitting_creative_is_acceptable() -> None:
    creative = {"media": "banner", "adm": "x", "w": 300, "h": 250}
    creatives = [creative | {"id": "x"}, creative | {"id": "y"}, creative | {"id": "z", "w": 1}]
    world = world_of({"id": "a"}, {"id": "b", "creatives": creatives}, {"id": "c", "cpm": 1})

    assert offers(world, "acme", {"id": "r", "imp": [{"id": "1", **BANNER}]}) == {
        "1": {
            Offer("a", "k", None, 2_000_000),
            Offer("b", "x", None, 2_000_000),
            Offer("b", "y", None, 2_000_000),
        }
    }


def test_impressions_are_decided_one_by_one() -> None:
    world = world_of(
        {"id": "a"}, {"id": "b", "cpm": 3, "targeting": {"position": {"include": [1]}}}
    )
    first = {"id": 1, **BANNER}
    second = {"id": "2", "banner": {"w": 300, "h": 250, "pos": 1}}
    third = {"id": "3", "bidfloor": 4, **BANNER}

    assert offers(world, "acme", {"id": "r", "imp": [first, second, third]}) == {
        "1": {Offer("a", "k", None, 2_000_000)},
        "2": {Offer("b", "k", None, 3_000_000)},
        "3": set(),
    }


def test_every_refusing_rule_is_named_and_the_first_is_the_refusal() -> None:
    campaign = {"status": "paused", "cpm": 1, "categories": ["IAB1-1"]}
    world = world_of(campaign)
    imp = {"id": "1", "bidfloor": 2, "banner": {"w": 1, "h": 1}}
    request = {"id": "a", "bcat": ["IAB1"], "imp": [imp]}

    refused = refusals(world, "acme", request, imp, world.campaigns[0])

    assert refused == ["status", "bcat", "floor", "creative.size"]
    assert refusal(world, "acme", request, imp, world.campaigns[0]) == "status"


def test_unregistered_descriptors() -> None:
    with pytest.raises(KeyError, match="acme3"):
        offers(world_of({}), "acme3", {"id": "a", "imp": [{"id": "1", **BANNER}]})


@pytest.mark.parametrize(
    "request_part",
    [
        {"device": {"devicetype": {}}},
        {"device": {"devicetype": 4.5}},
        {"device": {"carrier": ["x", "y"]}},
        {"device": {"carrier": [["x"]]}},
        {"device": "phone"},
        {"bcat": {"IAB1": 1}},
        {"site": {"publisher": {"id": True}}},
    ],
)
def test_meaningless_types(request_part: Document) -> None:
    with pytest.raises(Malformed):
        offers(world_of({}), "acme", {"id": "a", "imp": [{"id": "1", **BANNER}], **request_part})


def test_distances() -> None:
    quarter = 6371.0088 * 3.141592653589793 / 2

    assert distance_km((0, 0), (0, 90)) == pytest.approx(quarter)
    assert distance_km((90, 0), (0, 123)) == pytest.approx(quarter)
    assert distance_km((10, -179), (10, 179)) == pytest.approx(219.0, abs=0.1)
    assert distance_km((5, 5), (5, 5)) == 0


# The generators


def test_no_random_point_is_near_the_edge_of_a_random_circle() -> None:
    for point, centre, radius in product(pools.POINTS, pools.CENTRES, pools.RADII_KM):
        assert abs(distance_km(point, centre) / radius - 1) > EDGE


def test_a_seed_makes_the_same_world_and_requests() -> None:
    first, again = strategies.random_world(7, 20), strategies.random_world(7, 20)

    assert first == again
    assert first != strategies.random_world(8, 20)
    requests = [strategies.random_request(random.Random(3), first) for _ in range(2)]
    assert requests[0] == requests[1]


def test_random_campaigns_are_valid() -> None:
    for document in strategies.random_world(1, campaigns=500).campaigns:
        assert parse(document).cpm_micros == micros(document["cpm"])


@settings(max_examples=50)
@given(strategies.cases())
def test_offers_are_those_that_nothing_refuses(case: strategies.Case) -> None:
    world, given_offers = case.world, offers(case.world, case.descriptor, case.request)
    facts = read_request(world, case.descriptor, case.request)
    for slot in slots(world, facts, case.request):
        here = given_offers[slot.id]
        price = max((offer.price_micros for offer in here), default=0)
        for campaign in world.campaigns if slot.quantity <= MOST_QUANTITY else ():
            first = next(rules(world, facts, slot, campaign), None)
            offered = any(offer.campaign == campaign["id"] for offer in here)
            assert offered == (first is None and micros(campaign["cpm"]) == price)
            assert first is not None or micros(campaign["cpm"]) <= price


# The tables of the product that take the place of the small ones


def test_the_product_reads_the_pools_as_the_oracle_does() -> None:
    codes = [*pools.COUNTRY_CODES, *pools.ENTRIES["country"], *pools.COUNTRIES]
    assert [countries.alpha3(code) for code in codes] == [pools.alpha3(code) for code in codes]
    assert {ua: agents.parse(ua) for ua in pools.AGENTS} == pools.AGENTS
    assert {name: agents.fold_os(name) for name in pools.SYSTEMS} == pools.SYSTEMS


def test_the_product_reads_consent_strings_by_their_known_meaning() -> None:
    nothing: Document = {
        **dict.fromkeys(("coppa", "gpc", "gdpr"), False),
        **dict.fromkeys(("consents", "us_privacy", "gpp", "gpp_sid"), ()),
        "gvl_id": None,
    }
    strings = [
        nothing,
        *({**nothing, name: True} for name in ("coppa", "gpc", "gdpr")),
        *(
            {**nothing, "gdpr": gdpr, "consents": consents, "gvl_id": vendor}
            for gdpr in (False, True)
            for consents in ((), *((text,) for text in consent.TCF), tuple(consent.TCF)[:2])
            for vendor in (None, consent.VENDOR)
        ),
        *({**nothing, "us_privacy": (text,)} for text in consent.US_PRIVACY),
        *(
            {**nothing, "gpp": (gpp,), "gpp_sid": listed, "consents": consents}
            for gpp, said in consent.GPP.items()
            for listed in ((), *((section,) for section in range(-2, 30)), tuple(said.sections))
            for consents in ((), tuple(consent.TCF)[:1])
        ),
    ]
    allowed = AROUND.may_use_user_data
    for inputs in strings:
        assert allowed(**inputs) == consent.may_use_user_data(**inputs), inputs
