"""Random campaigns and requests in which every dimension and every limit decides often.

Values come from small pools, so that matches, near misses and ties are frequent. One generator
serves Hypothesis (`cases`) and fast seeded runs (`random_world`, `random_request`).
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction

from hypothesis import strategies as st

from support import consent, pools, vast
from support.choices import Choices
from support.oracle import World
from support.oracle_reading import floor_micros
from support.oracle_values import Document
from support.random_requests import request_of


@dataclass(frozen=True)
class Surroundings:
    """The lookup tables of a `World`; by default the small ones of the pools."""

    country_of_ip: Callable[[str], str | None] = pools.country_of_ip
    agent: Callable[[str], tuple[str, str]] = pools.agent
    fold_os: Callable[[str], str] = pools.fold_os
    brand: Callable[[str], str | None] = pools.brand
    alpha3: Callable[[str], str | None] = pools.alpha3
    usd: Mapping[str, Fraction] = field(default_factory=lambda: pools.USD)
    may_use_user_data: Callable[..., bool] = consent.may_use_user_data


@dataclass(frozen=True)
class Case:
    """A world and a request to it, drawn by Hypothesis."""

    world: World
    descriptor: str
    request: Document


# Operators


def world_of(choices: Choices, campaigns: int, around: Surroundings) -> World:
    """Make a world with a number of campaigns."""
    world = World(
        campaigns=[],
        registry=dict(pools.REGISTRY),
        now=choices.pick(pools.NOWS),
        gvl_id=consent.VENDOR if choices.chance(40) else None,
        **vars(around),
    )
    world.campaigns = [campaign_of(choices, world, f"c{index}") for index in range(campaigns)]
    if choices.chance(30):
        world.suspended = suspended_of(choices, world)
    return world


def suspended_of(choices: Choices, world: World) -> frozenset[tuple[str, str, str]]:
    """Let some creatives rest at some SSPs."""
    canonicals = sorted(set(world.registry.values()))
    return frozenset(
        (ssp, campaign["id"], creative["id"])
        for campaign in world.campaigns
        for creative in campaign["creatives"]
        for ssp in canonicals
        if choices.chance(30)
    )


def campaign_of(choices: Choices, world: World, name: str) -> Document:
    """Make a campaign document as an operator writes it."""
    campaign: Document = {
        "id": name,
        "advertiser": choices.pick(pools.ADVERTISERS),
        "cpm": cpm_of(choices, world),
        "creatives": [
            creative_of(choices, f"{name}-{letter}") for letter in choices.some("abc", 3)
        ],
    }
    if targeting := targeting_of(choices, world):
        campaign["targeting"] = targeting
    for key, percent, pool in (("seat", 60, pools.SEATS), ("bundle", 40, pools.BUNDLES)):
        if choices.chance(percent):
            campaign[key] = choices.pick(pool)
    if choices.chance(50):
        campaign["categories"] = choices.some(pools.CATEGORIES)
    elif choices.chance(50):
        campaign["categories"] = choices.some(pools.PRODUCTS)
        campaign["cattax"] = 8
    elif choices.chance(40):
        campaign["categories"] = choices.some(pools.CONTENTS)
        campaign["cattax"] = choices.pick((2, 7, 7, 600))
    if choices.chance(4):
        campaign["status"] = "paused"
    campaign.update(flight_of(choices, world.now))
    if choices.chance(30):
        campaign["dsa"] = choices.pick(pools.DECLARATIONS)
    if choices.chance(15):
        campaign["product"] = choices.pick(pools.ADVERTISED)
    if choices.chance(15):
        campaign["frequency_caps"] = [{"impressions": choices.pick((1, 3)), "seconds": 3600}]
    return campaign


def cpm_of(choices: Choices, world: World) -> float:
    """Choose a CPM in USD, often at a converted floor or a micro-USD off it."""
    way = choices.pick(("any", "any", "few", "floor"))
    if way != "floor":
        return choices.pick(pools.CPMS if way == "any" else (50, 1.0))
    floor = floor_micros(world, choices.pick(pools.FLOORS[:-1]), choices.pick(pools.CURRENCIES))
    return max(1, (floor or 1_000_000) + choices.pick((0, -1, 1))) / 1_000_000


def flight_of(choices: Choices, now: datetime) -> Document:
    """Choose flight dates at and around the present."""
    starts = now + choices.pick(pools.SHIFTS) if choices.chance(8) else None
    ends = now + choices.pick(pools.SHIFTS) if choices.chance(8) else None
    if starts is not None and ends is not None and starts >= ends:
        ends = starts + timedelta(hours=1)
    moments = (("starts_at", starts), ("ends_at", ends))
    return {key: rfc3339(moment) for key, moment in moments if moment is not None}


def rfc3339(moment: datetime) -> str:
    """Write a time to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def targeting_of(choices: Choices, world: World) -> Document:
    """Choose targeting of up to three dimensions."""
    if choices.chance(15):
        return {"deal": {"include": choices.some(pools.ENTRIES["deal"])}}
    targeting: Document = {}
    for dimension in choices.some(list(pools.ENTRIES), choices.pick((0, 1, 1, 2, 3)), least=0):
        pool = pools.ENTRIES[dimension] or pools.hours(world.now)
        sides = choices.pick((("include",), ("include",), ("exclude",), ("include", "exclude")))
        targeting[dimension] = {side: choices.some(pool) for side in sides}
    if choices.chance(16):
        targeting["deal"] = {"include": choices.some(pools.ENTRIES["deal"])}
    if choices.chance(6):
        targeting["region"] = {"exclude": choices.some(pools.ENTRIES["region"])}
    if choices.chance(12):
        targeting["segment"] = {"include": choices.some(pools.ENTRIES["segment"])}
    if choices.chance(6):
        targeting["geo_radius"] = [
            {"lat": lat, "lon": lon, "km": choices.pick(pools.RADII_KM)}
            for lat, lon in choices.some(pools.CENTRES, 2)
        ]
    return targeting


def creative_of(choices: Choices, name: str) -> Document:
    """Make a creative of any of the four media."""
    media = choices.pick(
        ("banner", "banner", "banner", "banner", "video", "video", "native", "audio")
    )
    creative: Document = {"id": name, "media": media}
    if media == "native":
        creative["native"] = native_ad_of(choices)
        if choices.chance(50) and not creative["native"].get("video", "").startswith("<VAST"):
            creative["duration"] = choices.pick(pools.DURATIONS)
    elif media == "banner":
        creative["adm"] = "<p>{{auction_id}}</p>"
    else:
        creative["adm"] = "https://ads.example/vast?a={{auction_id}}"
    if media == "banner":
        creative["w"], creative["h"] = choices.pick(pools.SIZES)
        if choices.chance(30):
            creative["adm"] = choices.pick(
                ("<SCRIPT src=x></script><iframe>", "a<iframe src=x>", "<p onclick=f()>")
            )
        if choices.chance(20):
            creative["type"] = choices.pick(pools.BANNER_TYPES)
    if media != "native" and choices.chance(60 if media != "banner" else 25):
        creative["mimes"] = choices.some(pools.MIMES[media], 2)
    if choices.chance(15):
        creative["apis"] = choices.some(pools.APIS, 2)
    if choices.chance(50):
        creative["language"] = choices.pick(pools.CREATIVE_LANGUAGES)
    if media in ("video", "audio"):
        if choices.chance(60):
            creative["protocols"] = choices.some(pools.PROTOCOLS, 2)
        if choices.chance(75):
            creative["duration"] = choices.pick(pools.DURATIONS)
        if choices.chance(25):
            creative["ads"] = choices.pick((1, 2, 3))
    if choices.chance(30):
        creative["attributes"] = choices.some(pools.ATTRIBUTES, 2)
    if choices.chance(25):
        creative["secure"] = choices.chance(20)
    if media in ("video", "audio"):
        creative.update(media_of(choices, media, creative.get("attributes", [])))
        if choices.chance(40):
            creative["adm"] = vast_of(choices, media)
            for name in SAID_BY_VAST:
                creative.pop(name, None)
            if choices.chance(25):
                creative.update(stated_of(choices, creative["adm"]))
    return creative


SAID_BY_VAST = ["mimes", "protocols", "duration", "apis", "linear", "skippable"]
SAID_BY_VAST += ["bitrate", "delivery", "w", "h", "ads"]


def vast_of(choices: Choices, media: str) -> str:
    """Make VAST of video or audio."""
    version = choices.pick(("2.0", "3.0", "3.0", "4.0", "4.1", "4.2"))
    if choices.chance(15):
        return vast.wrapper(version)
    if media == "video" and choices.chance(15):
        return vast.inline(version, linear=vast.overlay())
    files = ""
    for _ in range(choices.integer(1, 3)):
        w, h = choices.pick(pools.MEDIA_SIZES) if media == "video" else (0, 0)
        bitrate = f' bitrate="{choices.pick(pools.BITRATES)}"' if choices.chance(75) else ""
        api = ' apiFramework="VPAID"' if media == "video" and choices.chance(20) else ""
        files += (
            f'<MediaFile delivery="{choices.pick(("streaming", "progressive"))}"'
            f' type="{choices.pick(pools.MIMES[media]).lower()}" width="{w}" height="{h}"'
            f"{bitrate}{api}>https://cdn.example/{{{{creative_id}}}}</MediaFile>"
        )
    seconds = choices.pick(pools.DURATIONS)
    return vast.inline(
        version,
        files,
        duration=f"00:{seconds // 60:02}:{seconds % 60:02}",
        skip="00:00:05" if version != "2.0" and choices.chance(30) else "",
    )


def stated_of(choices: Choices, adm: str) -> Document:
    """Choose what a creative says of the media files in its VAST, of which it says one thing."""
    names = ("type", "bitrate", "delivery")
    found = {name: re.findall(f' {name}="([^";]*)', adm) for name in names}
    said: Document = {}
    if found["type"] and choices.chance(50):
        said["mimes"] = choices.some(sorted({*found["type"]}), 2)
    elif found["bitrate"] and choices.chance(50):
        said["bitrate"] = int(choices.pick(found["bitrate"]))
    elif found["delivery"]:
        said["delivery"] = [1 if choices.pick(found["delivery"]) == "streaming" else 2]
    return said


def media_of(choices: Choices, media: str, attributes: list[int]) -> Document:
    """Choose what a creative of video or audio says of its media."""
    said: Document = {}
    if choices.chance(75):
        said["bitrate"] = choices.pick(pools.BITRATES)
    if choices.chance(75):
        said["delivery"] = choices.some(pools.DELIVERY, 2)
    if media == "video":
        if choices.chance(75):
            said["linear"] = choices.chance(75)
        if choices.chance(75):
            said["skippable"] = 16 in attributes or choices.chance(30)
        if choices.chance(75):
            said["w"], said["h"] = choices.pick(pools.MEDIA_SIZES)
    return said


def native_ad_of(choices: Choices) -> Document:
    """Make the assets of a native creative, with a title at least."""
    ad: Document = {
        "title": "t" * choices.pick(pools.TITLES),
        "link": {"url": "https://shop.example/{{campaign_id}}"},
    }
    if choices.chance(70):
        ad["images"] = choices.some(pools.IMAGES, 2)
    if choices.chance(50):
        ad["data"] = {
            str(kind): "d" * choices.pick(pools.TITLES) for kind in choices.some((1, 2, 3, 12), 2)
        }
    if choices.chance(30):
        ad["video"] = choices.pick(("https://ads.example/vast", vast_of(choices, "video")))
    if choices.chance(40):
        ad["eventtrackers"] = [
            {"event": event, "method": 1, "url": "https://t.example/{{auction_id}}"}
            for event in choices.some((1, 2, 3), 2)
        ]
    if choices.chance(30):
        ad["privacy"] = "https://shop.example/privacy"
    return ad


# For tests


def random_world(seed: int, campaigns: int = 8, around: Surroundings | None = None) -> World:
    """Make a world from a seed; the same seed makes the same world."""
    rng = random.Random(f"world {seed}")
    return world_of(Choices(rng.randint), campaigns, around or Surroundings())


def random_request(rng: random.Random, world: World) -> tuple[str, Document]:
    """Make the descriptor of an SSP of the world and a request from it."""
    choices = Choices(rng.randint)
    return choices.pick(list(world.registry)), request_of(choices)


@st.composite
def cases(draw: st.DrawFn, most_campaigns: int = 6, around: Surroundings | None = None) -> Case:
    """Draw a world with 1 to `most_campaigns` campaigns and a request to it."""
    choices = Choices(lambda least, most: draw(st.integers(least, most)))
    world = world_of(choices, choices.integer(1, most_campaigns), around or Surroundings())
    return Case(world, choices.pick(list(world.registry)), request_of(choices))
