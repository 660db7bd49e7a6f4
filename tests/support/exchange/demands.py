"""What an exchange demands of an answer: OpenRTB 2.6, DSA and Native 1.2, as far as Prebid Server
checks them, in Go or in Java, and what it leaves to a page or a player.

`faults` knows nothing of our campaigns and nothing of the product.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from support.openrtb import violations

MEDIA: Final = {1: "banner", 2: "video", 3: "audio", 4: "native"}
NAMESPACE: Final = re.compile(r"""xmlns(:\w+)?=["'][^"']*["']|schemaLocation=["'][^"']*["']""")
SIZED: Final = 4000  # the largest creative that Prebid Server is told to take

Bid = Mapping[str, Any]
Request = Mapping[str, Any]


def bids_of(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [bid for seatbid in response.get("seatbid", []) for bid in seatbid["bid"]]


def faults(request: Request, response: Mapping[str, Any]) -> list[str]:
    """Why an exchange would drop this answer to its request, or warn of it."""
    found = [*violations(response)]
    if response.get("id") != request["id"]:
        found.append("the answer is to another auction")
    currency = response.get("cur", "USD")
    if currency not in (request.get("cur") or ["USD"]):
        found.append(f"bids in {currency}, wanted {request['cur']}")
    if not bids_of(response):
        found.append("no bid in a 200")
    for seatbid in response.get("seatbid", []):
        seat = seatbid.get("seat")
        if request.get("wseat") and seat not in request["wseat"]:
            found.append(f"seat {seat} is not allowed")
        if seat is not None and seat in (request.get("bseat") or ()):
            found.append(f"seat {seat} is blocked")
    found += _pod_faults(request, bids_of(response))
    seen = set()
    for bid in bids_of(response):
        if bid["id"] in seen:
            found.append(f"the bid id {bid['id']} is there twice")
        seen.add(bid["id"])
        found += [
            f"bid on {bid.get('impid')}: {why}" for why in _bid_faults(request, bid, currency)
        ]
    return found


def _pod_faults(request: Request, bids: Sequence[Bid]) -> Iterator[str]:
    """OpenRTB 2.6, 3.2.7 and 3.2.8 (`podid`), and AdCOM's pod deduplication on adomain."""
    imps = {imp["id"]: imp for imp in request["imp"]}
    seen: set[tuple[str, str, str]] = set()
    for bid in bids:
        for medium in ("video", "audio"):
            pod = (imps.get(bid.get("impid"), {}).get(medium) or {}).get("podid", "")
            for domain in bid.get("adomain", []) if pod else ():
                if (medium, pod, domain) in seen:
                    yield f"{domain} is in the pod {pod} twice"
                seen.add((medium, pod, domain))


def _bid_faults(request: Request, bid: Bid, currency: str) -> Iterator[str]:
    imp = next((imp for imp in request["imp"] if imp["id"] == bid.get("impid")), None)
    if imp is None:
        yield "there is no such impression"
        return
    for name in ("id", "crid", "adm", "adomain", "nurl", "burl"):
        if not bid.get(name):
            yield f"{name} is missing"
    for name in ("nurl", "burl", "lurl"):
        if urlsplit(bid.get(name, "")).scheme not in ("http", "https"):
            yield f"{name} is no URL"
    media = MEDIA.get(bid.get("mtype", 0))
    if media is None or not imp.get(media):
        yield f"mtype {bid.get('mtype')} was not asked for"
        return
    yield from _price_faults(imp, bid, currency)
    yield from _blocks(request, imp.get(media, {}), bid)
    yield from _dsa_faults(request, bid)
    if imp.get("secure") == 1 and "http:" in NAMESPACE.sub("", bid["adm"]):
        yield "the markup is not secure"
    if media == "banner":
        yield from _banner_faults(imp, bid)
    elif media == "native":
        yield from _native_faults(imp, bid)


def _price_faults(imp: Mapping[str, Any], bid: Bid, currency: str) -> Iterator[str]:
    if not bid.get("price", 0) > 0:
        yield "no price"
    pmp = imp.get("pmp") or {}
    deals = {deal["id"]: deal for deal in pmp.get("deals") or ()}
    if "dealid" in bid and bid["dealid"] not in deals:
        yield f"the deal {bid['dealid']} was not offered"
    if pmp.get("private_auction") == 1 and "dealid" not in bid:
        yield "no deal in a private auction"
    asked = deals.get(bid.get("dealid", ""), imp)
    if asked.get("bidfloorcur", "USD") == currency and bid["price"] < asked.get("bidfloor", 0):
        yield f"{bid['price']} is below the floor of {asked['bidfloor']}"


def _blocks(request: Request, asked: Mapping[str, Any], bid: Bid) -> Iterator[str]:
    for domain in bid["adomain"]:
        if any(domain == blocked or domain.endswith("." + blocked)
               for blocked in request.get("badv") or ()):  # fmt: skip
            yield f"the advertiser {domain} is blocked"
    for category in bid.get("cat", []):
        if category in (request.get("bcat") or ()):
            yield f"the category {category} is blocked"
    for attribute in bid.get("attr", []):
        if attribute in (asked.get("battr") or ()):
            yield f"the attribute {attribute} is blocked"


def _dsa_faults(request: Request, bid: Bid) -> Iterator[str]:
    """Faults by the IAB's DSA extension and Prebid Server's `dsa/validate.go`."""
    regs = request.get("regs") or {}
    asked = regs.get("dsa") or (regs.get("ext") or {}).get("dsa") or {}
    said = (bid.get("ext") or {}).get("dsa")
    if said is None:
        if asked.get("dsarequired") in (2, 3):
            yield "no dsa, which is required"
        return
    for name in ("behalf", "paid"):
        if len(said.get(name, "")) > 100:
            yield f"dsa.{name} is over 100 characters"
    renders = (asked.get("pubrender"), said.get("adrender"))
    if renders[0] == 0 and renders[1] == 0:
        yield "dsa: who renders it?"
    if renders == (2, 1):
        yield "dsa: both render it"


def _banner_faults(imp: Mapping[str, Any], bid: Bid) -> Iterator[str]:
    banner = imp["banner"]
    sizes = [(each.get("w"), each.get("h")) for each in banner.get("format") or ()]
    sizes.append((banner.get("w"), banner.get("h")))
    size = (bid.get("w"), bid.get("h"))
    if size not in sizes:
        yield f"the size {size} was not asked for"
    if max(size[0] or 0, size[1] or 0) > SIZED:
        yield f"{size} is too large"


def _native_faults(imp: Mapping[str, Any], bid: Bid) -> Iterator[str]:
    """OpenRTB Dynamic Native Ads 1.2, sections 4 and 5."""
    asked = json.loads(imp["native"]["request"])
    asked = asked.get("native", asked)
    try:
        answer = json.loads(bid["adm"])
    except ValueError:
        yield "native: not JSON"
        return
    wrapped = "native" in answer
    if wrapped != (asked.get("ver", "1.2") == "1.0"):
        yield "native: wrapped" if wrapped else "native: not wrapped"
    answer = answer.get("native", answer)
    for violation in violations(answer, "NativeResponse"):
        yield f"native: {violation}"
    wanted = {asset["id"]: asset for asset in asked["assets"]}
    filled = {asset.get("id"): asset for asset in answer.get("assets", [])}
    if len(filled) != len(answer.get("assets", [])):
        yield "native: an asset is there twice"
    for id, asset in wanted.items():
        if asset.get("required") == 1 and id not in filled:
            yield f"native: the required asset {id} is missing"
    for id, asset in filled.items():
        if id not in wanted:
            yield f"native: the asset {id} was not asked for"
        else:
            yield from _asset_faults(wanted[id], asset)


def _asset_faults(wanted: Mapping[str, Any], asset: Mapping[str, Any]) -> Iterator[str]:
    kinds = [kind for kind in ("title", "img", "video", "data") if kind in asset]
    if len(kinds) != 1 or kinds[0] not in wanted:
        yield f"native: the asset {wanted['id']} is of another kind"
        return
    (kind,) = kinds
    ask, has = wanted[kind], asset[kind]
    if kind == "title" and len(has["text"]) > ask.get("len", len(has["text"])):
        yield f"native: the title is longer than {ask['len']}"
    if kind == "data" and len(has["value"]) > ask.get("len", len(has["value"])):
        yield f"native: the data {ask['type']} are longer than {ask['len']}"
    if kind == "img":
        for side in ("w", "h"):
            size = has.get(side, 0)
            if size < ask.get(f"{side}min", 0) or (side in ask and size != ask[side]):
                yield f"native: the image {wanted['id']} is {size} {side}"
