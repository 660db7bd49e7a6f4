"""Campaigns: what the data-driven cases do not hold (limits, exact numbers, bytes, demo data)."""

import json
import re
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import strategies

from snapbid.campaigns import campaign_file
from snapbid.campaigns.campaign import Campaign, CampaignError, CampaignMistake
from snapbid.campaigns.campaign_file import read_file
from snapbid.campaigns.document import decode, parse
from snapbid.campaigns.normalised import encode, load
from snapbid.campaigns.targeting_rules import MAX_ENTRIES
from snapbid.campaigns.vocabulary import DIMENSIONS
from snapbid.embedded import demo

CREATIVE = {"id": "n", "media": "banner", "adm": "x", "w": 1, "h": 1}
BASE: dict[str, Any] = {"id": "c1", "advertiser": "shop.example", "cpm": 1, "creatives": [CREATIVE]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def read(name: str, data: bytes) -> list[tuple[Campaign, str]]:
    return list(read_file(name, BytesIO(data)))


def rules(**change: Any) -> list[str]:
    with pytest.raises(CampaignError) as caught:
        parse({**BASE, **change})
    return [str(mistake) for mistake in caught.value.mistakes]


def creatives(count: int) -> list[dict[str, Any]]:
    return [{**CREATIVE, "id": str(number)} for number in range(count)]


def circles(count: int) -> list[dict[str, Any]]:
    return [{"lat": 1, "lon": number / 1000, "km": 1} for number in range(count)]


def caps(count: int) -> list[dict[str, int]]:
    return [{"impressions": 1, "seconds": number + 1} for number in range(count)]


def names(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def adm(text: str) -> list[dict[str, Any]]:
    return [{**CREATIVE, "adm": text}]


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x" * 512},
        {"creatives": creatives(1000)},
        {"creatives": adm("ü" * (32 * 1024))},
        {"frequency_caps": caps(16)},
        {"targeting": {"geo_radius": circles(1_000)}},
        {"targeting": {"segment": {"include": ["x" * 512]}}},
        {"creatives": [{**CREATIVE, "iurl": "x" * 8192}]},
    ],
)
def test_at_the_limit(change: dict[str, Any]) -> None:
    assert isinstance(parse({**BASE, **change}), Campaign)


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"id": "x" * 513}, "id: must have at most 512 bytes, found 513"),
        ({"creatives": creatives(1001)}, "creatives: must have at most 1000 entries, found 1001"),
        (
            {"creatives": adm("ü" * (32 * 1024) + "x")},
            "creatives[0].adm: must have at most 65536 bytes, found 65537",
        ),
        ({"id": "é" * 257}, "id: must have at most 512 bytes, found 514"),
        (
            {"targeting": {"city": {"include": ["ß" * 100, "ΐ" * 100]}}},
            "targeting.city.include[1]: must have at most 512 bytes in lower case: "
            + '"'
            + "\\u0390" * 60
            + '..."',
        ),
        ({"categories": names(1001)}, "categories: must have at most 1000 entries, found 1001"),
        (
            {"creatives": [{**CREATIVE, "mimes": names(1001)}]},
            "creatives[0].mimes: must have at most 1000 entries, found 1001",
        ),
        (
            {"creatives": [{**CREATIVE, "id": name, "adm": "x" * 65536} for name in names(17)]},
            "creatives: must have at most 1048576 bytes of adm, found 1114112",
        ),
        (
            {"targeting": {"deal": {"include": names(10_001)}}},
            "targeting.deal.include: must have at most 10000 entries, found 10001",
        ),
        ({"frequency_caps": caps(17)}, "frequency_caps: must have at most 16 entries, found 17"),
        (
            {"targeting": {"geo_radius": circles(1_001)}},
            "targeting.geo_radius: must have at most 1000 entries, found 1001",
        ),
        (
            {"targeting": {"segment": {"include": ["x" * 513]}}},
            "targeting.segment.include[0]: must have at most 512 bytes, found 513",
        ),
        (
            {"creatives": [{**CREATIVE, "iurl": "x" * 8193}]},
            "creatives[0].iurl: must have at most 8192 bytes, found 8193",
        ),
    ],
)
def test_beyond_the_limit(change: dict[str, Any], mistake: str) -> None:
    assert rules(**change) == [mistake]


def test_longest_list() -> None:
    entries = names(MAX_ENTRIES)
    read = parse({**BASE, "targeting": {"segment": {"include": entries}}})
    assert len(read.targeting["segment"].include) == MAX_ENTRIES
    assert rules(targeting={"segment": {"include": [*entries, "x"]}}) == [
        "targeting.segment.include: must have at most 1000000 entries, found 1000001"
    ]
    assert rules(targeting={"segment": {"include": entries}, "hour": {"exclude": [1]}}) == [
        "targeting: must have at most 1000000 entries, found 1000001"
    ]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_longest_document(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_file, "MAX_DOCUMENT", len(json.dumps(BASE)))
    assert read(name, json.dumps(BASE).encode())
    for longer in ({**BASE, "id": "c12"}, {**BASE, "creatives": adm("x" * 1000)}):
        with pytest.raises(CampaignError) as caught:
            read(name, json.dumps(longer).encode() + b"\n" + b" " * 99)
        (mistake,) = caught.value.mistakes
        assert re.match("line 1: must have at most .* characters of JSON", str(mistake))


@pytest.mark.parametrize(
    ("written", "stored"),
    [("7.0", "7"), ("7", "7"), ("7e0", "7"), ("0.7E+1", "7"), ("70e-1", "7"), ("36.50e1", "365")],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_whole_numbers_are_stored_as_integers(name: str, written: str, stored: str) -> None:
    text = (
        '{"id": "c\\"1.0", "advertiser": "shop.example", "cpm": 1.50, "attribution_days": %s,'
        ' "creatives": [{"id": "7.0", "media": "banner", "w": %s, "h": 1,'
        ' "adm": "a 7.0, \\" 7e0"}]}'
    )
    ((campaign, document),) = read(name, (text % (written, written)).encode())
    assert campaign.attribution_days == int(stored)
    assert document == text % (stored, stored)


def test_a_document_without_whole_fractions_is_stored_as_written() -> None:
    text = '{ "cpm":1.50e0,"id":"7.0" ,"advertiser":"a.example","creatives":[C]}'
    text = text.replace("C", json.dumps(CREATIVE))
    ((_, document),) = read("a.jsonl", text.encode())
    assert document == text


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (
            {"creatives": [{"id": "v", "media": "video", "adm_url": "x"}]},
            ["creatives[0].adm_url", "creatives[0].adm"],
        ),
        (
            {"creatives": [{"id": "n", "media": "native", "native_ad": {}}]},
            ["creatives[0].native_ad", "creatives[0].adm"],
        ),
        ({"creatives": [{"id": "v", "media": "video", "adm": 1}]}, ["creatives[0].adm"]),
        (
            {"creatives": [{"id": "n", "media": "native", "native": {"title": "t"}}]},
            ["creatives[0].native.link"],
        ),
        ({"cattaxonomy": 1, "categories": ["IAB99"]}, ["cattaxonomy", "categories[0]"]),
        ({"cattax": "1", "categories": ["IAB99"]}, ["cattax"]),
        ({"categories": ["IAB99", 1]}, ["categories[1]"]),
    ],
)
def test_a_mistake_hides_only_those_of_its_own_field(
    change: dict[str, Any], fields: list[str]
) -> None:
    with pytest.raises(CampaignError) as caught:
        read("a.jsonl", json.dumps(BASE | change).encode())
    assert [mistake.field for mistake in caught.value.mistakes] == fields


NOT_A_CODE = "is not a language code of two or three letters, such as en"


def test_import_refuses_the_names_of_languages() -> None:
    targeting = {"language": {"include": ["en", "EN-gb", "German"], "exclude": ["abcd-EF", "fil"]}}
    document = {**BASE, "targeting": targeting, "creatives": [{**CREATIVE, "language": "English"}]}
    with pytest.raises(CampaignError) as caught:
        read("a.jsonl", json.dumps(document).encode())
    assert [*map(str, caught.value.mistakes)] == [
        "line 1: creatives[0].language: must begin with a language code of two or three letters,"
        ' such as en or pt-BR, found "english"',
        f'line 1: targeting.language.include[2]: {NOT_A_CODE}: "German"',
        f'line 1: targeting.language.exclude[0]: {NOT_A_CODE}: "abcd-EF"',
    ]
    assert parse(document).targeting["language"].include == ("en", "german")  # stored already


@pytest.mark.parametrize("language", ["en", "fil", "pt-BR", "zh-Hant-TW"])
def test_language_codes(language: str) -> None:
    targeting = {"language": {"include": [language]}}
    document = {**BASE, "targeting": targeting, "creatives": [{**CREATIVE, "language": language}]}
    assert read("a.jsonl", json.dumps(document).encode())


@pytest.mark.parametrize(
    ("cpm", "micros"),
    [(1.1, 1_100_000), (4.35, 4_350_000), (Decimal("0.000001"), 1), (7, 7_000_000)],
)
def test_a_float_means_its_shortest_decimal(cpm: object, micros: int) -> None:
    assert parse({**BASE, "cpm": cpm}).cpm_micros == micros


@pytest.mark.parametrize("cpm", [float("nan"), float("inf"), Decimal("NaN"), Decimal("Infinity")])
def test_numbers_are_finite(cpm: object) -> None:
    assert len(rules(cpm=cpm)) == 1


@given(micros=st.integers(1, 10**12))
def test_money_is_exact(micros: int) -> None:
    text = f"{micros // 10**6}.{micros % 10**6:06}"
    document = decode(json.dumps(BASE).replace('"cpm": 1', f'"cpm": {text}'))
    assert parse(document).cpm_micros == micros


@given(
    document=JSON | st.fixed_dictionaries({}, optional=dict.fromkeys([*BASE, "targeting"], JSON))
)
def test_any_other_document_has_named_mistakes(document: object) -> None:
    with pytest.raises(CampaignError) as caught:
        parse(document)
    assert caught.value.mistakes
    assert all(str(mistake).isprintable() for mistake in caught.value.mistakes)


@given(data=st.binary(max_size=200), name=st.sampled_from(["a.json", "a.jsonl"]))
def test_any_other_bytes_have_named_mistakes(data: bytes, name: str) -> None:
    with pytest.raises(CampaignError) as caught:
        read(name, data)
    assert caught.value.mistakes


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b'{"cpm":' + b"[" * 100_000, "is not JSON: nested too deeply"),
        (b'{"cpm":' + b"1" * 5_000 + b"}", "is not JSON: Exceeds the limit"),
        (b'"\xff"', "is not UTF-8: invalid start byte (byte 2)"),
        (b'"\xed\xa0\x80"', "is not UTF-8: invalid continuation byte (byte 2)"),
    ],
)
def test_malformed_json(name: str, data: bytes, rule: str) -> None:
    with pytest.raises(CampaignError) as caught:
        read(name, data)
    (mistake,) = caught.value.mistakes
    assert mistake.line == 1
    assert mistake.rule.startswith(rule)


def test_text_that_is_not_utf8_is_one_mistake() -> None:
    good = json.dumps(BASE).encode()
    with pytest.raises(CampaignError) as caught:
        read("a.jsonl", good + b"\n\xff\n{}\n")
    assert [mistake.line for mistake in caught.value.mistakes] == [2, 3, 3, 3, 3]


@pytest.mark.parametrize("text", ["[" * 100_000, "1e99999999999999999999", "{", "1" * 5_000])
def test_unreadable_stored_documents(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(text)


@pytest.mark.parametrize("seed", range(3))
def test_a_normalised_form_is_the_campaign(seed: int) -> None:
    world = strategies.random_world(seed, 60, strategies.Surroundings())
    for document in world.campaigns:
        campaign = parse(document)
        is_active = campaign.status == "active"
        assert load(encode(campaign), is_normalised=True, is_active=is_active) == campaign


def test_mistakes_print_as_one_line() -> None:
    assert str(CampaignMistake("cpm", "is required", 3)) == "line 3: cpm: is required"
    assert str(CampaignMistake("cpm", "is required")) == "cpm: is required"
    assert str(CampaignMistake("", "is not JSON", 3)) == "line 3: is not JSON"


def test_long_values_are_truncated_in_mistakes() -> None:
    (rule,) = rules(status="x" * 1000)
    assert len(rule) < 150


class TestDemo:
    """The demo data keeps the contract's promises about it."""

    campaigns = tuple(parse(decode(document)) for _, document in demo.documents())

    def test_every_dimension_and_medium_is_used(self) -> None:
        used = {name for campaign in self.campaigns for name in campaign.targeting}
        assert used == {dimension.name for dimension in DIMENSIONS}
        assert any(campaign.geo_radius for campaign in self.campaigns)
        media = {creative.media for each in self.campaigns for creative in each.creatives}
        assert media == {"banner", "video", "native", "audio"}

    def test_none_pays_more_than_50_usd(self) -> None:
        assert max(campaign.cpm_micros for campaign in self.campaigns) <= 50_000_000

    def test_some_have_budgets_and_some_caps(self) -> None:
        assert any(campaign.budget.daily_micros for campaign in self.campaigns)
        assert any(campaign.budget.total_micros for campaign in self.campaigns)
        assert any(campaign.frequency_caps for campaign in self.campaigns)

    def test_one_answers_the_connectivity_request_from_the_usa(self) -> None:
        (campaign,) = (each for each in self.campaigns if each.id == "demo-connectivity-us")
        assert campaign.status == "active"
        assert list(campaign.targeting) == ["country"]
        assert campaign.targeting["country"].include == ("USA",)
        assert not campaign.geo_radius
        assert not campaign.frequency_caps
        assert campaign.budget.daily_micros is campaign.budget.total_micros is None
        sizes = {(creative.w, creative.h) for creative in campaign.creatives}
        assert {(300, 250), (320, 50), (728, 90), (160, 600), (300, 600), (970, 250)} <= sizes
