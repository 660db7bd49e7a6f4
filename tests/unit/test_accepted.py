"""What is read quickly from a campaign file is what the long way reads, and refused alike."""

import json
import random
import re
from io import BytesIO
from typing import Any

import pytest
from support import strategies

from snapbid.match import campaign_file
from snapbid.match.accepted import id_of
from snapbid.match.campaign import CampaignError
from snapbid.match.campaign_file import read_file

CREATIVE = {"id": "a", "media": "banner", "w": 300, "h": 250, "adm": '<p title="a": b>"x": 1</p>'}
BASE: dict[str, Any] = {"id": "c1", "advertiser": "shop.example", "cpm": 2, "creatives": [CREATIVE]}


def outcome(text: str) -> Any:
    try:
        return list(read_file("a.jsonl", BytesIO(text.encode())))
    except CampaignError as error:
        return list(map(str, error.mistakes))


def damaged(rng: random.Random, text: str) -> str:
    """The text with one key twice, or another string in the place of one, or cut."""
    kind = rng.randrange(4)
    if kind == 0:
        return text[: rng.randrange(len(text))]
    match = rng.choice(list(re.finditer(r'"(\w+)"( *):' if kind < 3 else r'"[^"\\]*"', text)))
    inserted = f'"{match[1]}" : null, ' if kind < 3 else rng.choice(['"zz"', '"\\\\"', "7", "null"])
    return text[: match.start()] + inserted + text[match.start() if kind < 3 else match.end() :]


@pytest.mark.parametrize("seed", range(4))
def test_quickly_or_not(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"accepted {seed}")
    world = strategies.random_world(seed, 60, strategies.Surroundings())
    right = [json.dumps(each, ensure_ascii=False) for each in world.campaigns]
    texts = right + [damaged(rng, text) for text in right for _ in range(8)]
    quick = [outcome(text) for text in texts]
    assert sum(id_of(text.encode()) is not None for text in right) > len(right) / 2
    monkeypatch.setattr(campaign_file, "id_of", lambda _: None)
    for text, result in zip(texts, quick, strict=True):
        assert outcome(text) == result, text
    assert {type(result[0]) for result in quick} == {tuple, str}


def test_the_usual_ones_are_accepted() -> None:
    targeting = {
        "country": {"include": ["us", "DE"]},
        "hour": {"exclude": [3, 4]},
        "geo_radius": [{"lat": 1, "lon": -2.5, "km": 3}],
    }
    more = {"budget": {"daily": 3}, "frequency_caps": [{"impressions": 3, "seconds": 60}]}
    whole = {**BASE, "targeting": targeting, **more, "budget": None, "name": "Été"}
    for document in (BASE, whole, {**whole, "budget": {"daily": 1, "pacing": "even"}}):
        assert id_of(json.dumps(document, ensure_ascii=False).encode()) == "c1"


@pytest.mark.parametrize(
    "change",
    [
        {"targeting": {"country": {"include": ["USA", "XX"]}}},
        {"targeting": {"hour": {"include": [168]}}},
        {"targeting": {"colour": {"include": ["red"]}}},
        {"cpm": 0},
        {"advertiser": "shop"},
    ],
)
def test_what_is_left_to_the_long_way(change: dict[str, Any]) -> None:
    for _ in range(2):  # nothing wrong is remembered as right
        assert id_of(json.dumps({**BASE, **change}).encode()) is None
