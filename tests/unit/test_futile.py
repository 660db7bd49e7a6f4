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
