"""Native creatives of campaign documents."""

import pytest

from snapbid.campaigns.campaign import CampaignError
from snapbid.campaigns.document import parse
from snapbid.campaigns.native import NativeAd
from snapbid.campaigns.normalised import encode, load


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
