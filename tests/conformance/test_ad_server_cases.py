"""Creatives as ad servers write them: imported in one round, bidding, and played as served."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from support.client import LocalApp
from support.snapshot import RATES, snapshot_of
from support.vast import why_not_played

from snapbid.campaigns.campaign import CampaignMistake
from snapbid.campaigns.campaign_file import read_file
from snapbid.reference.geo import GeoDatabase

CASES = sorted((Path(__file__).parent / "cases" / "adserver").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_creative_is_imported_and_bids(path: Path, redis_url: str) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    document = {"id": "c", "advertiser": "shop.example", "cpm": 5, "creatives": [case["creative"]]}
    warnings: list[CampaignMistake] = []
    assert len([*read_file("a.json", BytesIO(json.dumps(document).encode()), warnings)]) == 1
    said = [str(each).removeprefix("line 1: creatives[0].") for each in warnings]
    assert said == case["warnings"]
    snapshot = snapshot_of([document], {"acme": "acme"}, RATES, GeoDatabase())
    request = {"id": "a", "imp": [case["imp"]]}
    with LocalApp(snapshot, redis_url) as app:
        reply = app.bid(json.dumps(request).encode())
    assert reply.status == 200
    ((bid,),) = [seat["bid"] for seat in reply.json()["seatbid"]]
    assert why_not_played([vast_of(bid)]) == [None]


def vast_of(bid: dict[str, Any]) -> str:
    """The VAST of a bid, in its markup or an asset."""
    markup: str = bid["adm"]
    if bid["mtype"] < 4:
        return markup
    (video,) = [asset["video"] for asset in json.loads(markup)["assets"] if "video" in asset]
    text: str = video["vasttag"]
    return text
