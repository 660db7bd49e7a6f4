"""Native creatives of campaign documents."""

import json
from typing import Any

import pytest

from snapbid.campaigns.campaign import CampaignError
from snapbid.campaigns.document import parse
from snapbid.campaigns.native import NativeAd
from snapbid.campaigns.normalised import encode, load
from snapbid.campaigns.review import macros_of


def test_a_creative_without_data_has_none() -> None:
    native = {"title": "Shoes", "link": {"url": "https://shop.example/"}}
    creative = {"id": "k", "media": "native", "native": native}
    document = {"id": "c", "advertiser": "b.example", "cpm": 1, "creatives": [creative]}
    stored = load(encode(parse(document)), is_normalised=True, is_active=True)
    assert isinstance(stored.creatives[0].native, NativeAd)
    assert stored.creatives[0].native.data == {}


@pytest.mark.parametrize(("field", "value"), [("mimes", ["video/mp4"]), ("duration", 5)])
def test_derived_video_facts_are_not_document_fields(field: str, value: object) -> None:
    native = {"title": "Shoes", "link": {"url": "https://shop.example/"}, field: value}
    creative = {"id": "k", "media": "native", "native": native}
    document = {"id": "c", "advertiser": "b.example", "cpm": 1, "creatives": [creative]}
    with pytest.raises(CampaignError, match=rf"native\.{field}: is not a known field"):
        parse(document)


def campaign_of(**creative: Any) -> dict[str, Any]:
    creatives = [{"id": "k", "media": "native", **creative}]
    return {"id": "c", "advertiser": "b.example", "cpm": 1, "creatives": creatives}


ASSETS = {
    "title": "2026",
    "images": [{"type": 3, "url": "https://cdn.example/", "w": 300, "h": 250},
               {"type": 1, "url": "https://cdn.example/"}],
    "data": {"3": "4.50", "4": "100"},
    "link": {"url": "shop://x", "fallback": "https://shop.example/", "clicktrackers": ["https://c"]},
    "imptrackers": ["https://i"],
    "eventtrackers": [{"event": 1, "method": 2, "url": "https://e"}],
}  # fmt: skip
RESPONSE = """\ufeff{"assets": [
  {"title": {"text": 2026}},
  {"img": {"type": "3", "url": "https://cdn.example/", "w": "300", "h": 250.0}},
  {"img": {"type": 1.0, "url": "https://cdn.example/", "w": 0, "h": "0"}},
  {"data": {"type": "3", "value": 4.50}},
  {"data": {"type": 4, "value": 100}},
  {"data": {"type": 2, "value": ""}},
  {"link": {"url": "https://shop.example/"}}],
 "link": {"url": "shop://x", "fallback": "https://shop.example/", "clicktrackers": ["", "https://c"]},
 "imptrackers": ["https://i", "", null],
 "eventtrackers": [{"event": "1", "method": 2.0, "url": "https://e", "customdata": {"k": "v"}}],
 "privacy": "", "assetsurl": "https://cdn.example/{{imp_id}}"}"""


def test_a_response_is_read_as_its_assets_are() -> None:
    (of_response,) = parse(campaign_of(adm=RESPONSE)).creatives
    (of_assets,) = parse(campaign_of(native=ASSETS)).creatives
    assert of_response == of_assets


def test_macros_are_found_behind_a_byte_order_mark() -> None:
    response = {
        "assets": [{"title": {"text": "{{imp_id}}"}}],
        "link": {"url": "https://shop.example/"},
    }
    ((_, field, _),) = macros_of(campaign_of(adm="\ufeff" + json.dumps(response)))
    assert field == "adm.assets[0].title.text"
