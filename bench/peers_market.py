"""A market that each bidder of `bench.peers_run` can express: banners by segment, country, device.

Every campaign names segments and countries, since a bidder may take a campaign without them for one
that fits nowhere. Requests carry their user's segments, for bidders that do not look them up, and a
device of their own, for one that looks up nothing else.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final, NamedTuple

from snapbid.loadtest.pools import zipf
from workload import requests

TMAX_MS: Final = 500
SIZES: Final = ((300, 250), (320, 50), (728, 90))
COUNTRIES: Final = zipf(("USA", "IND", "BRA", "IDN", "JPN", "GBR", "DEU", "MEX", "FRA", "CAN"), 0.8)
SEGMENTS: Final = zipf(range(1, 1_001), 1.1)
DEVICES: Final = {"MOBILE": (1, 4), "DESKTOP": (2,), "TABLET": (5,)}  # OpenRTB's numbers
DEVICE_LISTS: Final = ((), ("MOBILE",), ("DESKTOP",), ("MOBILE", "DESKTOP", "TABLET"))
MARKUP: Final = (
    '<a href="https://brand.example/{number}?c={{{{cachebuster}}}}">'
    '<img src="https://cdn.example/{number}.jpg" width="{w}" height="{h}"></a>'
)
USERS: Final = 2_000


class Campaign(NamedTuple):
    """What it pays is in cents a thousand; `devices` are keys of DEVICES, none for any."""

    number: int
    cents: int
    segments: tuple[int, ...]
    countries: tuple[str, ...]
    devices: tuple[str, ...]


def campaigns(count: int, seed: int = 5) -> list[Campaign]:
    random = Random(seed)
    return [
        Campaign(
            number=number,
            cents=random.randint(50, 500),
            segments=tuple(sorted(set(SEGMENTS.draw_several(random, 8)))),
            countries=tuple(sorted(set(COUNTRIES.draw_several(random, 3)))),
            devices=random.choice(DEVICE_LISTS),
        )
        for number in range(1, count + 1)
    ]


def document(campaign: Campaign, *, limited: bool) -> dict[str, Any]:
    """The campaign as Snapbid imports it; with a budget and a cap that are never reached."""
    targeting: dict[str, Any] = {
        "segment": {"include": [str(segment) for segment in campaign.segments]},
        "country": {"include": list(campaign.countries)},
    }
    if campaign.devices:
        numbers = [number for device in campaign.devices for number in DEVICES[device]]
        targeting["device_type"] = {"include": numbers}
    limits: dict[str, Any] = {
        "budget": {"daily": 10**6, "total": 10**7},
        "frequency_caps": [{"impressions": 10**6, "seconds": 3_600}],
    }
    return {
        "id": f"campaign-{campaign.number}",
        "advertiser": f"brand{campaign.number % 500}.example",
        "cpm": campaign.cents / 100,
        "targeting": targeting,
        "creatives": [
            {
                "id": f"{campaign.number}-{w}x{h}",
                "media": "banner",
                "w": w,
                "h": h,
                "adm": MARKUP.format(number=campaign.number, w=w, h=h),
            }
            for w, h in SIZES
        ],
        **(limits if limited else {}),
    }


def users(seed: int = 6) -> dict[str, Sequence[int]]:
    """The segments of each user, 5 to 15 of them."""
    random = Random(seed)
    return {
        str(number): [SEGMENTS.draw(random) for _ in range(random.randint(5, 15))]
        for number in range(1, USERS + 1)
    }


def bid_requests(count: int, impressions: int, seed: int = 7) -> list[requests.Request]:
    """Requests with the fields that exchanges usually send, for that many banners each."""
    random = Random(seed)
    known = users()
    made = []
    for request in requests.make(count, seed):
        user = random.choice(list(known))
        segments = [{"id": str(segment), "name": f"segment {segment}"} for segment in known[user]]
        request["imp"] = [_banner(random, number) for number in range(1, impressions + 1)]
        request["user"] = {"id": user, "data": [{"id": "dmp", "segment": segments}]}
        request["device"]["geo"] |= {"country": COUNTRIES.draw(random)}
        request["device"]["ifa"] = f"{random.getrandbits(128):032x}"
        request["tmax"] = TMAX_MS
        for name in ("bcat", "badv", "regs"):
            request.pop(name, None)
        made.append(request)
    return made


def _banner(random: Random, number: int) -> dict[str, Any]:
    w, h = random.choice(SIZES)
    banner = {"w": w, "h": h, "format": [{"w": w, "h": h}], "pos": 1, "battr": [1, 3], "api": [5]}
    return {"id": str(number), "tagid": f"slot-{random.randrange(500)}", "banner": banner}
