"""Stored documents make the index that `document.parse` and `put` make of them, quickly or not."""

import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support import strategies

from snapbid.match import document, stored
from snapbid.match.campaign import CampaignError
from snapbid.match.compile import Builder, put

CASES = Path(__file__).parents[1] / "conformance" / "cases" / "campaign"
CREATIVE = {"id": "a", "media": "banner", "w": 300, "h": 250, "adm": "<p>Hello</p>"}
BASE = {"id": "c1", "advertiser": "shop.example", "cpm": 2.5, "creatives": [CREATIVE]}
STRANGE: list[Any] = [
    None, "", [], {}, 0, -1, 1.5, 300.0, True, "1", "x" * 513, "é" * 257, "é" * 256, 2**31, 2**64,
    "{{imp_id}}", "{{imp_id}}{{x}}", "{{ imp_id }}", "{{{{", "\ud800", "a\0b", ["a", "a"], [None],
    [1, 1], [[]], {"include": ["a"]}, "2030-01-31T00:00:00Z", "2030-01-31", "A.Example.",
]  # fmt: skip


def put_slowly(builder: Builder, text: str, number: int) -> None:
    put(builder, document.parse(document.decode(text)), number)


def put_quickly(builder: Builder, text: str, number: int) -> None:
    stored.insert(builder, text.encode(), number)


def outcome(builder: Builder, insert: Any, text: str) -> Any:
    try:
        insert(builder, text, 7)
    except CampaignError as error:
        return list(map(str, error.mistakes))
    except ValueError as error:
        return type(error)
    return bytes(builder.build())


def assert_same(text: str) -> None:
    slow = outcome(Builder(), put_slowly, text)
    assert outcome(stored.new_builder(), put_quickly, text) == slow, text


def is_quick(text: str) -> bool:
    campaign = stored.read_quickly(text.encode())
    if campaign is None:
        return False
    put(stored.new_builder(), campaign, 7)
    return True


def example_documents() -> Iterator[Any]:
    for path in sorted(CASES.glob("*.json")):
        for case in json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal):
            if "file" not in case:
                changed = {**BASE, **case.get("change", {})}
                removed = case.get("remove", ())
                yield case.get(
                    "document", {key: changed[key] for key in changed if key not in removed}
                )


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        yield (*above, key)
        if isinstance(item, dict | list):
            yield from places(item, (*above, key))


def changed(random: random.Random, value: Any) -> Any:
    """A copy in which one value is another, or has become a key's."""
    copy = json.loads(json.dumps(value))
    *path, last = random.choice(list(places(copy)))
    inside = copy
    for key in path:
        inside = inside[key]
    if random.random() < 0.1 and isinstance(inside, dict):
        inside[random.choice(["x", "name", "geo_radius", "w"])] = inside.pop(last)
    else:
        inside[last] = random.choice(STRANGE)
    return copy


def test_the_examples() -> None:
    for each in example_documents():
        assert_same(json.dumps(each, default=float))


@pytest.mark.parametrize("seed", range(5))
def test_random_campaigns_and_damaged_ones(seed: int) -> None:
    rng = random.Random(f"stored {seed}")
    world = strategies.random_world(seed, 60, strategies.Surroundings())
    for campaign in world.campaigns:
        assert_same(json.dumps(campaign, ensure_ascii=False))
        for _ in range(20):
            damaged = changed(rng, campaign)
            text = json.dumps(damaged, ensure_ascii=False)
            if rng.random() < 0.5 or "\ud800" in text:  # which UTF-8 cannot hold
                text = json.dumps(damaged)
            assert_same(text)


@pytest.mark.parametrize(
    "change",
    [
        {"targeting": {"country": {"include": ["us", "DE"]}, "hour": {"exclude": [3, 4]}}},
        {"targeting": {"geo_radius": [{"lat": 1, "lon": -2.5, "km": 3}], "city": {}}},
        {"budget": {"daily": 10, "total": 12.5, "pacing": "even"}},
        {"frequency_caps": [{"impressions": 3, "seconds": 60}], "status": "paused"},
        {"name": "Été", "starts_at": "2030-01-31T00:00:00Z", "seat": None, "categories": []},
        {"creatives": [{**CREATIVE, "adm": "{{imp_id}}${AUCTION_PRICE}{{auction_id}}"}]},
    ],
)
def test_the_usual_ones_are_read_quickly(change: dict[str, Any]) -> None:
    text = json.dumps({**BASE, **change}, ensure_ascii=False)
    assert is_quick(text)
    assert_same(text)


@pytest.mark.parametrize(
    "text",
    ["", "[", "[" * 100_000, '{"id":' * 100_000, "1e999999999999", '{"cpm":1e999999999999}', "{}"],
    ids=lambda text: text[:20],
)
def test_what_is_no_campaign(text: str) -> None:
    assert_same(text)
    with pytest.raises(ValueError, match=r"."):
        stored.insert(stored.new_builder(), text.encode(), 1)


def test_more_values_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MAX_KNOWN", 3)
    for number in range(10):
        text = json.dumps({**BASE, "advertiser": f"a{number}.example", "cpm": number + 1})
        assert is_quick(text)
        assert_same(text)


def test_one_builder_for_many() -> None:
    """What it has learned of one document holds for the others."""
    world = strategies.random_world(3, 300, strategies.Surroundings())
    texts = [json.dumps(each, ensure_ascii=False) for each in world.campaigns]
    quick, slow = stored.new_builder(), Builder()
    for text in texts:
        if outcome(quick, put_quickly, text) != outcome(slow, put_slowly, text):
            pytest.fail(text)
