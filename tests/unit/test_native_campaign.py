"""A native creative means the same whichever way its document is read."""

import json

import pytest

from snapbid.match.campaign import CampaignError
from snapbid.match.document import parse, parse_json
from snapbid.match.native import NativeAd
from snapbid.match.normalised import encode


def test_a_creative_without_data_has_none() -> None:
    """Seen: the quick way gave null for it, and the publisher could not build an index."""
    native = {"title": "Shoes", "link": {"url": "https://shop.example/"}}
    creative = {"id": "k", "media": "native", "native": native}
    document = {"id": "c", "advertiser": "b.example", "cpm": 1, "creatives": [creative]}
    quick, checked = parse_json(json.dumps(document).encode()), parse(document)
    assert encode(quick) == encode(checked)
    assert isinstance(quick.creatives[0].native, NativeAd)
    assert quick.creatives[0].native.data == {}


@pytest.mark.parametrize(("field", "value"), [("mimes", ["video/mp4"]), ("duration", 5)])
def test_what_follows_from_the_video_is_no_field_of_a_document(field: str, value: object) -> None:
    native = {"title": "Shoes", "link": {"url": "https://shop.example/"}, field: value}
    creative = {"id": "k", "media": "native", "native": native}
    document = {"id": "c", "advertiser": "b.example", "cpm": 1, "creatives": [creative]}
    with pytest.raises(CampaignError, match=rf"native\.{field}: is not a known field"):
        parse_json(json.dumps(document).encode())
