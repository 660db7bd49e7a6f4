"""Random bid requests: loosely written, but with a clear meaning, from few values of each kind."""

from collections.abc import Sequence
from typing import Any

from support import consent, pools
from support.choices import Choices
from support.loose_values import alone, filled, ids, joined, real, switch, whole
from support.oracle_values import Document
from support.overlong import OVERLONG
from support.random_impressions import imp_of


def request_of(choices: Choices) -> Document:
    """Make a bid request, loosely written but with a clear meaning."""
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
        ("bapp", 20, pools.PASTED_BUNDLES),
        ("bseat", 15, pools.PASTED_SEATS),
        ("wseat", 15, pools.PASTED_SEATS),
    ):
        if choices.chance(percent):
            request[key] = joined(choices, ids(choices, choices.some(pool, 2)))
    if choices.chance(15):
        listed = choices.some(pools.BLOCKED_PRODUCTS, 3)
        request[choices.pick(("bcat", "acat"))] = joined(choices, listed)
        request["cattax"] = choices.pick(pools.TAXONOMIES)
    if choices.chance(8):
        listed = ids(choices, choices.some(pools.BLOCKED_CATEGORIES, 3))
        request["acat"] = joined(choices, listed)
    for key in ("wlang", "wlangb"):
        if choices.chance(8):
            request[key] = ids(choices, choices.some(pools.ADMITTED_LANGUAGES, 3))
    if choices.chance(30):
        cur = choices.pick(pools.CUR)
        request["cur"] = joined(choices, cur) if cur else cur
    if choices.chance(5):
        request[choices.pick(("bcat", "wseat", "badv", "bapp", "bseat"))] = choices.pick(([], None))
    if choices.chance(10):
        request.update({"at": "SECOND_PRICE", "is_test": 1, "ext": {"unknown": [1, {}]}})
    if choices.chance(3):
        choices.pick(OVERLONG)(choices, request)
    return request


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
                    room[key] = ids(choices, choices.some(pools.PUBLISHED_CATEGORIES))
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
        "ip": choices.pick(pools.WRITTEN_ADDRESSES),
        "ipv6": choices.pick(pools.WRITTEN_ADDRESSES),
        "devicetype": alone(choices, choices.pick(pools.DEVICE_TYPES)),
        "connectiontype": alone(choices, choices.pick(pools.CONNECTIONS)),
        "os": choices.pick([*pools.SYSTEMS, "unknown", "null"]) if choices.chance(50) else "",
        "carrier": ids(choices, [choices.pick(pools.CARRIERS)])[0],
        "language": choices.pick(pools.LANGUAGES),
        "langb": choices.pick(pools.LANGUAGES),
        "ifa": choices.pick(pools.ADVERTISING_IDS),
        "lmt": switch(choices, choices.pick((0, 0, 0, 1))),
        "dnt": switch(choices, choices.pick((0, 0, 0, 1))),
    }
    if choices.chance(30):
        device["sua"] = hints_of(choices)
    if choices.chance(15):
        device["ext"] = choices.pick(({"sua": hints_of(choices)}, {"sua": None, "atts": 3}, "x"))
    if choices.chance(60):
        device["geo"] = geo_of(choices)
    return filled(choices, device)


def hints_of(choices: Choices) -> Document:
    """Make a structured user agent."""
    if choices.chance(15):
        return choices.pick(({}, {"mobile": 1}, {"platform": {"brand": "unknown"}}))
    brands = choices.some(list(pools.BRANDS), 3, least=0)
    hints: Document = {
        "browsers": [{"brand": brand, "version": ["124"]} for brand in brands],
        "platform": {"brand": choices.pick(["", '"Android"', *pools.SYSTEMS])},
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
        user["id"] = choices.pick(("u-1", 17, "", None, "undefined", "0000", "U-1", "#UID#"))
    if choices.chance(20):
        user["buyeruid"] = choices.pick(("b-1", 18, "", None, "NULL", " ", "$UID", "-1"))
    if choices.chance(15):
        uids = choices.pick(([{"id": "x"}], [{"id": "unknown"}, {"id": 5}], []))
        named = [
            {"source": choices.pick(("a.example", 31, "A.Example", "Ä.example")), "uids": uids}
        ]
        put(choices, user, "eids", [named, [{"uids": [{"id": "y"}]}]])
    return user


def regs_of(choices: Choices) -> Document:
    """Make the regulations that carry no string."""
    coppa = choices.pick((0, 1, 1)) if choices.chance(10) else None
    regs: Document = {} if coppa is None else {"coppa": switch(choices, coppa)}
    if choices.chance(8):
        put(choices, regs, "gpc", [switch(choices, choices.pick((0, 1))), switch(choices, 0)])
    if choices.chance(8):
        dsa: Document = {"dsarequired": alone(choices, choices.pick((2, 3, 1, 0, 4)))}
        if choices.chance(60):
            dsa["pubrender"] = alone(choices, choices.pick((0, 1, 2)))
        other = choices.pick(({"dsarequired": 3}, {"dsarequired": 0, "pubrender": 2}, {}))
        put(choices, regs, "dsa", choices.pick(([dsa, other], [other, dsa])))
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
        others = sorted(consent.GPP[strings[1]].sections)
        put(choices, regs, "gpp_sid", [joined(choices, listed, "_,"), others])


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
