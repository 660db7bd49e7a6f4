"""Seeded bid requests: about 1 KB each, or with the sizes of today's traffic.

One impression, site or app, with the fields that exchanges usually send, whether the bidder reads
them or not. `no_bids` makes of them requests that no campaign answers, each for one of four usual
reasons; `grown` adds what makes today's requests large.
"""

import json
from bisect import bisect
from collections.abc import Iterable
from math import exp
from random import Random
from typing import Any, Final

from snapbid.loadtest.traffic import NATIVE_REQUEST
from workload import pools

APPS: Final = 0.56
VIDEOS: Final = 0.15
NATIVES: Final = 0.05
USER_DATA: Final = 0.4

# Quantiles of today's body sizes, bytes: an estimate, since consent strings, ids and supply chains
# have made requests grow; captures of the last decade have a median of about 1,000.
TODAY: Final = ((0.0, 700), (0.1, 900), (0.5, 2200), (0.9, 5500), (0.99, 14000), (1.0, 20000))

Request = dict[str, Any]


def make(count: int, seed: int = 2) -> list[Request]:
    """Requests of about 1 KB."""
    random = Random(seed)
    return [_request(random) for _ in range(count)]


def encode(requests: Iterable[Request]) -> list[bytes]:
    """Bodies, without spaces, as exchanges send them."""
    return [json.dumps(each, separators=(",", ":")).encode() for each in requests]


def unremembered(requests: Iterable[Request]) -> list[Request]:
    """The same requests as test traffic, whose bids are answered but not remembered."""
    return [request | {"test": 1} for request in requests]


def no_bids(requests: Iterable[Request]) -> list[Request]:
    """The same requests, that nobody answers: the reasons take turns."""
    changed = []
    for number, request in enumerate(requests):
        imp = dict(request["imp"][0])
        own = request | {"imp": [imp]}
        reason = number % 4
        if reason == 0:
            imp["bidfloor"] = 500.0
            imp.pop("pmp", None)
        elif reason == 1:
            imp["pmp"] = {"private_auction": 1, "deals": [{"id": "unknown-deal", "bidfloor": 1}]}
        elif reason == 2:
            own["wseat"] = ["nobody-here"]
        else:
            for name in ("video", "native"):
                imp.pop(name, None)
            imp["banner"] = {"w": 333, "h": 77, "pos": 1}
        changed.append(own)
    return changed


def grown(requests: Iterable[Request], seed: int = 3) -> list[Request]:
    """The same requests, brought to sizes drawn from `TODAY`."""
    random = Random(seed)
    return [_grow(random, request, _size(random.random())) for request in requests]


def _size(share: float) -> int:
    place = min(bisect(TODAY, (share, 0)), len(TODAY) - 1)
    (low, small), (high, large) = TODAY[place - 1], TODAY[place]
    return round(small + (large - small) * (share - low) / (high - low))


def _grow(random: Random, request: Request, target: int) -> Request:
    request = json.loads(json.dumps(request))
    size = len(json.dumps(request, separators=(",", ":")))
    steps = (_add_consent, _add_eid, _add_blocks, _add_node)
    number = 0
    while size < target - 100:
        steps[number % len(steps)](random, request)
        size = len(json.dumps(request, separators=(",", ":")))
        number += 1
    return request


def _add_consent(random: Random, request: Request) -> None:
    ext = request["user"].setdefault("ext", {})
    ext["consented_providers"] = ext.get("consented_providers", "") + _hex(random, 120)


def _add_eid(random: Random, request: Request) -> None:
    eids = request["user"].setdefault("eids", [])
    uid = {"id": _hex(random, 64), "atype": 1, "ext": {"stype": "ppuid"}}
    eids.append({"source": f"id{len(eids)}.example", "uids": [uid]})


def _add_blocks(random: Random, request: Request) -> None:
    badv = request.setdefault("badv", [])
    badv += [f"blocked{random.randrange(100_000)}.example" for _ in range(12)]


def _add_node(random: Random, request: Request) -> None:
    chain = request["source"]["ext"]["schain"]["nodes"]
    chain.append({"asi": f"reseller{len(chain)}.example", "sid": _hex(random, 12), "hp": 1})


def _hex(random: Random, length: int) -> str:
    return f"{random.getrandbits(4 * length):0{length}x}"


def _request(random: Random) -> Request:
    app = random.random() < APPS
    country = pools.COUNTRIES.draw(random)
    request: Request = {
        "id": _hex(random, 32),
        "imp": [_imp(random, app)],
        **({"app": _app(random)} if app else {"site": _site(random)}),
        "device": _device(random, app, country),
        "user": _user(random),
        "at": random.choice((1, 1, 1, 2)),
        "tmax": random.choice((100, 120, 150, 200, 250, 300, 500)),
        "cur": ["USD"],
        "bcat": random.sample(pools.BLOCKABLE, 5),
        "badv": random.sample(pools.ADVERTISERS, 2),
        "source": {"tid": _hex(random, 16), "ext": {"schain": _schain(random)}},
    }
    if country == "USA":
        request["regs"] = {"ext": {"us_privacy": "1YNN"}}
    return request


def _schain(random: Random) -> dict[str, Any]:
    node = {"asi": "exchange.example", "sid": str(random.randrange(10**5)), "hp": 1}
    return {"ver": "1.0", "complete": 1, "nodes": [node]}


def _imp(random: Random, app: bool) -> Request:
    imp: Request = {"id": "1", "tagid": f"slot-{random.randrange(500)}", "secure": 1}
    draw = random.random()
    if draw < VIDEOS:
        w, h = pools.VIDEO_SIZES.draw(random)
        imp["video"] = {
            "mimes": ["video/mp4", "video/webm"],
            "minduration": 5,
            "maxduration": 30,
            "protocols": [2, 3, 5, 6],
            "w": w,
            "h": h,
            "placement": 1,
        }
    elif draw < VIDEOS + NATIVES:
        imp["native"] = {"request": NATIVE_REQUEST, "ver": "1.2", "battr": [1, 3]}
    else:
        imp["banner"] = _banner(random, app)
    if random.random() < 0.75:
        median = 4.0 if "video" in imp else 0.35
        imp["bidfloor"] = round(median * exp(random.gauss(0, 1.0)), 3)
        imp["bidfloorcur"] = "EUR" if random.random() < 0.05 else "USD"
    if random.random() < 0.15:
        deals = [{"id": deal, "bidfloor": 1.5} for deal in pools.DEALS.draw_several(random, 3)]
        imp["pmp"] = {"private_auction": 0, "deals": deals}
    return imp


def _banner(random: Random, app: bool) -> Request:
    sizes = (pools.APP_SIZES if app else pools.WEB_SIZES).draw_several(random, 2)
    formats = [{"w": w, "h": h} for w, h in sizes]
    pos = random.choice((0, 1, 1, 3, 4))
    return {**formats[0], "format": formats, "battr": [1, 3, 8], "pos": pos, "api": [3, 5]}


def _app(random: Random) -> Request:
    bundle = pools.BUNDLES.draw(random)
    return {
        "id": str(random.randrange(10**6)),
        "name": bundle.rpartition(".")[2].title(),
        "bundle": bundle,
        "storeurl": f"https://store.example/apps/{bundle}",
        "cat": [pools.APP_CATEGORIES.draw(random)],
        "publisher": {"id": pools.PUBLISHERS.draw(random)},
    }


def _site(random: Random) -> Request:
    domain = pools.SITES.draw(random)
    return {
        "id": str(random.randrange(10**6)),
        "domain": f"www.{domain}",
        "page": f"https://www.{domain}/section/article-{random.randrange(10**5)}",
        "cat": pools.SITE_CATEGORIES.draw_several(random, 2),
        "publisher": {"id": pools.PUBLISHERS.draw(random)},
    }


def _device(random: Random, app: bool, country: str) -> Request:
    ua, system, kind = _agent(random, app)
    device: Request = {
        "ua": ua,
        "ip": ".".join(str(random.randrange(1, 250)) for _ in range(4)),
        "devicetype": kind,
        "os": system,
        "language": pools.LANGUAGES.draw(random),
        "connectiontype": pools.CONNECTIONS.draw(random),
        "geo": _geo(random, country),
        "js": 1,
    }
    if app:
        device["ifa"] = _hex(random, 32)
        device["lmt"] = 0
    if random.random() < 0.4:
        device["carrier"] = pools.CARRIERS.draw(random)
    return device


def _geo(random: Random, country: str) -> Request:
    geo: Request = {"country": country, "region": pools.REGIONS[country].draw(random)}
    if random.random() < 0.6:
        geo["city"] = pools.CITIES.draw(random)
    if random.random() < 0.4:
        geo["zip"] = pools.POSTALS.draw(random)
    if random.random() < 0.4:
        lat, lon = random.choice(pools.CENTRES)
        geo["lat"] = round(lat + random.gauss(0, 2), 4)
        geo["lon"] = round(lon + random.gauss(0, 2), 4)
    return geo


def _user(random: Random) -> Request:
    user: Request = {"id": _hex(random, 32)}
    if random.random() < USER_DATA:
        segments = [{"id": segment} for segment in pools.SEGMENTS.draw_several(random, 8)]
        user["data"] = [{"id": "dmp", "name": "dmp.example", "segment": segments}]
    return user


_WEBKIT: Final = "AppleWebKit/537.36 (KHTML, like Gecko)"


def _agent(random: Random, app: bool) -> tuple[str, str, int]:
    """A user agent with the operating system and device type that go with it."""
    version = min(int(random.expovariate(0.5)), 30)
    draw = random.random()
    if draw < 0.35:
        system = f"{18 - version % 4}_{version % 6}"
        tail = "" if app else f" Version/{18 - version % 4}.0 Safari/604.1"
        head = f"Mozilla/5.0 (iPhone; CPU iPhone OS {system} like Mac OS X)"
        return f"{head} AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148{tail}", "iOS", 4
    chrome = f"Chrome/{138 - version}.0.0.0"
    if draw < 0.75 or app:
        model = f"SM-G{random.randrange(20) * 5 + 900}B" if app else "K"
        head = f"Mozilla/5.0 (Linux; Android {14 - version % 5}; {model})"
        return f"{head} {_WEBKIT} {chrome} Mobile Safari/537.36", "Android", 4
    head = "Mozilla/5.0 (Windows NT 10.0; Win64; x64)"
    edge = f" Edg/{138 - version}.0.0.0" if draw > 0.92 else ""
    return f"{head} {_WEBKIT} {chrome} Safari/537.36{edge}", "Windows", 2
