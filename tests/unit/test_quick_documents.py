"""The shapes of the rules admit no more than their checks, and give the same normal forms."""

import json
import random
import re
from collections.abc import Iterator
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from support import strategies

from snapbid.match import campaign_file, document, rules
from snapbid.match._keys import may_repeat_keys
from snapbid.match.campaign import Campaign, CampaignError
from snapbid.match.campaign_file import read_file
from snapbid.match.normalised import encode, load

CASES = Path(__file__).parents[1] / "conformance" / "cases" / "campaign"
CREATIVE = {"id": "a", "media": "banner", "w": 300, "h": 250, "adm": "<p>Hello</p>"}
BASE = {"id": "c1", "advertiser": "shop.example", "cpm": 2.5, "creatives": [CREATIVE]}
STRANGE: list[Any] = [
    None, "", [], {}, 0, -1, 1.5, 300.0, True, "1", "x" * 513, "é" * 257, "é" * 256, 2**31, 2**64,
    "{{imp_id}}", "{{imp_id}}{{x}}", "{{ imp_id }}", "{{{{", "\ud800", "a\0b", ["a", "a"], [None],
    [1, 1], [[]], {"include": ["a"]}, "2030-01-31T00:00:00Z", "2030-01-31", "A.Example.",
]  # fmt: skip


def assert_same(text: str) -> None:
    """What is parsed quickly is what the rules make of the document."""
    campaign = document.parse_quickly(text.encode())
    if campaign is not None:
        assert reloaded(campaign) == document.parse(document.decode(text)), text


def reloaded(campaign: Campaign) -> Campaign:
    """The campaign by way of the warehouse."""
    active = campaign.status == "active"
    return load(encode(campaign), is_normalised=True, is_active=active)


def is_quick(text: str) -> bool:
    return document.parse_quickly(text.encode()) is not None


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
    "change",
    [
        {"targeting": {"country": {"include": ["USA", "XX"]}}},
        {"targeting": {"hour": {"include": [168]}}},
        {"targeting": {"device_type": {"include": [1, True]}}},
        {"targeting": {"colour": {"include": ["red"]}}},
        {"targeting": {"deal": {"include": [str(number) for number in range(10_001)]}}},
        {"cpm": 0},
        {"cpm": None},
        {"advertiser": "shop"},
        {"id": "é" * 257},
        {"creatives": [CREATIVE, CREATIVE]},
        {"creatives": [{**CREATIVE, "h": None}]},
        {"creatives": [{**CREATIVE, "adm": "{{price}}"}]},
        {"creatives": [{**CREATIVE, "id": str(n), "adm": "x" * 16_000} for n in range(70)]},
        {"frequency_caps": [{"impressions": 1, "seconds": number + 1} for number in range(17)]},
        {"starts_at": "2030-01-31T00:00:00Z", "ends_at": "2030-01-31T00:00:00Z"},
    ],
)
def test_a_broken_rule_is_left_to_the_checks(change: dict[str, Any]) -> None:
    text = json.dumps({**BASE, **change}, ensure_ascii=False)
    for _ in range(2):  # nothing wrong is remembered as right
        assert not is_quick(text)
        with pytest.raises(CampaignError):
            document.parse_json(text.encode())


@pytest.mark.parametrize(
    "text",
    ["", "[", "[" * 100_000, '{"id":' * 100_000, "1e999999999999", '{"cpm":1e999999999999}', "{}"],
    ids=lambda text: text[:20],
)
def test_what_is_no_campaign(text: str) -> None:
    assert not is_quick(text)
    with pytest.raises(ValueError, match=r"."):
        document.parse_json(text.encode())


def test_more_values_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_CACHED", 3)
    for number in range(10):
        targeting = {"city": {"include": [f"{number}A", f"{number}B", "C"]}}
        fields = {"advertiser": f"a{number}.example", "cpm": number + 1, "targeting": targeting}
        text = json.dumps({**BASE, **fields})
        assert is_quick(text)
        assert_same(text)


# -- in files -------------------------------------------------------------------------------------


def imported(text: str) -> Any:
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
    if rng.random() < 0.5:
        inserted = inserted.replace('" :', '":')
    return text[: match.start()] + inserted + text[match.start() if kind < 3 else match.end() :]


@pytest.mark.parametrize("seed", range(4))
def test_a_file_reads_the_same_quickly_or_not(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"accepted {seed}")
    world = strategies.random_world(seed, 60, strategies.Surroundings())
    right = [json.dumps(campaign, ensure_ascii=False) for campaign in world.campaigns]
    texts = right + [damaged(rng, text) for text in right for _ in range(8)]
    quickly = [imported(text) for text in texts]
    assert sum(map(is_quick, right)) > len(right) / 2
    monkeypatch.setattr(campaign_file, "parse_quickly", lambda _, **__: None)
    for text, outcome in zip(texts, quickly, strict=True):
        assert plainly(imported(text)) == plainly(outcome), text
    assert {type(outcome[0]) for outcome in quickly} == {tuple, str}


def plainly(outcome: Any) -> Any:
    return [
        (reloaded(entry[0]), entry[1]) if isinstance(entry, tuple) else entry for entry in outcome
    ]


@pytest.mark.parametrize(
    "adm", ['<p title="a": b>"x": 1</p>', '"x":1', 'a\\":', "color : red", '\\\\":']
)
def test_quotes_and_colons_in_strings_are_no_keys(adm: str) -> None:
    text = json.dumps({**BASE, "creatives": [{**CREATIVE, "adm": adm}]})
    ((campaign, _),) = imported(text)
    assert campaign.creatives[0].adm == adm
    for twice in ('"cpm":1,"cpm":2.5', '"cpm":1,"cpm" :2.5', '"cpm": 1,"cpm"\t: 2.5'):
        damaged_text = text.replace('"cpm": 2.5', twice)
        assert imported(damaged_text) == ["line 1: cpm: stands twice in one object"]


def repeats(text: str) -> bool:
    repeated = False

    def pairs(members: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        repeated |= len(dict(members)) < len(members)

    json.loads(text, object_pairs_hook=pairs)
    return repeated


def nested(rng: random.Random, depth: int) -> str:
    """A JSON value whose objects have keys from a few, among them quotes, braces and colons."""
    kind = rng.random()
    names = ["a", "b", "ab", '"', '"a":', "{", "}", "\\", '\\"', ":", ""]
    if depth == 0 or kind < 0.3:
        return json.dumps(rng.choice([1, None, *names]))
    items = [nested(rng, depth - 1) for _ in range(rng.randrange(4))]
    space = rng.choice(["", " ", "\n\t", "\r"])
    if kind < 0.5:
        return f"[{','.join(items)}]"
    members = [f"{space}{json.dumps(rng.choice(names))}{space}:{space}{item}" for item in items]
    return f"{{{','.join(members)}{space}}}"


def test_keys_that_occur_twice() -> None:
    rng = random.Random("keys")
    seen = {True: 0, False: 0}
    for _ in range(20_000):
        text = nested(rng, 4)
        assert may_repeat_keys(text.encode()) == repeats(text), text
        seen[repeats(text)] += 1
    assert min(seen.values()) > 1_000


@pytest.mark.parametrize(
    "text",
    ['{"a', '{"a\\', "}", '"a":1', '{"a":' * 17, json.dumps(dict.fromkeys(range(257)))],
)
def test_keys_of_what_is_left_to_the_checks(text: str) -> None:
    assert may_repeat_keys(text.encode())
