"""Native requests and creatives drawn at random: who fits, and what the answer is."""

import json
import random

import msgspec
import pytest
from support import oracle_native, pools
from support.choices import Choices
from support.oracle import Document
from support.random_impressions import native_of
from support.snapshot import RATES, Geo, snapshot_of
from support.strategies import native_ad_of

from snapbid.bidding import native_request
from snapbid.bidding._bid_path import NoBid, Proposal, propose
from snapbid.bidding.native_answer import fits, native_markup
from snapbid.bidding.native_request import NATIVE_REQUESTS, NativeRequests
from snapbid.bidding.request import Native, decode
from snapbid.bidding.response import response_writer
from snapbid.campaigns.document import parse

REQUEST = '{"ver":"1.2","assets":[{"id":1,"required":1,"title":{"len":%d}}]}'
AD = {"title": 't"\\\u2028<é', "link": {"url": "https://shop.example/?a={{auction_id}}"}}


def drawn(seed: int) -> tuple[Document, Document]:
    """A native object of a request, and a creative."""
    rng = random.Random(f"native {seed}")
    choices = Choices(rng.randint)
    creative: Document = {"id": "n", "media": "native", "native": native_ad_of(choices)}
    if choices.chance(60):
        creative["duration"] = choices.pick(pools.DURATIONS)
    if choices.chance(40):
        creative["mimes"] = choices.some(pools.MIMES["video"], 2)
    return native_of(choices), creative


def campaign(creative: Document, **changes: object) -> Document:
    plain = {"id": "c", "advertiser": "shop.example", "cpm": 2, "creatives": [creative]}
    return {**plain, **changes}


def test_oracle_and_product_agree() -> None:
    fitting = unread = 0
    for seed in range(4_500):
        native, creative = drawn(seed)
        asked = NATIVE_REQUESTS.of(decoded(native))
        ad = parse(campaign(creative)).creatives[0].native
        assert ad is not None
        wanted = oracle_native.has(creative, native)
        assert (asked is not None and fits(asked, ad)) == wanted, (native, creative)
        unread += asked is None
        if asked is not None and wanted:
            fitting += 1
            assert asked.required_kinds & ~ad.kinds == 0
            oracle_native.judge(native, native_markup(asked, ad), creative)
    assert fitting > 800
    assert unread > 200


def answered(proposal: Proposal | NoBid) -> list[str]:
    if isinstance(proposal, NoBid):
        return []
    response = json.loads(
        response_writer("http://bid.example").write(proposal.auction_id, proposal.bids)
    )
    return [bid["adm"] for seat in response["seatbid"] for bid in seat["bid"]]


def decoded(native: object) -> Native:
    """A native impression as the product reads it."""
    request = decode(msgspec.json.encode({"id": "a 1", "imp": [{"id": "1", "native": native}]}))
    assert request.imp is not None
    assert request.imp[0].native is not None
    return request.imp[0].native


def markups(native: object, *campaigns: Document) -> list[str]:
    body = msgspec.json.encode({"id": "a 1", "imp": [{"id": "1", "native": native}]})
    snapshot = snapshot_of(campaigns, {"acme": "acme"}, RATES, Geo())
    return answered(propose(decode(body), "acme", snapshot, 0))


def test_markup_is_json_within_json_with_macros_filled_in() -> None:
    (adm,) = markups(
        {"request": REQUEST % 90}, campaign({"id": "n", "media": "native", "native": AD})
    )
    answer = json.loads(adm)
    assert answer["assets"] == [{"id": 1, "title": {"text": AD["title"]}}]
    assert answer["link"] == {"url": "https://shop.example/?a=a%201"}


def test_highest_priced_fitting_campaign_answers_with_its_fitting_creative() -> None:
    def titled(name: str, *titles: str, cpm: int) -> Document:
        creatives = [
            {"id": f"{name}{at}", "media": "native", "native": {**AD, "title": title}}
            for at, title in enumerate(titles)
        ]
        return campaign(creatives[0], id=name, cpm=cpm, creatives=creatives)

    campaigns = [
        titled("long", "far too long", cpm=9),
        titled("some", "far too long", "short", "longer still", cpm=5),
        titled("cheap", "short", cpm=1),
    ]
    for size, title in ((5, "short"), (12, None)):
        (adm,) = markups({"request": REQUEST % size}, *campaigns)
        text = json.loads(adm)["assets"][0]["title"]["text"]
        assert text == (title or "far too long")
    assert markups({"request": REQUEST % 4}, *campaigns) == []


def test_native_response_in_adm_reads_like_the_native_object() -> None:
    response = {
        "ver": "1.1",
        "assets": [
            {"id": 9, "required": 1, "title": {"text": "t", "ext": {}}},
            {"id": 8, "img": {"type": 3, "url": "https://cdn.example/m.jpg", "w": 300, "h": 250}},
            {"id": 7, "data": {"type": 2, "value": "d", "label": "x"}},
            {"id": 6, "video": {"vasttag": "<VAST/>"}},
        ],
        "link": {"url": "https://shop.example/", "fallback": "x"},
        "imptrackers": ["https://shop.example/i"],
        "eventtrackers": [{"event": 1, "method": 1, "url": "https://shop.example/e", "ext": {}}],
        "privacy": "https://shop.example/p",
    }
    native = {
        "title": "t",
        "images": [{"type": 3, "url": "https://cdn.example/m.jpg", "w": 300, "h": 250}],
        "data": {"2": "d"},
        "video": "<VAST/>",
        "link": {"url": "https://shop.example/", "fallback": "x"},
        "imptrackers": ["https://shop.example/i"],
        "eventtrackers": [{"event": 1, "method": 1, "url": "https://shop.example/e"}],
        "privacy": "https://shop.example/p",
    }
    own = parse(campaign({"id": "n", "media": "native", "native": native}))
    for adm in (response, {"native": response}):
        written = campaign({"id": "n", "media": "native", "adm": json.dumps(adm)})
        assert parse(written) == own


def test_the_request_cache_is_keyed_by_text_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_request, "MAX_CACHED", 10)
    requests = NativeRequests()
    first = requests.read(REQUEST % 1, None)
    assert first is not None
    assert requests.read(REQUEST % 1, None) is first
    assert requests.read(REQUEST % 1, "1.0") is not first
    for size in range(100):
        requests.read(REQUEST % size, None)
        assert len(requests) <= 10
    long = requests.read(REQUEST % 1 + " " * native_request.MAX_CACHED_TEXT, None)
    assert long is not None
    assert long.number == 0
    assert len(requests) <= 10


def test_repeated_requests_share_a_template() -> None:
    snapshot = snapshot_of(
        [campaign({"id": "n", "media": "native", "native": AD})], {}, RATES, Geo()
    )
    asked = NATIVE_REQUESTS.read(REQUEST % 90, None)
    assert asked is not None
    assert snapshot.template(0, 0, asked) is snapshot.template(0, 0, asked)
    for size in range(200):
        other = NATIVE_REQUESTS.read(REQUEST % (size + 50), None)
        assert other is not None
        snapshot.template(0, 0, other)
    assert snapshot.template(0, 0) is snapshot.template(0, 0)


@pytest.mark.parametrize(
    "request_",
    [
        *(None, 5, "", "null", "[1]", '"x"', "{", "[" * 9_000, "\ud800"),
        *('{"native":5}', '{"native":{"native":{}}}', '{"assets":[%s{"id":0}]}' % ("{}," * 200)),
        '{"assets":[{"id":1}],"x":[%s1]}' % ("1," * 5_000),
        *({"assets": "x"}, {"assets": [5]}, {"assets": [{"id": 2**70}], "x": "\ud800"}),
    ],
)
def test_unreadable_requests(request_: object) -> None:
    assert NATIVE_REQUESTS.read(request_, None) is None
