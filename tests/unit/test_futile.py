"""Campaigns that cannot bid as they were meant to: warnings of `campaign import` and `check`."""

import json
from datetime import datetime
from typing import Any

import pytest
from support.commands import invoke

from snapbid.campaigns.document import parse
from snapbid.campaigns.review import why_never_bids
from snapbid.cli import console
from snapbid.reference import agents, countries

CAMPAIGN: dict[str, Any] = {
    "id": "c",
    "advertiser": "shop.example",
    "cpm": 2.5,
    "creatives": [{"id": "n", "media": "banner", "adm": "<p></p>", "w": 1, "h": 1}],
}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"ends_at": "2020-01-01T00:00:00Z"}, "ends_at is in the past"),
        ({"ends_at": "2999-01-01T00:00:00Z"}, None),
        (
            {"targeting": {"hour": {"include": [1, 2], "exclude": [2, 1, 3]}}},
            "targeting.hour excludes all that it includes",
        ),
        ({"targeting": {"hour": {"include": [1, 2], "exclude": [2]}}}, None),
        (
            {"targeting": {"domain": {"include": ["news.a.example"], "exclude": ["a.example"]}}},
            "targeting.domain excludes all that it includes",
        ),
        ({"targeting": {"domain": {"include": ["a.example"], "exclude": ["n.a.example"]}}}, None),
        ({"targeting": {"domain": {"include": ["ba.example"], "exclude": ["a.example"]}}}, None),
        (
            {"targeting": {"category": {"include": ["IAB3-1", "IAB4"], "exclude": ["IAB3"]}}},
            None,
        ),
        (
            {"targeting": {"category": {"include": ["IAB3-1", "iab-3"], "exclude": ["IAB3"]}}},
            "targeting.category excludes all that it includes",
        ),
        ({"targeting": {"category": {"include": ["IAB3"], "exclude": ["IAB3-1"]}}}, None),
        ({"targeting": {"category": {"include": ["IAB23"], "exclude": ["IAB2"]}}}, None),
        (
            {"targeting": {"region": {"include": ["USA-CA"]}, "country": {"include": ["CAN"]}}},
            "targeting.region includes only regions of other countries than targeting.country",
        ),
        (
            {"targeting": {"region": {"include": ["us-CA"]}, "country": {"exclude": ["USA"]}}},
            "targeting.region includes only regions of other countries than targeting.country",
        ),
        (
            {
                "targeting": {
                    "region": {"include": ["us-CA", "CAN-QC"]},
                    "country": {"include": ["CA"]},
                }
            },
            None,
        ),
        (
            {"targeting": {"region": {"exclude": ["us-CA"]}, "country": {"include": ["CA"]}}},
            None,
        ),
        ({"targeting": {"hour": {"exclude": [2]}}}, None),
        (
            {"targeting": {"hour": {"exclude": [*range(168)]}}},
            "targeting.hour excludes every value",
        ),
        ({"targeting": {"hour": {"exclude": [*range(167)]}}}, None),
        (
            {"targeting": {"rewarded": {"exclude": [1, 0]}}},
            "targeting.rewarded excludes every value",
        ),
        (
            {"targeting": {"interstitial": {"exclude": [0, 1]}}},
            "targeting.interstitial excludes every value",
        ),
        ({"budget": {"daily": 0.002499}}, "budget.daily is below the cost of one win, 0.0025 USD"),
        ({"budget": {"total": 0.001}}, "budget.total is below the cost of one win, 0.0025 USD"),
        ({"budget": {"daily": 0.0025, "total": 0.0025}}, None),
    ],
)
def test_campaigns_that_can_never_bid(more: dict[str, Any], why: str | None) -> None:
    done = invoke({}, "campaign", "check", "-", input=json.dumps(CAMPAIGN | more))
    assert done.returncode == 0
    assert done.stderr == ("" if why is None else f"warning: campaign c can never bid: {why}\n")


@pytest.mark.parametrize(
    ("budget", "is_paced"),
    [
        ({"total": 100, "pacing": "even"}, False),
        ({"pacing": "even"}, False),
        ({"daily": 10, "total": 100, "pacing": "even"}, True),
        ({"total": 100, "pacing": "asap"}, True),
        ({"total": 100}, True),
    ],
)
def test_budgets_with_ineffective_pacing(budget: dict[str, Any], is_paced: bool) -> None:
    done = invoke({}, "campaign", "check", "-", input=json.dumps(CAMPAIGN | {"budget": budget}))
    assert done.returncode == 0
    assert ("campaign c is not paced: budget.pacing is even" in done.stderr) is not is_paced


def test_campaigns_are_over_at_their_end() -> None:
    campaign = parse(CAMPAIGN | {"ends_at": "2026-03-04T12:00:00Z"})
    assert campaign.ends_at_ms is not None
    assert why_never_bids(campaign, campaign.ends_at_ms - 1) is None
    assert why_never_bids(campaign, campaign.ends_at_ms) == "ends_at is in the past"


@pytest.mark.parametrize(
    ("hours", "now", "is_left"),
    [
        ({"include": [58]}, "00:00", False),  # Wednesday 10:00
        ({"include": [59]}, "00:00", True),
        ({"include": [59]}, "11:59", True),
        ({"include": [59]}, "12:00", False),
        ({"include": [60, 61]}, "12:00", True),
        ({"include": [61]}, "13:00", True),
        ({"include": [62]}, "00:00", False),
        ({"include": [58, 61], "exclude": [61]}, "00:00", False),
        ({"exclude": [59, 60, 61]}, "00:00", False),
        ({"exclude": [59, 61]}, "00:00", True),
        ({"exclude": [60, 61]}, "12:00", False),
    ],
)
def test_hours_that_a_flight_does_not_have(
    hours: dict[str, list[int]], now: str, is_left: bool
) -> None:
    flight = {"starts_at": "2026-03-04T11:30:00Z", "ends_at": "2026-03-04T13:00:00.001Z"}
    campaign = parse(CAMPAIGN | flight | {"targeting": {"hour": hours}})
    now_ms = int(datetime.fromisoformat(f"2026-03-04T{now}Z").timestamp()) * 1000
    why = "targeting.hour admits no hour that is left between starts_at and ends_at"
    assert why_never_bids(campaign, now_ms) == (None if is_left else why)


@pytest.mark.parametrize("ends", [{}, {"ends_at": "2026-03-11T11:00:00Z"}])
def test_a_flight_of_a_week_has_every_hour(ends: dict[str, str]) -> None:
    flight = {"starts_at": "2026-03-04T11:00:00Z"} | ends
    for hour in range(168):
        campaign = parse(CAMPAIGN | flight | {"targeting": {"hour": {"include": [hour]}}})
        assert why_never_bids(campaign, 0) is None


@pytest.mark.parametrize(
    ("dimension", "excluded"),
    [
        ("inventory", ["site", "app", "dooh"]),
        ("browser", [*agents.BROWSERS]),
        ("os", [*agents.SYSTEMS]),
        ("country", [*countries.ALPHA3]),
    ],
)
def test_dimensions_without_an_admitted_value(dimension: str, excluded: list[str]) -> None:
    why = f"only on requests without {dimension}: targeting.{dimension} excludes every value"
    assert warned({"targeting": {dimension: {"exclude": excluded}}}) == [f"campaign c bids {why}"]
    assert warned({"targeting": {dimension: {"exclude": excluded[1:]}}}) == []
    (both,) = warned({"targeting": {dimension: {"include": excluded[:1], "exclude": excluded}}})
    assert both.endswith(f"can never bid: targeting.{dimension} excludes all that it includes")


@pytest.mark.parametrize(
    ("dimension", "entry", "instead"),
    [
        ("bundle", "https://apps.apple.com/us/app/x/id553834731", "'553834731'"),
        ("bundle", "https://apps.apple.com/us/app/id-photo/id553834731?mt=8", "'553834731'"),
        ("bundle", "apps.apple.com/app/id553834731/", "'553834731'"),
        ("bundle", "https://play.google.com/store/apps/details?id=com.a&hl=en", "'com.a'"),
        ("bundle", "market://details?hl=en&id=com.a", "'com.a'"),
        ("bundle", "https://channelstore.roku.com/details/x", "the app's id"),
        ("bundle", "id553834731", "'553834731'"),
        ("bundle", "ID553834731", "'553834731'"),
        ("bundle", "com.a, com.b", "'com.a', 'com.b'"),
        ("bundle", "com.a;com.b", "'com.a', 'com.b'"),
        ("bundle", "com.a\r\nid1\n", "'com.a', '1'"),
        ("bundle", "com.a com.b|com.c", "'com.a', 'com.b', 'com.c'"),
        ("bundle", "com\u200b.a", "'com.a'"),
        ("bundle", ",", "an id"),
        ("publisher", "pub-1,pub-2", "'pub-1', 'pub-2'"),
        ("publisher", "\ufeffpub-1", "'pub-1'"),
        ("segment", "a b; c", "'a b', 'c'"),
        ("deal", "d1\nd2", "'d1', 'd2'"),
        ("bundle", "com.a_b-c", None),
        ("bundle", "id.co.shop", None),
        ("bundle", "id12a", None),
        ("publisher", "id12", None),
        ("segment", "a b|c/d", None),
        ("deal", "Größe 1", None),
    ],
)
def test_entries_that_are_not_ids_as_requests_have_them(
    dimension: str, entry: str, instead: str | None
) -> None:
    named: list[tuple[str, dict[str, Any]]] = [
        ("includes", {"targeting": {dimension: {"include": ["x", entry]}}}),
        ("excludes", {"targeting": {dimension: {"exclude": [entry]}}}),
    ]
    if dimension == "bundle":
        named.append(("advertises", {"bundle": entry}))
    for verb, more in named:
        entered = f"campaign c {verb} the {dimension} {entry.strip()!r}"
        rule = f"{entered}, which is compared as it is written: write {instead}"
        assert warned(more) == ([] if instead is None else [console.one_line(rule)])


@pytest.mark.parametrize("id", [" e1 ", "e1\n", "e1\xa0", "e1\u200b", "\ufeffe1", "e\xad1"])
def test_ids_that_look_like_others(id: str) -> None:
    (warning,) = warned({"id": id})
    assert warning == (
        f"campaign {id!r} is another than 'e1': its id has white space around it, or invisible "
        "characters"
    )


@pytest.mark.parametrize("id", ["e1", "e 1", "Größe 1", "e\u0301"])
def test_ids_that_look_like_no_others(id: str) -> None:
    assert warned({"id": id}) == []


def warned(more: dict[str, Any]) -> list[str]:
    done = invoke({}, "campaign", "check", "-", input=json.dumps(CAMPAIGN | more))
    assert done.returncode == 0
    return [line.removeprefix("warning: ") for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("more", "unknown"),
    [
        ({}, ["includes the category 'IAB99-1'", "excludes the category 'SPORTS'"]),
        ({"cattax": 7}, ["includes the category 'IAB99-1'", "excludes the category 'SPORTS'"]),
        ({"cattax": 500}, []),
    ],
)
def test_categories_that_no_taxonomy_has(more: dict[str, Any], unknown: list[str]) -> None:
    values = {"include": ["IAB99-1", "iab-3", "596", "jlbcu7"], "exclude": ["Sports", "IAB03_1"]}
    document = CAMPAIGN | more | {"targeting": {"category": values}}
    done = invoke({}, "campaign", "check", "-", input=json.dumps(document))
    assert done.returncode == 0
    rule = "which no taxonomy of the IAB has: it matches only a publisher's own category"
    assert done.stderr.splitlines() == [f"warning: campaign c {each}, {rule}" for each in unknown]
