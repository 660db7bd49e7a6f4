"""Creatives as `campaign import` judges them: taken, with warnings or not, or refused (contract 2).

A case has a creative, and all its `mistakes` or `warnings`. Of VAST, where each case deviates in
one thing, a player judges whether it plays: what is taken does, and what is refused does not,
unless `plays` says so.
"""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from support.vast import why_not_played

from snapbid.campaigns.campaign import CampaignError, CampaignMistake
from snapbid.campaigns.campaign_file import read_file

CASES = Path(__file__).parent / "cases" / "creative"
KNOWN: list[tuple[str, dict[str, Any]]] = [
    (path.stem, case)
    for path in sorted(CASES.glob("*.json"))
    for case in json.loads(path.read_text(encoding="utf-8"))
]


def imported(creative: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The mistakes and the warnings of a campaign with this creative."""
    creatives = [{"id": "c", **creative}]
    document = {"id": "c", "advertiser": "shop.example", "cpm": 1, "creatives": creatives}
    mistakes: tuple[CampaignMistake, ...] = ()
    warnings: list[CampaignMistake] = []
    try:
        assert [*read_file("a.jsonl", BytesIO(json.dumps(document).encode()), warnings)]
    except CampaignError as error:
        mistakes = error.mistakes
    return [*map(said, mistakes)], [*map(said, warnings)]


def said(mistake: CampaignMistake) -> str:
    assert mistake.line == 1
    return f"{mistake.field.removeprefix('creatives[0].')}: {mistake.rule}"


@pytest.mark.parametrize(
    "case", [case for _, case in KNOWN], ids=[f"{stem}: {case['case']}" for stem, case in KNOWN]
)
def test_import(case: dict[str, Any]) -> None:
    mistakes, warnings = imported(case["creative"])
    assert mistakes == case.get("mistakes", [])
    if not mistakes:
        assert warnings == case.get("warnings", [])


def test_a_player_judges() -> None:
    cases = [case for stem, case in KNOWN if stem.startswith("vast")]
    verdicts = why_not_played([case["creative"]["adm"] for case in cases])
    for case, why in zip(cases, verdicts, strict=True):
        plays = case.get("plays", "mistakes" not in case)
        assert (why is None) is plays, (case["case"], why)
