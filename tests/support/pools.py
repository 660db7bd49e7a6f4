"""Small pools of values for random campaigns and requests, and lookup tables that match them.

User agents, addresses and currencies are real, so that the product's own tables can replace the
small ones here.
"""

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

REGISTRY = {"acme": "acme", "acme-eu": "acme", "acme-video": "acme", "acme2": "acme2"} | {
    "nova": "nova",
    "nova-x": "nova",
}

NOWS = (
    datetime(2026, 3, 4, 12, 30, tzinfo=UTC),
    datetime(2026, 3, 2, 0, 0, tzinfo=UTC),
    datetime(2026, 3, 1, 23, 59, 59, 999000, tzinfo=UTC),
    datetime(2026, 12, 31, 23, 0, 0, 1000, tzinfo=UTC),
)
SHIFTS = tuple(
    timedelta(milliseconds=shift) for shift in (0, 1, -1, 3_600_000, -3_600_000, 86_400_000)
)

MULTIPLIERS = (2.0, 14.2, 30.3, 0.5, 12.5, 1000.0, 1000.1, 1e9, 0.000001, 0.0, -1.0, 1e30)
ADVERTISERS = (
    *("brand.example", "shop.example", "Sub.Shop.Example", "other.test", "myshop.example"),
    *("xn--bcher-kva.example", "https://www.B\u00fccher.Example/kauf"),
)
BLOCKED_DOMAINS = (
    *("shop.example", "SHOP.example", "sub.shop.example", "brand.example.", "example"),
    *("https://shop.example:443/a?b=c", "*.brand.example", "www.Brand.example", " other.test "),
    *("other.test/*, brand.example", "B\u00fccher.example", "xn--bcher-kva.example", "no domain"),
    *("other.test\nbrand.example", "shop.example other.test", "brand.example;x|sub.shop.example"),
    *(
        "\u2039shop.example\u203a",
        '"other.test"',
        "https%3A%2F%2Fbrand.example",
        "http:shop.example:80",
    ),
    *("https://https://brand.example/", "http//shop.example", "HTTP://https//other.test:80"),
    *("*shop.example", "domain=other.test", "(brand.example)", "b%C3%BCcher.example", "com;test"),
    "shop.*",
)
SEATS = ("seat-1", "seat-2", "7", "Seat-1")
PASTED_SEATS = (
    *SEATS,
    "seat-1, 7",
    "seat-2;x",
    '"Seat-1"',
    "7|seat-2",
    "x\nseat-1",
    "Seat-1,seat-2 ",
    "seat-2.",
    "seat-[23]",
)
BUNDLES = ("com.example.game", "com.example.Game", "553834731", "com.example")
PASTED_BUNDLES = (
    *BUNDLES,
    "com.example.game x",
    "553834731;com.example",
    "'com.example.Game'",
    "id553834731",
    "com.example.game.",
    "com\uff0eexample\u3002Game",
    "com\\.example",
    "market://details?id=com.example.game",
    "https%3A%2F%2Fx.example%2F%3Fid%3Dcom.example",
)
CATEGORIES = ("IAB3", "IAB3-1", "IAB3-2", "IAB1", "IAB13", "iab13-1", "IAB-1-6", "503")
PUBLISHED_CATEGORIES = (
    *(*CATEGORIES, "IAB-3", " iab 3-1", "IAB03_2", "IAB13,IAB1", "iab-1, IAB3-9", "IAB3\xa0", 503),
    *("IAB1;IAB3-1", "IAB13 IAB3-2", "IAB3\nIAB1", "\u201cIAB1\u201d", "IAB3\u20132"),
)
BLOCKED_CATEGORIES = (
    *("IAB3", "IAB3-1", "IAB1", "IAB13", "IAB25", "IAB13-1"),
    *("iab3", "IAB-3", " IAB 3-1", "IAB1-1,iab13", "IAB3-63", "IAB03-2", "503"),
)
PRODUCTS = ("1003", "1002", "1010", "none")
BLOCKED_PRODUCTS = (
    *("1002", "1011", "1010", "1008", "90", "52", "1014", "IAB8", "IAB8-5"),
    *("90,102", "IAB3-1", "jlbcu7"),
)
TAXONOMIES = (8, 8, 2, 6, 1, 600, 3, "8", 7, 7, 0, None)
CONTENTS = ("52", "90", "102", "1014", "338", "338", "JLBCU7", "150")
"""Of the Content Taxonomy 2.x and 3.x; the last two are not the same in both."""
PUBLISHERS = ("pub-1", "pub-2", "44", "Pub-1")

CPMS = (1.0, 0.5, 1.25, 1.5, 2, 2.000001, 2.5, 3.75, 5.0, 12.34, 50, 0.000001)
FLOORS: tuple[Any, ...] = (0, 0.5, 1, 1.5, 2.000001, 1e-07, 12.34, 0.1, 1.1, 150, -1, 1e15)
PER_SECOND: tuple[Any, ...] = (0.1, 0.05, 0.083333333, 1e-07, 0.2, 1, 0, -1, 1e15, "NaN")
CURRENCIES = ("USD", "EUR", " EUR ", "USD\n", "eur", "JPY", "GBP", "usd", "VND", "XXX", "", None)
CUR: tuple[Any, ...] = (
    *(["USD"], ["usd"], ["EUR", "USD"], ["EUR"], [], None, ["JPY", "GBP"]),
    *(["XXX"], ["XXX", "gbp"], ["VND", "XXX"]),
)

SIZES = ((300, 250), (320, 50), (250, 300), (728, 90))
ATTRIBUTES = (1, 3, 6, 8, 16)
MEDIA_SIZES = ((640, 360), (426, 240), (640, 480), (639, 359), (360, 640))
PLAYERS = (*MEDIA_SIZES, (1280, 720), (320, 180), (0, 360), (640, -1))
BITRATES = (300, 800, 801, 1500)
DELIVERY = (1, 2, 3)
MIMES = {
    "banner": ("text/html", "image/png", "image/gif"),
    "video": ("video/mp4", "video/webm", "VIDEO/MP4; q=1", "application/javascript"),
    "audio": ("audio/mp4", "audio/mpeg", "audio/ogg", "Audio/MP3"),
}
PROTOCOLS = (2, 3, 5, 6, 7)
DECLARATIONS: tuple[Any, ...] = (
    {"behalf": "brand"},
    {"behalf": "brand", "adrender": 1},
    {"adrender": 0},
)
APIS = (3, 5, 7)
BANNER_TYPES = (1, 2, 3, 4)
CREATIVE_LANGUAGES = ("en", "en-GB", "pt_BR", "de", "ind")
ADMITTED_LANGUAGES = ("en", "EN-gb", "pt", "pt-PT", "DE", "d", "deu", "in,PT_br", "eng-GB")
DURATIONS = (15, 30, 6, 60, 14)
POSITIONS = (0, 1, 3, 7, -1)
PLACEMENTS = (1, 2, 3, 4, 0, -1)
DEVICE_TYPES = (2, 4, 5, 0, 9, -1, 2**40)
CONNECTIONS = (2, 0, 6, 7, -1)
CARRIERS = (" Verizon ", "verizon", "Verizon", "T-Mobile", "46001", "310-410")
LANGUAGES = ("en", "EN-us", "de", "de-AT", "pt-BR", "eng", "in", "ger_at", "unknown", "-")

DOMAINS = (
    "news.example",
    "WWW.News.Example",
    "a.b.news.example",
    "badnews.example",
    "https://sport.example/x?u=http://news.example",
    "sport.example.",
    *("unknown", "https", "-", "sport.example;m.news.example", "https%3A%2F%2Fnews.example%2F"),
)
PAGES = (
    "https://news.example/a",
    "sport.example/path?u=https://news.example/",
    "HTTP://m.Sport.example:8080/?q#f",
    "https://user@news.example./",
    "//cdn.news.example/x",
    "https://HTTP://m.sport.example/x",
    "http://https//news.example",
    "http://localhost/x",
    *("https%3A%2F%2Fm.news.example%2Fx%3Fu%3Dsport.example", '"http://sport.example/x"'),
    "other.example",
)

COUNTRIES = {"US": "USA", "CA": "CAN", "DE": "DEU", "FR": "FRA", "GB": "GBR", "NL": "NLD"}
COUNTRY_CODES = (
    "USA",
    "US",
    "usa",
    "USA",
    "CAN",
    "ca",
    "DEU",
    "de",
    "GBR ",
    "GBR",
    "UK",
    "TST",
    "Germany",
    "",
)
REGION_CODES = ("CA", "US-CA", "usa-ca", "NY", "CA-ON", "DE-BY", "BY", "GB-LND")

PARIS, LONDON, BERLIN = (48.8566, 2.3522), (51.5074, -0.1278), (52.52, 13.405)
POINTS: tuple[tuple[float, float], ...] = (
    (48.85, 2.35),
    (51.5, -0.12),
    (52.4, 13.1),
    (40.71, -74.0),
    (48.8566, 2.3522),
    (-16.9, 179.9),
    (0, 0),
    (95.0, 2.35),
    (48.85, 181.5),
)
CENTRES = (PARIS, LONDON, BERLIN, (-17.0, -179.9), (90.0, 0.0))
RADII_KM: tuple[float, ...] = (1, 35, 400, 1000, 6000.5)

ENTRIES: dict[str, tuple[Any, ...]] = {
    "ssp": ("acme", "acme-eu", "nova", "nova-x", "acme2"),
    "country": ("USA", "us", "CA", "DEU", "gb", "FRA", "NL"),
    "region": ("USA-CA", "usa-ny", "Can-On", "DEU-BY", "CAN-CA"),
    "city": ("Paris", "PARIS", "straße", "STRASSE", "London", "São Paulo"),
    "postal": ("75001", "SW1A 1AA", "sw1a 1aa", "90210"),
    "device_type": (2, 4, 5, 0, 9, "phone", "Computer", "tablet"),
    "connection": (2, 0, 6, 7, "wifi", "4G", "unknown"),
    "os": ("android", "ios", "windows", "macos", "other", "linux"),
    "browser": ("chrome", "safari", "firefox", "edge", "other"),
    "carrier": ("verizon", "VERIZON", "t-mobile", "46001"),
    "language": ("en", "DE", "pt", "fr", "id", "iw"),
    "inventory": ("site", "app", "dooh"),
    "domain": ("news.example", "b.News.example", "sport.example.", "example", "m.sport.example"),
    "bundle": BUNDLES,
    "publisher": PUBLISHERS,
    "category": CATEGORIES,
    "segment": ("s1", "s2", "S1", "99"),
    "audience": ("buyers", "visitors", "Buyers", "own-list"),
    "deal": ("d1", "d2", "D1", "345"),
    "position": (0, 1, 3, 7, "above_the_fold", "Below the fold", "fullscreen"),
    "placement": (1, 2, 3, "n1", "n4", "instream", "native-in-feed", "Interstitial"),
    "rewarded": (0, 1),
    "interstitial": (0, 1),
    "hour": (),
}
"""Dimension -> entries of campaigns; those of `hour` follow from the clock."""

_MOZILLA = "Mozilla/5.0 "
_CHROME = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0"
_IOS = _MOZILLA + "(iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
AGENTS = {
    _MOZILLA + f"(Windows NT 10.0; Win64; x64) {_CHROME} Safari/537.36": ("windows", "chrome"),
    _MOZILLA + f"(Linux; Android 14; Pixel 8) {_CHROME} Mobile Safari/537.36": (
        "android",
        "chrome",
    ),
    _IOS + "Gecko) Version/17.4 Mobile/15E148 Safari/604.1": ("ios", "safari"),
    _MOZILLA + "(X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0": ("linux", "firefox"),
    _MOZILLA + f"(Windows NT 10.0; Win64; x64) {_CHROME} Safari/537.36 Edg/124.0.0.0": (
        "windows",
        "edge",
    ),
    "unheard-of/1.0": ("other", "other"),
}
BRANDS = {"Google Chrome": "chrome", "Chromium": "chrome", "Microsoft Edge": "edge"} | {
    "Firefox": "firefox",
    "Samsung Internet": "samsung",
    "Android WebView": "chrome",
    "Not/A)Brand": None,
}
SYSTEMS = {"Android": "android", "iPhone OS": "ios", "iOS": "ios", "windows": "windows"} | {
    "Mac OS X": "macos",
    "BeOS": "other",
}
ADDRESSES = {"8.8.8.8": "USA", "193.0.6.139": "NLD", "2001:4860:4860::8888": "USA"} | {
    "not an address": None,
    "10.0.0.1": None,
}
WRITTEN_ADDRESSES = (
    *ADDRESSES,
    *("8.8.8.8:443", "193.0.6.139, 8.8.8.8", " '[2001:4860:4860::8888]:80'", "unknown, 8.8.8.8"),
)

USD = {"USD": Fraction(1), "EUR": Fraction("1.0823"), "GBP": Fraction("1.27351")} | {
    "JPY": Fraction(1, 155)
}


def hours(now: datetime) -> tuple[int, ...]:
    """Hours of the week at and around a time, and the ends of the week."""
    hour = now.weekday() * 24 + now.hour
    return (hour, (hour + 1) % 168, (hour - 1) % 168, *sorted({0, 23, 167} - {hour}))


def country_of_ip(address: str) -> str | None:
    """The alpha-3 country of an address of the pool."""
    return ADDRESSES.get(address)


def agent(user_agent: str) -> tuple[str, str]:
    """Operating system and browser of a user agent of the pool."""
    return AGENTS.get(user_agent, ("other", "other"))


def brand(name: str) -> str | None:
    """The browser that a brand of the pool means."""
    return BRANDS.get(name)


def fold_os(spelling: str) -> str:
    """The operating system that a spelling means."""
    return SYSTEMS.get(spelling, spelling if spelling in ENTRIES["os"] else "other")


def alpha3(code: str) -> str | None:
    """The alpha-3 code of a country of the pool."""
    upper = code.upper()
    return COUNTRIES.get(upper, upper if upper in COUNTRIES.values() else None)


MEMBERS: dict[tuple[str, str, str], tuple[set[str], set[str]]] = {
    ("ifa", "", "9d8e3f2a0000400080000123456789ab"): ({"buyers"}, set()),
    ("ifa", "", "7"): ({"visitors"}, {"casino"}),
    ("user", "acme", "u-1"): ({"visitors", "own-list"}, set()),
    ("user", "acme", "17"): (set(), {"casino", "shop"}),
    ("buyeruid", "", "b-1"): ({"buyers"}, {"shop"}),
    ("eid", "a.example", "x"): (set(), {"casino"}),
    ("eid", "ä.example", "x"): ({"buyers"}, set()),
    ("eid", "31", "x"): ({"visitors"}, set()),
    ("eid", "", "y"): ({"own-list"}, set()),
}
"""Kind, scope and id -> the audiences, and the products that must not advertise to the person."""

ADVERTISED = ("casino", "shop", "other")  # products

ADVERTISING_IDS = (
    "00000000-0000-0000-0000-000000000000", "9d8e3f2a-0000-4000-8000-0123456789ab", "", "0",
    "9D8E3F2A-0000-4000-8000-0123456789AB", None, 7, "{9d8e3f2a-0000-4000-8000-0123456789AB}",
    "9d8e3f2a0000400080000123456789ab", " 9d8e3f2a-0000-4000-8000-0123456789ab\t", "{-}", "{0-0}",
)  # fmt: skip


TITLES = (5, 20, 25, 90)  # characters
IMAGES = [
    {"type": 1, "url": "https://cdn.example/icon.png", "w": 80, "h": 80},
    {"type": 1, "url": "https://cdn.example/large-icon.png", "w": 300, "h": 300},
    {"type": 3, "url": "https://cdn.example/main.jpg", "w": 1200, "h": 627},
    {"type": 3, "url": "https://cdn.example/square.jpg", "w": 300, "h": 300},
]
