"""Clauses as plain JSON rules, and how an SSP filters by them.

A request may be dropped if all its impressions may; an impression may be dropped if no entry of
`accept` takes it. A native impression must ask for assets, and a floor must have an exchange rate.
What a request states in another form than OpenRTB's own (a number as text, a country that is no
upper-case alpha-3 code) counts as whatever an entry asks for: the bidder may understand it.
"""

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec

from snapbid.demand.clauses import Clauses
from snapbid.reference.countries import ALPHA3

MICROS: Final = 1_000_000
VALID_FOR_S: Final = 3600
ROUNDING: Final = 0.999  # what a floor in another currency may be off by


class Accepted(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Impressions that could be bid on; empty lists ask for nothing.

    `sizes` of a banner, or of one of its formats; one of `inventories` (site, app, dooh) in the
    request; its country and `device.devicetype`; one of `deals` offered. `max_floor` (USD) is the
    highest `bidfloor`, where there are no `deals`: deals have floors of their own.
    """

    media: str
    sizes: tuple[str, ...] = ()
    inventories: tuple[str, ...] = ()
    countries: tuple[str, ...] = ()
    device_types: tuple[int, ...] = ()
    deals: tuple[str, ...] = ()
    max_floor: float | None = None


class DemandRules(msgspec.Struct, frozen=True, rename="camel"):
    """What could be bid on of an SSP's traffic, in `valid_for_s` seconds from when it was read.

    `currencies` have the USD of a unit. A request whose `cur` has none of them may be dropped, too.
    """

    ssp: str
    valid_for_s: int
    currencies: dict[str, float]
    accept: tuple[Accepted, ...]


def rules_of(ssp: str, clauses: Clauses, usd: Mapping[str, Fraction]) -> DemandRules:
    """The rules of a canonical id or descriptor; equal clauses make equal rules.

    `usd`: of a unit of each currency.
    """
    sizes: dict[tuple[Any, ...], list[str]] = {}
    for clause, micros in clauses.items():
        alike = (clause.media, *map(_sorted, clause[2:]), None if clause.deals else micros)
        sizes.setdefault(alike, []).extend([clause.size] if clause.size else [])
    accept = [
        Accepted(
            media,
            tuple(sorted(set(of_media))),
            inventories,
            countries,
            devices,
            deals,
            None if micros is None else micros / MICROS,
        )
        for (media, inventories, countries, devices, deals, micros), of_media in sizes.items()
    ]
    accept.sort(key=msgspec.json.encode)
    rates = {currency: float(rate) for currency, rate in sorted(usd.items())}
    return DemandRules(ssp, VALID_FOR_S, rates, tuple(accept))


def may_drop(request: Mapping[str, Any], rules: DemandRules) -> bool:
    """Whether a request, decoded JSON, can get no bid."""
    cur = request.get("cur")
    listed = cur if isinstance(cur, list) and all(map(_is_plain_currency, cur)) else []
    if listed and not rules.currencies.keys() & set(listed):
        return True
    imps = request.get("imp")
    if not isinstance(imps, list) or not all(isinstance(imp, dict) for imp in imps):
        return False
    possible = [entry for entry in rules.accept if _takes_request(request, entry)]
    return not any(_takes(imp, entry, rules.currencies) for imp in imps for entry in possible)


def _takes_request(request: Mapping[str, Any], entry: Accepted) -> bool:
    if entry.inventories and not any(_has(request, name) for name in entry.inventories):
        return False
    device = request.get("device")
    if device is None:
        return not entry.device_types
    if not isinstance(device, dict):
        return True
    kind = device.get("devicetype")
    is_plain = kind is None or type(kind) is int
    if entry.device_types and is_plain and kind not in entry.device_types:
        return False
    geo = device.get("geo")
    country = geo.get("country") if isinstance(geo, dict) else None
    is_known = isinstance(country, str) and country in ALPHA3
    return not entry.countries or not is_known or country in entry.countries


def _takes(imp: Mapping[str, Any], entry: Accepted, usd: Mapping[str, float]) -> bool:
    if not _has(imp, entry.media):
        return False
    if entry.sizes and not _fits(imp[entry.media], entry.sizes):
        return False
    if entry.media == "native" and not _asks(imp["native"]):
        return False
    pmp = imp.get("pmp")
    if entry.deals:
        return pmp is not None and _offers(pmp, entry.deals)
    if isinstance(pmp, dict) and pmp.get("private_auction") == 1:
        return False
    floor, currency = imp.get("bidfloor"), imp.get("bidfloorcur", "USD")
    if not isinstance(floor, int | float) or floor <= 0 or not _is_plain_currency(currency):
        return True
    return currency in usd and floor * usd[currency] * ROUNDING <= (entry.max_floor or 0)


def _fits(banner: Any, sizes: tuple[str, ...]) -> bool:
    if not isinstance(banner, dict):
        return True
    formats = banner.get("format")
    places = [banner, *formats] if isinstance(formats, list) else [banner]
    if formats is not None and not isinstance(formats, list):
        return True
    for place in places:
        if not isinstance(place, dict):
            return True
        w, h = place.get("w"), place.get("h")
        if not all(each is None or type(each) is int for each in (w, h)):
            return True
        if f"{w}x{h}" in sizes:
            return True
    return False


def _asks(native: Any) -> bool:
    """Whether a native impression's request can be read and asks for assets."""
    request = native.get("request") if isinstance(native, dict) else True
    if request in (None, ""):
        return False
    if isinstance(request, str):
        try:
            request = json.loads(request)
        except json.JSONDecodeError:
            return False
        except (ValueError, RecursionError):
            return True
    if isinstance(request, dict):
        request = request.get("native") or request
    return not isinstance(request, dict) or request.get("assets") not in (None, [])


def _offers(pmp: Any, deals: tuple[str, ...]) -> bool:
    offered = pmp.get("deals") if isinstance(pmp, dict) else True
    if offered is None:
        return False
    if not isinstance(offered, list):
        return True
    ids = [deal.get("id") if isinstance(deal, dict) else deal for deal in offered]
    return any(type(id) is not str or id in deals for id in ids)


def _has(parent: Mapping[str, Any], name: str) -> bool:
    return parent.get(name) is not None


def _is_plain_currency(code: Any) -> bool:
    return isinstance(code, str) and len(code) == 3 and code.isascii() and code.isupper()


def _sorted(values: frozenset[Any] | None) -> tuple[Any, ...]:
    return tuple(sorted(values)) if values else ()
