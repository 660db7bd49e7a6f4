"""The campaign examples that ship: each is imported without a warning and bids on its request."""

import json
import re
from datetime import UTC, datetime
from io import BytesIO

import pytest
from support.client import LocalApp
from support.snapshot import RATES, snapshot_of

from snapbid.campaigns.campaign import Campaign, CampaignMistake
from snapbid.campaigns.campaign_file import read_file
from snapbid.campaigns.review import Known, warnings_of
from snapbid.operations.export import EXAMPLES, EXAMPLES_PAGE, read
from snapbid.reference.geo import GeoDatabase

MONDAY = datetime(2027, 3, 1, 7, 30, tzinfo=UTC)
FILES = [name for name in EXAMPLES if ".request." not in name and name != EXAMPLES_PAGE]


def campaigns(file: str) -> list[Campaign]:
    warnings: list[CampaignMistake] = []
    read_campaigns = [each for each, _ in read_file(file, BytesIO(read(file).encode()), warnings)]
    assert warnings == []
    return read_campaigns


def documents(file: str) -> list[object]:
    text = read(file)
    return [json.loads(each) for each in (text.splitlines() if file.endswith("l") else [text])]


@pytest.mark.parametrize("file", FILES)
def test_an_example_bids_on_its_request(file: str, fresh_redis: str) -> None:
    imported = campaigns(file)
    now_ms = int(MONDAY.timestamp()) * 1000
    known = Known((), (), ["acme"])
    assert [each for campaign in imported for each in warnings_of(campaign, now_ms, known)] == []
    snapshot = snapshot_of(documents(file), {"acme": "acme"}, RATES, GeoDatabase())
    with LocalApp(snapshot, fresh_redis, clock=lambda: now_ms) as app:
        reply = app.bid(read(f"{file.partition('.')[0]}.request.json").encode())
    assert reply.status == 200
    [bid] = [bid for seat in reply.json()["seatbid"] for bid in seat["bid"]]
    assert bid["cid"] == imported[0].id


@pytest.mark.parametrize("file", FILES)
def test_example_targeting_decides(file: str, fresh_redis: str) -> None:
    """A request with nothing but an impression that none of them is for gets no bid."""
    snapshot = snapshot_of(documents(file), {"acme": "acme"}, RATES, GeoDatabase())
    bare = {"id": "bare", "imp": [{"id": "1", "banner": {"w": 1, "h": 1}}]}
    with LocalApp(snapshot, fresh_redis, clock=lambda: int(MONDAY.timestamp()) * 1000) as app:
        assert app.bid(json.dumps(bare).encode()).status == 204


def test_every_medium_and_need_has_an_example() -> None:
    shipped = [campaign for file in FILES for campaign in campaigns(file)]
    media = {creative.media for campaign in shipped for creative in campaign.creatives}
    assert media == {"banner", "video", "native", "audio"}
    targeted = {dimension for campaign in shipped for dimension in campaign.targeting}
    assert targeted >= {"deal", "segment", "device_type", "connection", "position", "placement"}
    pacings = {campaign.budget.pacing for campaign in shipped if campaign.budget.daily_micros}
    assert pacings == {"even"}
    for field in ("frequency_caps", "geo_radius", "dsa", "starts_at_ms"):
        assert any(getattr(campaign, field) for campaign in shipped), field
    assert len({campaign.id for campaign in shipped}) == len(shipped)


def test_files_match_their_page() -> None:
    page = read(EXAMPLES_PAGE)
    blocks = re.findall(r"^```jsonl?\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [read(name) for name in EXAMPLES if name != EXAMPLES_PAGE] == blocks
    assert "](" not in page  # exported, a link would lead nowhere
