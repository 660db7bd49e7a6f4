"""Random bid requests: oddly written, but with a clear meaning, from few values of each kind."""

from collections.abc import Sequence
from typing import Any

from support import consent, pools
from support.choices import Choices
from support.oracle import Document


def request_of(choices: Choices) -> Document:
    """Make a bid request, oddly written but with a clear meaning."""
    request: Document = {
        "id": choices.pick(("auction-1", "auction-2", 77)),
        "imp": [
            imp_of(choices, name)
            for name in choices.some(("1", "2", 3), choices.pick((1, 1, 1, 3)))
        ],
    }
    request.update(inventory_of(choices))
    if choices.chance(92):
        request["device"] = device_of(choices)
    user, regs = user_of(choices), regs_of(choices)
    privacy_of(choices, user, regs)
    request.update({key: value for key, value in (("user", user), ("regs", regs)) if value})
    for key, percent, pool in (
        ("bcat", 20, pools.BLOCKED_CATEGORIES),
        ("badv", 20, pools.BLOCKED_DOMAINS),
        ("bapp", 20, pools.BUNDLES),
        ("bseat", 15, pools.SEATS),
        ("wseat", 15, pools.SEATS),
    ):
        if choices.chance(percent):
            request[key] = ids(choices, choices.some(pool, 2))
    if choices.chance(30):
        request["cur"] = choices.pick(pools.CUR)
    if choices.chance(5):
        request[choices.pick(("bcat", "wseat", "badv", "bapp", "bseat"))] = choices.pick(([], None))
    if choices.chance(10):
        request.update({"at": "SECOND_PRICE", "is_test": 1, "ext": {"unknown": [1, {}]}})
    if choices.chance(3):
        choices.pick(LENGTHENED)(choices, request)
    return request


def whole(choices: Choices, value: int) -> Any:
    """Write an integer as exchanges do."""
    return choices.pick((value, value, value, value, float(value), str(value)))


def alone(choices: Choices, value: int) -> Any:
    """Write an integer that stands in no list; a few exchanges give it one."""
    written = whole(choices, value)
    return [written] if choices.chance(3) else written


def switch(choices: Choices, value: int) -> Any:
    """Write a flag as exchanges do."""
    return choices.pick((value, value, bool(value), str(value), float(value)))


def real(choices: Choices, value: float) -> Any:
    """Write a number as exchanges do."""
    return choices.pick((value, value, value, value, str(value)))


def ids(choices: Choices, values: Sequence[Any]) -> list[Any]:
    """Write ids, at times digits as numbers, and at times with an absent one among them."""
    written = [
        int(value) if isinstance(value, str) and value.isdigit() and choices.chance(50) else value
        for value in values
    ]
    return [*written, choices.pick((None, ""))] if choices.chance(5) else written


def filled(choices: Choices, document: Document) -> Document:
    """Drop some members, or write them as absent."""
    kept: Document = {}
    for key, value in document.items():
        if not choices.chance(15):
            kept[key] = value
        elif choices.chance(40):
            kept[key] = choices.pick((None, ""))
    return kept


def inventory_of(choices: Choices) -> Document:
    """Choose site, app and dooh objects: mostly one; at times several, empty ones or none."""
    kinds = choices.pick(
        (("site",), ("site",), ("app",), ("app",), ("dooh",), ("site", "app"), ("app", "dooh"), ())
    )
    inventory: Document = {}
    for kind in kinds:
        room: Document = {"publisher": {"id": ids(choices, [choices.pick(pools.PUBLISHERS)])[0]}}
        if kind != "dooh":
            for key in ("cat", "sectioncat", "pagecat"):
                if choices.chance(40):
                    room[key] = ids(choices, choices.some(pools.CATEGORIES))
        if kind == "site":
            room["domain"] = choices.pick(pools.DOMAINS)
            room["page"] = choices.pick(pools.PAGES)
        if kind == "app":
            room["bundle"] = ids(choices, [choices.pick(pools.BUNDLES)])[0]
        inventory[kind] = {} if choices.chance(4) else filled(choices, room)
    if choices.chance(4):
        inventory[choices.pick(("dooh", "site", "app"))] = choices.pick((None, {}))
    return inventory


def device_of(choices: Choices) -> Document:
    """Make a device."""
    device: Document = {
        "ua": choices.pick(list(pools.AGENTS)),
        "ip": choices.pick(list(pools.ADDRESSES)),
        "ipv6": choices.pick(list(pools.ADDRESSES)),
        "devicetype": alone(choices, choices.pick(pools.DEVICE_TYPES)),
        "connectiontype": alone(choices, choices.pick(pools.CONNECTIONS)),
        "os": choices.pick(list(pools.SYSTEMS)) if choices.chance(50) else "",
        "carrier": ids(choices, [choices.pick(pools.CARRIERS)])[0],
        "language": choices.pick(pools.LANGUAGES),
        "langb": choices.pick(pools.LANGUAGES),
        "ifa": choices.pick(pools.ADVERTISING_IDS),
        "lmt": switch(choices, choices.pick((0, 0, 0, 1))),
        "dnt": switch(choices, choices.pick((0, 0, 0, 1))),
    }
    if choices.chance(30):
        device["sua"] = hints_of(choices)
    if choices.chance(60):
        device["geo"] = geo_of(choices)
    return filled(choices, device)


def hints_of(choices: Choices) -> Document:
    """Make a structured user agent."""
    brands = choices.some(list(pools.BRANDS), 3, least=0)
    hints: Document = {
        "browsers": [{"brand": brand, "version": ["124"]} for brand in brands],
        "platform": {"brand": choices.pick(["", *pools.SYSTEMS])},
        "mobile": 1,
    }
    return filled(choices, hints)


def geo_of(choices: Choices) -> Document:
    """Make a geo object."""
    lat, lon = choices.pick(pools.POINTS)
    geo = {
        "country": choices.pick(pools.COUNTRY_CODES),
        "region": choices.pick(pools.REGION_CODES),
        "city": choices.pick(pools.ENTRIES["city"]),
        "zip": ids(choices, [choices.pick(pools.ENTRIES["postal"])])[0],
        "lat": real(choices, lat),
        "lon": real(choices, lon),
    }
    return {} if choices.chance(5) else filled(choices, geo)


def user_of(choices: Choices) -> Document:
    """Make a user, at times empty."""
    user: Document = {}
    if choices.chance(40):
        user["geo"] = geo_of(choices)
    if choices.chance(65):
        segments = ids(choices, choices.some(pools.ENTRIES["segment"]))
        user["data"] = [{"segment": [{"id": segment} for segment in segments]}, {"name": "none"}]
    if choices.chance(30):
        user["id"] = choices.pick(("u-1", 17, "", None))
    if choices.chance(20):
        user["buyeruid"] = choices.pick(("b-1", 18, "", None))
    if choices.chance(15):
        uids = choices.pick(([{"id": "x"}], [{"id": ""}, {"id": 5}], []))
        named = [{"source": "a.example", "uids": uids}]
        put(choices, user, "eids", [named, [{"uids": [{"id": "y"}]}]])
    return user


def regs_of(choices: Choices) -> Document:
    """Make the regulations that carry no string."""
    coppa = choices.pick((0, 1, 1)) if choices.chance(10) else None
    regs: Document = {} if coppa is None else {"coppa": switch(choices, coppa)}
    if choices.chance(8):
        put(choices, regs, "gpc", [switch(choices, choices.pick((0, 1))), switch(choices, 0)])
    return regs


def privacy_of(choices: Choices, user: Document, regs: Document) -> None:
    """Add GDPR, US privacy and GPP as in OpenRTB 2.5, as in 2.6, or differently in both places."""
    if choices.chance(20):
        put(choices, regs, "gdpr", [switch(choices, 1), switch(choices, 0)])
        put(choices, user, "consent", choices.some(list(consent.TCF), 2, least=2))
    if choices.chance(15):
        put(choices, regs, "us_privacy", choices.some(list(consent.US_PRIVACY), 2, least=2))
    if choices.chance(20):
        strings = choices.some(list(consent.GPP), 2, least=2)
        held = sorted(consent.GPP[strings[0]].sections)
        listed = [whole(choices, section) for section in choices.some([*held, 5], 3)]
        put(choices, regs, "gpp", strings)
        put(choices, regs, "gpp_sid", [listed, sorted(consent.GPP[strings[1]].sections)])


def put(choices: Choices, parent: Document, name: str, values: Sequence[Any]) -> None:
    """Put the first value where OpenRTB 2.6 or 2.5 has it, at times the second beside it."""
    first, second = values
    way = choices.pick(("2.6", "2.5", "both", "2.5 beside null", "none"))
    if way in ("2.6", "both"):
        parent[name] = first
    if way == "2.5 beside null":
        parent[name] = choices.pick((None, ""))
    if way in ("2.5", "both", "2.5 beside null"):
        parent.setdefault("ext", {})[name] = second if way == "both" else first


def imp_of(choices: Choices, name: Any) -> Document:
    """Make an impression with one or more media, at times with none."""
    makers = {"banner": banner_of, "video": video_of, "native": native_of, "audio": audio_of}
    kinds = choices.some(("banner", "video", "native", "audio"), choices.pick((1, 2, 3, 4)))
    imp: Document = {"id": name}
    for kind in [] if choices.chance(2) else kinds:
        imp[kind] = None if choices.chance(3) else makers[kind](choices)
    if choices.chance(40):
        imp["bidfloor"] = real(choices, choices.pick(pools.FLOORS))
    if choices.chance(35):
        imp["bidfloorcur"] = choices.pick(pools.CURRENCIES)
    if choices.chance(35):
        imp["secure"] = switch(choices, choices.pick((0, 1)))
    if choices.chance(45):
        imp["pmp"] = pmp_of(choices)
    for key in ("rwdd", "instl"):
        if choices.chance(40):
            imp[key] = switch(choices, choices.pick((0, 1, 1)))
    return imp


def banner_of(choices: Choices) -> Document:
    """Make a banner with its sizes in `w` and `h`, in `format`, or in both."""
    banner: Document = {}
    if choices.chance(80):
        w, h = choices.pick(pools.SIZES)
        banner.update(w=alone(choices, w), h=alone(choices, h))
    if choices.chance(40):
        formats = choices.some(pools.SIZES, 3, least=0)
        banner["format"] = [{"w": whole(choices, w), "h": h} for w, h in formats]
    if choices.chance(4):
        banner["w"] = choices.pick((0, -1))
    return {**banner, **shared_of(choices)}


def shared_of(choices: Choices) -> Document:
    """Choose what banner, video and audio have in common."""
    shared: Document = {}
    if choices.chance(30):
        battr = [whole(choices, attribute) for attribute in choices.some(pools.ATTRIBUTES, 3)]
        shared["battr"] = choices.pick((battr, battr, battr, battr, [], None))
    if choices.chance(60):
        shared["pos"] = alone(choices, choices.pick(pools.POSITIONS))
    return shared


def video_of(choices: Choices) -> Document:
    """Make a video object."""
    video = timed_of(choices, "video")
    for key in ("plcmt", "placement"):
        if choices.chance(50):
            video[key] = alone(choices, choices.pick(pools.PLACEMENTS))
    return video


def audio_of(choices: Choices) -> Document:
    """Make an audio object."""
    return timed_of(choices, "audio")


def timed_of(choices: Choices, kind: str) -> Document:
    """Make a video or audio object."""
    media = shared_of(choices)
    if choices.chance(60):
        media["mimes"] = choices.pick((choices.some(pools.MIMES[kind]), None, []))
    if choices.chance(60):
        protocols = [whole(choices, protocol) for protocol in choices.some(pools.PROTOCOLS)]
        media["protocols"] = choices.pick((protocols, protocols, protocols, [], None))
    if kind == "video" and choices.chance(25):
        media["protocol"] = alone(choices, choices.pick(pools.PROTOCOLS))
    if choices.chance(30):
        media["minduration"] = alone(choices, choices.pick((0, 6, 15, 16, -1)))
    if choices.chance(30):
        media["maxduration"] = alone(choices, choices.pick((60, 30, 15, 14, -1)))
    return media


def native_of(choices: Choices) -> Document:
    """Make a native object, with the members that are not read."""
    native: Document = choices.pick(
        ({"request": "{}"}, {}, {"request": {"native": {}}, "battr": 1, "api": 3, "ver": 1})
    )
    if choices.chance(50):
        native = {**native, "plcmttype": alone(choices, choices.pick(pools.PLACEMENTS))}
    return native


def pmp_of(choices: Choices) -> Document:
    """Make a private marketplace of up to three deals."""
    pmp: Document = {}
    if choices.chance(40):
        pmp["private_auction"] = switch(choices, choices.pick((1, 1, 0)))
    if choices.chance(85):
        names = choices.some(pools.ENTRIES["deal"], 3, least=0)
        pmp["deals"] = [deal_of(choices, name) for name in ids(choices, names) if name]
    return pmp


def deal_of(choices: Choices, name: Any) -> Document:
    """Make a deal."""
    deal: Document = {"id": name}
    if choices.chance(60):
        deal["bidfloor"] = real(choices, choices.pick(pools.FLOORS))
    if choices.chance(50):
        deal["bidfloorcur"] = choices.pick(pools.CURRENCIES)
    if choices.chance(30):
        deal["wseat"] = ids(choices, choices.some(pools.SEATS))
    if choices.chance(30):
        deal["wadomain"] = choices.some(pools.BLOCKED_DOMAINS)
    return deal


# -- what is longer than is looked at: what describes ends, what limits counts to its end


def long_segments(choices: Choices, request: Document) -> None:
    """Put segments before those of the user."""
    user = request.setdefault("user", {})
    segments = [{"id": segment} for segment in choices.some(pools.ENTRIES["segment"])]
    user["data"] = [{"segment": [{"id": "-"}] * choices.pick((1000, 998)) + segments}]


def long_categories(choices: Choices, request: Document) -> None:
    """Put categories before those of the site or app."""
    kind = "site" if "site" in request else "app"
    fillers = ["-", None, ""] * choices.pick((1000, 998))
    room = request.get(kind) or {}
    request[kind] = {**room, "cat": [*fillers, *choices.some(pools.CATEGORIES)]}


def long_formats(choices: Choices, request: Document) -> None:
    """Put formats before those of the banners."""
    for imp in request["imp"]:
        formats = [{"w": w, "h": h} for w, h in choices.some(pools.SIZES)]
        fillers = [{"w": 1, "h": 2}] * choices.pick((100, 98))
        imp["banner"] = {"format": [*fillers, *formats]}


def long_deals(choices: Choices, request: Document) -> None:
    """Put deals before those of the impressions."""
    for imp in request["imp"]:
        imp["pmp"] = pmp_of(choices)
        fillers = [{"id": "-", "wseat": ["-"]}] * choices.pick((1000, 998))
        imp["pmp"]["deals"] = [*fillers, *imp["pmp"].get("deals", [])]


def long_limits(choices: Choices, request: Document) -> None:
    """Lists that limit, and the seats and advertisers of deals: what counts stands last."""
    fillers = [*(["-", 12345678, "b.example"] * 700), *map(str, range(100))]
    for key, pool in (("bcat", pools.BLOCKED_CATEGORIES), ("badv", pools.BLOCKED_DOMAINS),
                      ("bapp", pools.BUNDLES), ("wseat", pools.SEATS)):  # fmt: skip
        if choices.chance(40):
            request[key] = [*fillers, *choices.some(pool, 2)]
    for deal in [
        deal for imp in request["imp"] for deal in (imp.get("pmp") or {}).get("deals", [])
    ]:
        for key in ("wseat", "wadomain"):
            if deal.get(key):
                deal[key] = [*fillers, *deal[key]]


def long_texts(choices: Choices, request: Document) -> None:
    """Texts that are longer than any that counts, and one that just counts."""
    domain = f"{'a.' * choices.pick((400, 200))}{choices.pick(pools.DOMAINS)}"
    request["site"] = {"domain": domain, "page": choices.pick(pools.PAGES)}
    request["site"]["cat"] = [f"{choice}-{'1' * 600}" for choice in choices.some(pools.CATEGORIES)]
    device = request.setdefault("device", {})
    device["language"] = f"{choices.pick(pools.LANGUAGES) or 'en'}-{'x' * choices.pick((600, 300))}"
    request.setdefault("user", {})["id"] = "u" * choices.pick((513, 512))


def many_impressions(choices: Choices, request: Document) -> None:
    """More impressions than are looked at, the first ones without media."""
    fillers = [{"id": f"f{n}"} for n in range(choices.pick((98, 100)))]
    request["imp"] = [*fillers, *request["imp"]]


LENGTHENED = (
    long_segments,
    long_categories,
    long_formats,
    long_deals,
    long_limits,
    long_texts,
    many_impressions,
)
