"""A request with every field that is read, and campaigns that use each of them."""

from typing import Any

Document = dict[str, Any]

_GEO = {"country": "USA", "region": "CA", "city": "x", "zip": "94601", "lat": 37.8, "lon": -122.2}
_DSA = {"dsarequired": 0, "pubrender": 1}
_SIGNALS = {"coppa": 0, "gpc": 0, "gdpr": 0, "us_privacy": "1---", "gpp": "DBAA", "gpp_sid": [2]}

REQUEST: Document = {
    "id": "auction",
    "test": 0,
    "tmax": 60_000,
    "cur": ["USD"],
    "bcat": ["IAB25"],
    "acat": ["IAB2"],
    "cattax": 1,
    "badv": ["blocked.example"],
    "bapp": ["com.blocked"],
    "bseat": ["blocked"],
    "wseat": ["s1"],
    "wlang": ["en"],
    "wlangb": ["en-GB"],
    "imp": [
        {
            "id": "1",
            "bidfloor": 0.5,
            "bidfloorcur": "USD",
            "secure": 1,
            "bcat": ["IAB26"],
            "badv": ["blocked.test"],
            "banner": {
                "w": 300,
                "h": 250,
                "format": [{"w": 728, "h": 90}],
                "battr": [9],
                "pos": 1,
                "btype": [1],
                "mimes": ["text/html"],
                "api": [5],
            },
            "video": {
                "mimes": ["video/mp4"],
                "minduration": 5,
                "maxduration": 30,
                "rqddurs": [15],
                "poddur": 60,
                "podid": "break",
                "maxseq": 2,
                "protocols": [2],
                "protocol": 3,
                "w": 640,
                "h": 360,
                "boxingallowed": 0,
                "linearity": 1,
                "skip": 0,
                "minbitrate": 300,
                "maxbitrate": 1500,
                "delivery": [2],
                "battr": [9],
                "pos": 1,
                "api": [7],
                "plcmt": 1,
                "placement": 1,
                "mincpmpersec": 0.01,
                "durfloors": [{"mindur": 1, "maxdur": 15, "bidfloor": 0.5}],
            },
            "audio": {
                "mimes": ["audio/mp4"],
                "minduration": 5,
                "maxduration": 30,
                "rqddurs": [15],
                "poddur": 60,
                "podid": "break",
                "maxseq": 2,
                "protocols": [9],
                "minbitrate": 64,
                "maxbitrate": 320,
                "delivery": [2],
                "battr": [9],
                "api": [7],
                "mincpmpersec": 0.01,
                "durfloors": [{"mindur": 1, "maxdur": 15, "bidfloor": 0.5}],
            },
            "native": {
                "request": '{"assets":[{"id":1,"title":{"len":90}}]}',
                "ver": "1.2",
                "assets": [{"id": 1, "title": {"len": 90}}],
                "eventtrackers": [{"event": 1, "methods": [1]}],
                "privacy": 1,
                "battr": [9],
                "api": [7],
                "plcmttype": 1,
            },
            "qty": {"multiplier": 1.5},
            "rwdd": 1,
            "ext": {"rwdd": 1, "prebid": {"is_rewarded_inventory": 1}},
            "instl": 1,
            "pmp": {
                "private_auction": 0,
                "deals": [
                    {
                        "id": "d1",
                        "bidfloor": 1,
                        "bidfloorcur": "EUR",
                        "wseat": ["s1"],
                        "wadomain": ["brand.example"],
                        "guar": 0,
                        "mincpmpersec": 0.01,
                        "durfloors": [{"mindur": 1, "maxdur": 15, "bidfloor": 0.5}],
                    }
                ],
            },
        }
    ],
    "site": {
        "domain": "news.example",
        "page": "https://news.example/",
        "cat": ["IAB1"],
        "sectioncat": ["IAB1-1"],
        "pagecat": ["IAB1-2"],
        "publisher": {"id": "p"},
    },
    "app": {
        "bundle": "com.app",
        "cat": ["IAB1"],
        "sectioncat": ["IAB1-1"],
        "pagecat": ["IAB1-2"],
        "publisher": {"id": "p"},
    },
    "dooh": {"publisher": {"id": "p"}},
    "device": {
        "ua": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        "sua": {"browsers": [{"brand": "Firefox"}], "platform": {"brand": "iOS"}},
        "ext": {"sua": {"browsers": [{"brand": "Firefox"}], "platform": {"brand": "iOS"}}},
        "ip": "8.8.8.8",
        "ipv6": "2001:4860:4860::8888",
        "geo": _GEO,
        "devicetype": 4,
        "connectiontype": 2,
        "os": "iOS",
        "carrier": "Verizon",
        "language": "en",
        "langb": "en-US",
        "ifa": "9d8e3f2a-1111-4000-8000-0123456789ab",
        "lmt": 0,
        "dnt": 0,
    },
    "user": {
        "id": "u",
        "buyeruid": "b",
        "eids": [{"source": "ids.example", "uids": [{"id": "e"}]}],
        "data": [{"segment": [{"id": "s"}]}],
        "geo": _GEO,
        "consent": "",
        "ext": {
            "consent": "CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA",
            "eids": [{"source": "ids.example", "uids": [{"id": "e"}]}],
        },
    },
    "regs": {"coppa": 0, "dsa": _DSA, **_SIGNALS, "ext": {"dsa": _DSA, **_SIGNALS}},
}

_ENTRIES: Document = {
    "ssp": "acme",
    "country": "USA",
    "region": "USA-CA",
    "city": "x",
    "postal": "94601",
    "device_type": 4,
    "connection": 2,
    "os": "ios",
    "browser": "firefox",
    "carrier": "Verizon",
    "language": "en",
    "inventory": "site",
    "domain": "news.example",
    "bundle": "com.app",
    "publisher": "p",
    "category": "IAB1",
    "segment": "s",
    "audience": "buyers",
    "deal": "d1",
    "position": 1,
    "placement": "n1",
    "rewarded": 1,
    "interstitial": 1,
    "hour": 0,
}
_CREATIVES: list[Document] = [
    {
        "id": "b",
        "media": "banner",
        "adm": "{{auction_id}}|{{imp_id}}",
        "w": 300,
        "h": 250,
        "language": "en-GB",
    },
    {
        "id": "v",
        "media": "video",
        "adm": "https://ads.example/vast",
        "mimes": ["video/mp4"],
        "duration": 15,
        "w": 640,
        "h": 360,
        "linear": True,
        "skippable": False,
        "bitrate": 800,
        "delivery": [2],
        "language": "en-GB",
    },
    {
        "id": "a",
        "media": "audio",
        "adm": "https://ads.example/vast",
        "protocols": [9],
        "duration": 15,
        "bitrate": 128,
        "delivery": [2],
        "language": "en-GB",
    },
    {
        "id": "n",
        "media": "native",
        "native": {"title": "t", "link": {"url": "https://shop.example/"}},
        "attributes": [1],
        "language": "en-GB",
    },
]


def campaigns() -> list[Document]:
    """A campaign that includes and one that excludes for every dimension, and one for a radius."""
    targetings: list[Document] = [
        {name: {side: [entry]}}
        for side in ("include", "exclude")
        for name, entry in _ENTRIES.items()
    ]
    targetings.append({"geo_radius": [{"lat": 37.8, "lon": -122.2, "km": 10}]})
    return [
        {
            "id": f"c{number}",
            "advertiser": "brand.example",
            "seat": "s1",
            "bundle": "com.brand",
            "categories": ["IAB2"],
            "cpm": 2 + number / 8,
            "targeting": targeting,
            "creatives": _CREATIVES,
        }
        for number, targeting in enumerate(targetings)
    ]
