"""The values that campaigns target and requests carry, each pool with a popularity.

Campaigns and requests draw from the same pools, so that popular values meet often, as on a real
exchange. Shares of countries, systems, sizes and categories are rounded estimates of web and app
traffic; domains, bundles, publishers, segments and cities follow Zipf's law.
"""

from itertools import chain
from typing import Final

from snapbid.loadtest.pools import Pool as Pool
from snapbid.loadtest.pools import shares, zipf
from snapbid.loadtest.traffic import BUNDLES as BUNDLES
from snapbid.loadtest.traffic import DEALS as DEALS
from snapbid.loadtest.traffic import PUBLISHERS as PUBLISHERS
from snapbid.loadtest.traffic import SEGMENTS as SEGMENTS
from snapbid.loadtest.traffic import SITES as SITES

COUNTRIES: Final = shares(
    """
    USA 31.5 IND 8.1 BRA 5.0 IDN 4.2 JPN 3.8 GBR 3.4 DEU 3.2 MEX 3.2 FRA 2.7 CAN 2.5 ITA 2.0
    ESP 1.8 PHL 1.8 AUS 1.7 VNM 1.6 THA 1.4 TUR 1.4 POL 1.2 KOR 1.2 ARG 1.1 NLD 1.0 COL 1.0
    SWE 0.7 ZAF 0.7 EGY 0.7 BEL 0.5 ROU 0.4 CHE 0.4 AUT 0.4 CZE 0.4
    """
)
_STATES = ("CA", "TX", "FL", "NY", "PA", "IL", "OH", "GA", "NC", "MI", "NJ", "VA", "WA", "AZ", "MA")
REGIONS: Final = {
    country: zipf(_STATES if country == "USA" else [f"{n:02d}" for n in range(1, 13)], 0.7)
    for country in COUNTRIES.values
}
CITIES: Final = zipf([f"{a}{b}" for b in ("ford", "ville", " Springs", "burg") for a in (
    "Ash", "Brook", "Clear", "Dan", "East", "Fair", "Green", "Hill", "Iron", "Jack", "King", "Lake",
    "Mill", "New", "Oak", "Port", "Queens", "River", "Salem", "Wood",
)], 0.8)  # fmt: skip
POSTALS: Final = zipf([f"{n * 97 % 90000 + 10000}" for n in range(400)], 0.8)
DEVICES: Final = Pool([(4, 55), (2, 23), (1, 7), (3, 7), (5, 5), (6, 1.5), (7, 1.5)])
SYSTEMS: Final = shares(
    """
    android 47 ios 27 windows 14.5 macos 4.5 linux 1.5 tizen 1.3 webos 0.9 chromeos 0.7
    other 2.0
    """
)
BROWSERS: Final = Pool(
    [("chrome", 58), ("safari", 26), ("edge", 6), ("samsung", 4), ("firefox", 4), ("opera", 2)]
)
CONNECTIONS: Final = Pool([(2, 46), (6, 19), (0, 17), (7, 9), (3, 3.5), (1, 3.5), (5, 1.5)])
CARRIERS: Final = zipf(
    ("Verizon", "AT&T", "T-Mobile", "Vodafone", "Jio", "Orange", "Airtel", "Telkomsel", "Claro")
)
LANGUAGES: Final = Pool(
    [("en", 52), ("es", 11), ("pt", 6), ("de", 5), ("fr", 5), ("ja", 4), ("id", 4), ("hi", 3)]
)
SITE_CATEGORIES: Final = shares(
    """
    IAB12 20 IAB1 15 IAB17 9 IAB19 9 IAB9 8 IAB15 6 IAB8 5 IAB2 4 IAB13 4 IAB20 3 IAB7 4 IAB22 4
    """
)
APP_CATEGORIES: Final = shares(
    """
    IAB9-30 45 IAB1 12 IAB3 9 IAB24 8 IAB12 6 IAB1-6 5 IAB15-10 5 IAB17 3 IAB22 3
    """
)
_FEW: Final = {11: 5, 12: 3, 21: 3, 22: 4}  # have fewer than six below them
AD_CATEGORIES: Final = [
    *(f"IAB{n}-{m}" for n in range(1, 23) for m in range(1, 1 + _FEW.get(n, 6))),
    *(f"IAB17-{m}" for m in range(7, 16)),
]
BLOCKABLE: Final = ["IAB25", "IAB26", "IAB24", "IAB7-39", "IAB8-5", "IAB8-18", "IAB9-9", "IAB14-1"]
ADVERTISERS: Final = [f"brand{n}.example" for n in range(1200)]
SEATS: Final = [f"seat-{n}" for n in range(40)]
WEB_SIZES: Final = Pool(
    [
        *(((300, 250), 39), ((728, 90), 24), ((160, 600), 12), ((320, 50), 12), ((300, 600), 5)),
        *(((970, 90), 5), ((970, 250), 1), ((336, 280), 1), ((320, 100), 1)),
    ]
)
APP_SIZES: Final = Pool(
    [((320, 50), 62), ((300, 250), 20), ((320, 480), 6), ((728, 90), 5), ((320, 100), 2)]
)
VIDEO_SIZES: Final = Pool(
    [((640, 360), 22), ((1920, 1080), 20), ((640, 480), 14), ((320, 480), 12), ((1280, 720), 8)]
)
ALL_SIZES: Final = Pool(
    chain(
        zip(WEB_SIZES.values, (39, 24, 12, 12, 5, 5, 1, 1, 1), strict=True),
        zip(APP_SIZES.values, (62, 20, 6, 5, 2), strict=True),
    )
)
SSPS: Final = Pool([("acme", 50), ("acme-eu", 25), ("nova", 25)])
REGISTRY: Final = {"acme": "acme", "acme-eu": "acme", "nova": "nova"}
CENTRES: Final = [(40.71, -74.01), (34.05, -118.24), (51.51, -0.13), (48.86, 2.35), (28.61, 77.21)]
HOURS: Final = range(168)
