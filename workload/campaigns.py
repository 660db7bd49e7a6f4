"""A seeded generator of campaign documents, in two shapes.

`std`: 20 targeting dimensions occur, each in the share of campaigns that `SHARES` gives, so
that about 1% of the campaigns are eligible for a request of `workload/requests.py`. `rare`: all
target places, half of them segments, and about 0.05% are eligible.

    python -m workload.campaigns 10000 [rare] > campaigns.jsonl
"""

import json
import sys
from collections.abc import Callable, Iterator
from math import exp
from random import Random
from typing import Any, Final

from snapbid.loadtest.pools import Pool
from workload import pools

SHARES: Final = {
    "country": 0.70,
    "region": 0.30,
    "city": 0.05,
    "postal": 0.02,
    "device_type": 0.40,
    "connection": 0.25,
    "os": 0.40,
    "browser": 0.25,
    "carrier": 0.05,
    "language": 0.25,
    "inventory": 0.30,
    "domain": 0.25,  # 10% allow lists, 15% block lists
    "bundle": 0.08,
    "publisher": 0.12,
    "category": 0.30,
    "segment": 0.20,
    "deal": 0.03,
    "position": 0.08,
    "hour": 0.10,
    "ssp": 0.10,
}
SHAPES: Final = {
    "std": SHARES,
    "rare": SHARES | {"country": 1.0, "region": 1.0, "city": 0.9, "segment": 0.5},
}
GEO_RADIUS: Final = 0.02
BLOCKED_DOMAINS: Final = 0.6  # of the campaigns that target domains
EXCLUDES: Final = 0.15  # of the other lists
MEDIA: Final = Pool([("banner", 78), ("video", 15), ("native", 6), ("audio", 1)])


def documents(count: int, seed: int = 1, shape: str = "std") -> Iterator[dict[str, Any]]:
    """Campaign documents as `snapbid campaign import` accepts them."""
    random = Random(seed)
    for number in range(count):
        yield _document(random, number, SHAPES[shape])


def _document(random: Random, number: int, shares: dict[str, float]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": f"campaign-{number:07d}",
        "name": f"Campaign {number}",
        "advertiser": random.choice(pools.ADVERTISERS),
        "cpm": max(0.01, round(1.2 * exp(random.gauss(0, 0.8)), 2)),
        "categories": [random.choice(pools.AD_CATEGORIES)],
        "targeting": _targeting(random, shares),
        "creatives": _creatives(random, number),
    }
    if random.random() < 0.5:
        document["seat"] = random.choice(pools.SEATS)
    return document


def _targeting(random: Random, shares: dict[str, float]) -> dict[str, Any]:
    targeting: dict[str, Any] = {}
    for dimension, share in shares.items():
        if random.random() < share:
            if dimension == "domain":
                side, most = ("exclude", 40) if random.random() < BLOCKED_DOMAINS else (
                    "include", 60)  # fmt: skip
                values: list[Any] = pools.SITES.draw_several(random, most)
            else:
                side = "exclude" if random.random() < EXCLUDES else "include"
                values = _VALUES[dimension](random)
            targeting[dimension] = {side: values}
    if random.random() < GEO_RADIUS:
        lat, lon = random.choice(pools.CENTRES)
        targeting["geo_radius"] = [{"lat": lat, "lon": lon, "km": random.choice((5, 25, 100))}]
    return targeting


def _regions(random: Random) -> list[str]:
    country = pools.COUNTRIES.draw(random)
    return [f"{country}-{code}" for code in pools.REGIONS[country].draw_several(random, 10)]


def _hours(random: Random) -> list[int]:
    first, length = random.randrange(24), random.randint(6, 18)
    return sorted({day * 24 + (first + n) % 24 for day in range(7) for n in range(length)})


_VALUES: Final[dict[str, Callable[[Random], list[Any]]]] = {
    "country": lambda random: pools.COUNTRIES.draw_several(random, 3),
    "region": _regions,
    "city": lambda random: pools.CITIES.draw_several(random, 10),
    "postal": lambda random: pools.POSTALS.draw_several(random, 20),
    "device_type": lambda random: pools.DEVICES.draw_several(random, 2),
    "connection": lambda random: pools.CONNECTIONS.draw_several(random, 2),
    "os": lambda random: pools.SYSTEMS.draw_several(random, 2),
    "browser": lambda random: pools.BROWSERS.draw_several(random, 2),
    "carrier": lambda random: pools.CARRIERS.draw_several(random, 3),
    "language": lambda random: pools.LANGUAGES.draw_several(random, 1),
    "inventory": lambda random: [random.choice(("site", "app"))],
    "bundle": lambda random: pools.BUNDLES.draw_several(random, 40),
    "publisher": lambda random: pools.PUBLISHERS.draw_several(random, 30),
    "category": lambda random: (
        pools.SITE_CATEGORIES.draw_several(random, 2) + pools.APP_CATEGORIES.draw_several(random, 2)
    ),
    "segment": lambda random: pools.SEGMENTS.draw_several(random, 12),
    "deal": lambda random: pools.DEALS.draw_several(random, 4),
    "position": lambda random: random.choice(([1], [1, 4], [0, 1], [3])),
    "hour": _hours,
    "ssp": lambda random: pools.SSPS.draw_several(random, 1),
}


def _creatives(random: Random, number: int) -> list[dict[str, Any]]:
    media = MEDIA.draw(random)
    if media == "banner":
        sizes = pools.ALL_SIZES.draw_several(random, 2)
        return [_banner(random, number, *size) for size in sizes]
    if media == "native":
        image = {"type": 3, "url": f"https://cdn.example/{number}.jpg", "w": 1200, "h": 627}
        native = {
            "title": f"Offer {number}",
            "images": [image],
            "data": {"2": "What it is about, in a line"},
            "link": {"url": _landing(number)},
        }
        return [{"id": f"cr-{number}-n", "media": "native", "native": native}]
    duration = random.choice((15, 15, 30, 30, 30, 6))
    mime = "video/mp4" if media == "video" else "audio/mpeg"
    return [
        {
            "id": f"cr-{number}-{duration}",
            "media": media,
            "adm": _vast(number, mime, duration),
            "mimes": [mime],
            "duration": duration,
            "protocols": [3],
        }
    ]


def _banner(random: Random, number: int, w: int, h: int) -> dict[str, Any]:
    creative: dict[str, Any] = {
        "id": f"cr-{number}-{w}x{h}",
        "media": "banner",
        "w": w,
        "h": h,
        "adm": f'<a href="{_landing(number)}" target="_blank" rel="noopener"><img '
        f'src="https://cdn.brand.example/{number}/{w}x{h}.jpg" width="{w}" height="{h}" alt="">'
        f'</a><img src="https://px.brand.example/i?{_QUERY}" width="1" height="1" alt="">'
        f'<script async src="https://verify.brand.example/v2/tag.js?adv={number}&size={w}x{h}'
        f'&{_QUERY}"></script>',
    }
    if random.random() < 0.2:
        creative["attributes"] = [random.choice((1, 2, 3, 6, 8, 9, 14))]
    if random.random() < 0.03:
        creative["secure"] = False
    return creative


_QUERY: Final = "a={{auction_id}}&i={{imp_id}}&c={{campaign_id}}&cb={{cachebuster}}"


def _landing(number: int) -> str:
    return f"https://www.brand.example/offer/{number}?{_QUERY}"


def _vast(number: int, mime: str, duration: int) -> str:
    return (
        '<VAST version="3.0"><Ad id="1"><InLine><AdSystem>bench</AdSystem><AdTitle>a</AdTitle>'
        f"<Impression><![CDATA[https://px.brand.example/i?{_QUERY}]]></Impression><Creatives>"
        f"<Creative><Linear><Duration>00:00:{duration:02}</Duration><MediaFiles><MediaFile "
        f'delivery="progressive" type="{mime}" width="640" height="360">'
        f"<![CDATA[https://cdn.brand.example/{number}]]>"
        "</MediaFile></MediaFiles></Linear></Creative></Creatives></InLine></Ad></VAST>"
    )


if __name__ == "__main__":
    for document in documents(int(sys.argv[1]), shape=(*sys.argv[2:], "std")[0]):
        print(json.dumps(document))
