"""Campaigns that can never bid or are not paced: warnings of `campaign import` and `check`."""

import json
from typing import Any

import pytest
from support.commands import invoke

from snapbid.campaigns.document import parse
from snapbid.campaigns.review import why_never_bids

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
