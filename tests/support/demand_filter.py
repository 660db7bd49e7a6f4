"""An SSP's filter by the rules of `/demand`, as `snapbid/partners/demand/rules.py` states them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from snapbid.partners.demand.rules import Accepted, DemandRules
from snapbid.reference.countries import ALPHA3

ROUNDING: Final = 0.999  # what a floor in another currency may be off by


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
