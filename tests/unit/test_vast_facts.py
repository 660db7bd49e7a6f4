"""What import takes from a creative's VAST, and what cannot be combined with it."""

import json
from io import BytesIO
from typing import Any

import pytest
from support.vast import inline, overlay, pod, wrapper

from snapbid.campaigns.campaign import CampaignError, Creative
from snapbid.campaigns.campaign_file import read_file
from snapbid.campaigns.document import parse
from snapbid.campaigns.value_rules import MAX_ADS
from snapbid.embedded import demo

BASE = {"id": "c1", "advertiser": "shop.example", "cpm": 2.5}
LADDER = "".join(
    f'<MediaFile delivery="{delivery}" type="{mime}" width="{w}" height="{h}" bitrate="{rate}">'
    "https://cdn.example/</MediaFile>"
    for delivery, mime, w, h, rate in (
        ("progressive", "video/mp4", 640, 360, 800),
        ("streaming", "application/x-mpegurl", 1920, 1080, 4000),
        ("progressive", "video/mp4", 1280, 720, 2000),
    )
)
SPOT = (
    '<MediaFile delivery="progressive" type="audio/mpeg" width="0" height="0" bitrate="128">'
    "https://cdn.example/</MediaFile>"
)
VPAID = (
    '<MediaFile delivery="progressive" type="application/javascript" width="640" height="360"'
    ' apiFramework="VPAID">https://cdn.example/</MediaFile>'
)
OVERLAY = overlay()


def document(adm: str, **fields: Any) -> dict[str, Any]:
    return {**BASE, "creatives": [{"id": "v", "media": "video", "adm": adm, **fields}]}


def imported(document: dict[str, Any]) -> Creative:
    ((campaign, _),) = read_file("a.jsonl", BytesIO(json.dumps(document).encode()))
    return campaign.creatives[0]


def mistakes(document: dict[str, Any]) -> list[str]:
    with pytest.raises(CampaignError) as caught:
        imported(document)
    return [str(mistake).removeprefix("line 1: creatives[0].") for mistake in caught.value.mistakes]


def derived(creative: Creative) -> dict[str, Any]:
    fields = ["protocols", "mimes", "duration", "bitrate", "delivery", "apis", "linear"]
    fields += ["skippable", "w", "h", "attributes", "ads"]
    values = {name: getattr(creative, name) for name in fields}
    return {name: value for name, value in values.items() if value not in (None, ())}


# -- what is derived ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("adm", "media", "fields"),
    [
        (inline("3.0", LADDER, skip="00:00:05"), "video",
         {"protocols": (3,), "mimes": ("video/mp4", "application/x-mpegurl"), "duration": 15,
          "bitrate": 4000, "delivery": (2, 1), "linear": True, "skippable": True,
          "w": 1920, "h": 1080, "attributes": (16,)}),
        (inline("4.2", SPOT, duration="00:00:29.500"), "audio",
         {"protocols": (13,), "mimes": ("audio/mpeg",), "duration": 30, "bitrate": 128,
          "delivery": (2,)}),
        (inline("2.0", VPAID), "video",
         {"protocols": (2,), "mimes": ("application/javascript",), "duration": 15, "w": 640,
          "h": 360, "delivery": (2,), "linear": True, "apis": (2,)}),
        (inline("3.0", linear=OVERLAY), "video", {"protocols": (3,), "linear": False}),
        (pod("3.0", inline("3.0", SPOT), inline("3.0", SPOT, duration="00:00:30")), "audio",
         {"protocols": (3,), "mimes": ("audio/mpeg",), "duration": 45, "bitrate": 128,
          "delivery": (2,), "ads": 2}),
        (pod("3.0", wrapper("3.0"), wrapper("3.0"), wrapper("3.0")), "video",
         {"protocols": (6,), "ads": 3}),
        (wrapper("4.1"), "video", {"protocols": (12,)}),
        (wrapper("3.0", allowMultipleAds="true"), "video", {"protocols": (6,), "ads": MAX_ADS}),
        (wrapper("4.2", allowMultipleAds=" 1 "), "audio", {"protocols": (14,), "ads": MAX_ADS}),
        (wrapper("3.0", allowMultipleAds="false"), "video", {"protocols": (6,)}),
        (pod("3.0", wrapper("3.0"), wrapper("3.0", allowMultipleAds="true")), "video",
         {"protocols": (6,), "ads": MAX_ADS}),
        ("https://ads.example/vast?a={{auction_id}}", "video", {}),
        (" //ads.example/vast?cb=[CACHEBUSTING]\n", "audio", {}),
        (inline("3.0", SPOT, duration="00:00:00.400"), "audio",
         {"protocols": (3,), "mimes": ("audio/mpeg",), "duration": 1, "bitrate": 128,
          "delivery": (2,)}),
    ],
)  # fmt: skip
def test_derived(adm: str, media: str, fields: dict[str, Any]) -> None:
    assert derived(imported(document(adm, media=media))) == fields


def test_stated_facts_count() -> None:
    stated = {"mimes": ["Video/MP4"], "duration": 14, "bitrate": 800, "delivery": [2, 3], "w": 640}
    creative = imported(document(inline("3.0", LADDER, duration="00:00:14.600"), **stated))
    assert derived(creative) == {
        "protocols": (3,), "mimes": ("video/mp4",), "duration": 14, "bitrate": 800,
        "delivery": (2, 3), "linear": True, "skippable": False, "w": 640, "h": 360,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("stated", "size"),
    [
        ({}, (1920, 1080)),
        ({"w": 1920}, (1920, 1080)),
        ({"h": 1080}, (1920, 1080)),
        ({"h": 720}, (1280, 720)),
        ({"w": 640, "h": 360}, (640, 360)),
    ],
)
def test_one_side_determines_the_other(stated: dict[str, int], size: tuple[int, int]) -> None:
    creative = imported(document(inline("3.0", LADDER), **stated))
    assert (creative.w, creative.h) == size


def test_a_video_asset() -> None:
    video = inline("3.0", LADDER)
    native = {"title": "t", "link": {"url": "https://a.example/"}, "video": video}
    response = {
        "assets": [{"title": {"text": "t"}}, {"video": {"vasttag": video}}],
        "link": {"url": "https://a.example/"},
    }
    for form in ({"native": native}, {"adm": json.dumps(response)}):
        creative = imported({**BASE, "creatives": [{"id": "n", "media": "native", **form}]})
        assert creative.native is not None
        assert creative.native.protocols == (3,)
        assert creative.native.mimes == ("video/mp4", "application/x-mpegurl")
        assert creative.native.duration == 15


# -- what contradicts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("adm", "stated", "mistake"),
    [
        (inline("4.2", LADDER), {"protocols": [2, 3, 13]},
         "protocols: must be 13: the markup is VAST 4.2, found 2"),
        (wrapper("3.0"), {"protocols": [2, 3]},
         "protocols: must have 6: the markup is a wrapper of VAST 3.0"),
        (inline("3.0", SPOT), {"media": "audio", "mimes": ["audio/mp3", "audio/ogg"]},
         'mimes: must be among the markup\'s media files (audio/mpeg), found "audio/ogg"'),
        (inline("3.0", LADDER), {"duration": 30}, "duration: must match the markup (15), found 30"),
        (inline("3.0", LADDER, duration="00:00:15.5"), {"duration": 14},
         "duration: must match the markup (15.5), found 14"),
        (inline("3.0", LADDER), {"bitrate": 801},
         "bitrate: must match one of the markup's media files (800, 4000, 2000), found 801"),
        (inline("3.0", SPOT), {"media": "audio", "delivery": [2, 1]},
         "delivery: must be among the markup's media files (2), found 1"),
        (inline("3.0", VPAID), {"apis": [7]}, "apis: must have 2, which the markup needs"),
        (inline("3.0", LADDER), {"linear": False}, "linear: must be true: the markup is linear"),
        (inline("3.0", linear=OVERLAY), {"linear": True},
         "linear: must be false: the markup is not linear"),
        (inline("3.0", LADDER), {"skippable": True},
         "skippable: must be false: the markup has no skip offset"),
        (inline("3.0", LADDER, skip="5%"), {"skippable": False},
         "skippable: must be true: the markup has a skip offset"),
        (inline("3.0", LADDER), {"attributes": [3, 16]},
         "attributes: must not have 16 (skip button): the markup has no skip offset"),
        (inline("3.0", LADDER), {"w": 641, "h": 720},
         "w: must match one of the markup's media files (640x360, 1920x1080, 1280x720)"),
        (inline("3.0", LADDER), {"w": 640, "h": 720},
         "h: must match one of the markup's media files (640x360, 1920x1080, 1280x720)"),
        (inline("3.0", LADDER), {"w": 1920, "h": 1000},
         "h: must match one of the markup's media files (640x360, 1920x1080, 1280x720)"),
        (inline("3.0", LADDER), {"w": 1921, "h": 1080},
         "w: must match one of the markup's media files (640x360, 1920x1080, 1280x720)"),
        (inline("3.0", LADDER), {"h": 480},
         "h: must match one of the markup's media files (640x360, 1920x1080, 1280x720)"),
        (pod("3.0", inline("3.0", LADDER), inline("3.0", LADDER)), {"ads": 1},
         "ads: must match the markup (2), found 1"),
        ("<DAAST version='1.0'/>", {"media": "audio"},
         "adm: must be VAST 2.0 to 4.3 or the URL of a VAST document, found <DAAST>,"
         " line 1 of the text"),
        ("an advertisement", {},
         "adm: must be VAST 2.0 to 4.3 or the URL of a VAST document: it is not XML (syntax error),"
         " line 1 of the text"),
    ],
)  # fmt: skip
def test_contradictions(adm: str, stated: dict[str, Any], mistake: str) -> None:
    assert mistakes(document(adm, **stated)) == [mistake]


@pytest.mark.parametrize(
    ("adm", "stated"),
    [
        (wrapper("3.0"), {"protocols": [2, 3, 6], "mimes": ["video/webm"], "duration": 30,
                          "linear": False, "skippable": True, "w": 1, "h": 1, "delivery": [1]}),
        (inline("3.0", LADDER), {"apis": [7], "w": 1280, "h": 720, "bitrate": 2000}),
        (inline("3.0", VPAID), {"apis": [7, 2], "skippable": True}),
        (inline("3.0", VPAID), {"attributes": [16]}),
        (wrapper("3.0"), {"attributes": [16]}),
        (inline("3.0", LADDER, skip="5%"), {"attributes": [16]}),
        (inline("3.0", LADDER), {"attributes": [3]}),
        (inline("3.0", LADDER), {"ads": 1}),
        (wrapper("3.0"), {"ads": 4}),
        (wrapper("3.0", allowMultipleAds="true"), {"ads": 1}),
        ("https://ads.example/", {"ads": 2}),
        (inline("3.0", SPOT), {"media": "audio", "w": 300, "h": 250, "duration": 15}),
        ("https://ads.example/", {"protocols": [9], "mimes": ["a/b"], "duration": 3}),
    ],
)  # fmt: skip
def test_compatible_statements(adm: str, stated: dict[str, Any]) -> None:
    creative = imported(document(adm, **stated))
    for name, value in stated.items():
        got = getattr(creative, name)
        assert got == (tuple(value) if isinstance(value, list) else value), name


def test_all_mistakes_are_named_at_once() -> None:
    stated = {"duration": "30", "mimes": [1, "a/b"], "protocols": 2, "w": "1", "skippable": True}
    named = mistakes(document(inline("3.0", LADDER), **stated))
    assert [mistake.partition(":")[0] for mistake in named] == [
        "duration", "mimes[0]", "protocols", "w", "mimes", "skippable",
    ]  # fmt: skip


def test_an_asset_that_contradicts() -> None:
    native = {"title": "t", "link": {"url": "https://a.example/"}, "video": inline("3.0", LADDER)}
    creative = {"id": "n", "media": "native", "native": native, "duration": 30}
    said = mistakes({**BASE, "creatives": [creative]})
    assert said == ["duration: must match the markup (15), found 30"]
    native["video"] = "<VAST/>"
    assert mistakes({**BASE, "creatives": [creative]}) == [
        'native.video: must have the attribute "version" in <VAST>, line 1 of the text'
    ]


def test_the_demo_can_be_imported() -> None:
    text = "\n".join(document for _, document in demo.documents())
    campaigns = [campaign for campaign, _ in read_file("demo.jsonl", BytesIO(text.encode()))]
    media = [creative for each in campaigns for creative in each.creatives if creative.protocols]
    assert {protocol for creative in media for protocol in creative.protocols} == {2, 3}
    assert {creative.skippable for creative in media if creative.media == "video"} == {True, False}


# -- what is stored already -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"adm": "<DAAST/>"},
        {"protocols": [2, 3, 7, 8]},
        {"duration": 30},
        {"attributes": [16]},
        {"w": 1920, "h": 700},
    ],
)
def test_campaigns_stored_earlier_still_bid(change: dict[str, Any]) -> None:
    written = document(**{"adm": inline("3.0", LADDER)} | change)
    assert mistakes(written)
    creative = parse(written).creatives[0]
    for name, value in change.items():
        stored = tuple(value) if isinstance(value, list) else value
        assert getattr(creative, name) == stored
