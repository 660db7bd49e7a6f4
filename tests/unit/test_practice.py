"""What creatives are warned of takes no long time to find, whatever they hold."""

import json
import time
from contextlib import suppress
from io import BytesIO
from typing import Any

import pytest

from snapbid.campaigns.campaign import CampaignError
from snapbid.campaigns.campaign_file import read_file
from snapbid.campaigns.value_rules import MAX_ADM_BYTES

LIMIT_S = 5.0  # of processor time; the dearest takes less than 1, quadratic ones took 8
PIECES = [
    "<script src=", "mraid.js ", "<script src=mraid.js", "%%A", "${a", "//[a", "[", "//a.b/[b",
    "http:", "<img src='http:", "<!--", "<![CDATA[", "<style>@import ", " src=", "<p style='url(",
    "{", "[[", "<", "\n", "%5Ba", "<a href=http:",
]  # fmt: skip


def read(creative: dict[str, Any]) -> None:
    document = {"id": "c", "advertiser": "shop.example", "cpm": 1, "creatives": [creative]}
    began = time.process_time()
    with suppress(CampaignError):
        list(read_file("a.jsonl", BytesIO(json.dumps(document).encode()), []))
    assert time.process_time() - began < LIMIT_S


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("start", ["", "<script ", "<p>http:"])
def test_banners(start: str, piece: str) -> None:
    text = (start + piece * MAX_ADM_BYTES)[: MAX_ADM_BYTES - 8]
    read({"id": "b", "media": "banner", "w": 1, "h": 1, "adm": text})


@pytest.mark.parametrize("piece", [*PIECES, "<script ", "<img ", " src=a", "<script src=a>", "'"])
def test_script_trackers(piece: str) -> None:
    response = {"assets": [{"title": {"text": "t"}}], "link": {"url": "https://shop.example/"}}
    tracker = (f"<script {piece}" * MAX_ADM_BYTES)[:20_000]
    for text in (tracker, tracker[:8_000]):
        adm = json.dumps({**response, "jstracker": text})
        read({"id": "n", "media": "native", "adm": adm})


@pytest.mark.parametrize("piece", PIECES)
def test_vast(piece: str) -> None:
    text = (f"<VAST version='3.0'><Ad><![CDATA[{piece * MAX_ADM_BYTES}")[: MAX_ADM_BYTES - 8]
    read({"id": "v", "media": "video", "adm": text})
