"""Schemas of the bid request, from the structs that decode it, and of the bid response."""

from typing import Any, Final

import msgspec

from snapbid.describe.openapi import REF, Schema, objects, ref
from snapbid.exchange.request import BidRequest

NOTES: Final[dict[str, dict[str, str]]] = {
    "BidRequest": {
        "id": "The auction's id, yours; comes back in the response and in the notification URLs.",
        "imp": "What is offered; each is decided on its own.",
        "device": "Go-live asks for `ua`, `ip` and `geo.country` in each request.",
        "test": "1: answered like live traffic, but never counted, held or billed.",
        "tmax": "How many milliseconds there are until the response must have arrived.",
        "cur": "Currencies that you take. Bids are in USD, or else in the first that has a rate.",
        "bcat": "Blocked categories; a parent blocks its children.",
        "acat": "Where not empty, the only categories; a parent admits its children.",
        "cattax": "Taxonomy of `bcat` and `acat`; 1, the Content Taxonomy 1.0, where absent.",
        "badv": "Blocked advertiser domains; a domain blocks those below it.",
        "bapp": "Blocked app bundles.",
        "bseat": "Blocked buyer seats.",
        "wseat": "Where not empty, the only buyer seats that may bid.",
        "wlang": "Where not empty, the only languages of creatives: ISO 639-1.",
        "wlangb": "The same, as BCP 47 tags; a tag admits those that it begins.",
    },
    "Imp": {
        "id": "Unique in the request; comes back in the bid and in the notification URLs.",
        "bidfloor": "CPM; a bid is never below it. 0 or absent: no floor.",
        "bidfloorcur": "ISO 4217; the floor is converted. USD where absent.",
        "secure": "1: only creatives that load over HTTPS.",
        "rwdd": "1: whoever sees the ad to its end is rewarded.",
        "instl": "1: the ad fills the screen.",
        "qty": "How many impressions this one stands for.",
        "native": "Answered with the assets that its request asks for.",
    },
    "Qty": {
        "multiplier": "Above 0 and of `dooh` alone, else 1: a win costs `price` / 1000 times this. "
        "More than the operator allows (1,000 by default) refuses the impression.",
    },
    "Banner": {
        "w": "Pixels.",
        "h": "Pixels.",
        "format": "Sizes; a creative has one of them, or `w` x `h`.",
        "battr": "Blocked creative attributes.",
        "pos": "Ad position on the screen.",
        "btype": "Blocked banner ad types.",
        "mimes": "Content types that are shown.",
        "api": "API frameworks that there are; a creative that needs another one does not fit.",
    },
    "Format": {"w": "Pixels.", "h": "Pixels."},
    "Video": {
        "pos": "Ad position on the screen.",
        "mimes": "Content types that are played.",
        "minduration": "Seconds.",
        "maxduration": "Seconds.",
        "rqddurs": "Seconds; where not empty, the only durations.",
        "poddur": "Seconds of the whole pod; no creative is longer.",
        "podid": "Impressions of one pod get different advertisers.",
        "protocols": "VAST versions that are played.",
        "protocol": "As OpenRTB 2.1 had it.",
        "w": "Pixels of the player; read where `boxingallowed` is 0.",
        "h": "Pixels of the player; read where `boxingallowed` is 0.",
        "boxingallowed": "0: media are no larger than the player, and of its aspect ratio.",
        "linearity": "1: only linear creatives, 2: only others.",
        "skip": "0: only creatives that cannot be skipped.",
        "minbitrate": "kbit/s.",
        "maxbitrate": "kbit/s.",
        "delivery": "AdCOM's Delivery Methods that are supported.",
        "battr": "Blocked creative attributes.",
        "plcmt": "Where the video plays; AdCOM's Plcmt Subtypes - Video.",
        "api": "API frameworks that there are.",
        "placement": "As OpenRTB 2.5 had it; read where there is no `plcmt`.",
        "mincpmpersec": "CPM for each second of the creative, beside the floor, in its currency.",
        "durfloors": "Floors by the creative's duration, beside the floor and in its currency.",
    },
    "Native": {
        "request": "The Native Ads request, as a string of JSON.",
        "ver": "Version of the Native Ads Specification; the request's own counts first.",
        "plcmttype": "Native placement type, as in the Native Ads Specification.",
        "battr": "Blocked creative attributes.",
        "api": "API frameworks that there are.",
    },
    "Audio": {
        "mimes": "Content types that are played.",
        "minduration": "Seconds.",
        "maxduration": "Seconds.",
        "rqddurs": "Seconds; where not empty, the only durations.",
        "poddur": "Seconds of the whole pod; no creative is longer.",
        "podid": "Impressions of one pod get different advertisers.",
        "protocols": "DAAST versions that are played.",
        "minbitrate": "kbit/s.",
        "maxbitrate": "kbit/s.",
        "delivery": "AdCOM's Delivery Methods that are supported.",
        "battr": "Blocked creative attributes.",
        "api": "API frameworks that there are.",
        "mincpmpersec": "CPM for each second of the creative, beside the floor, in its currency.",
        "durfloors": "Floors by the creative's duration, beside the floor and in its currency.",
    },
    "Pmp": {
        "private_auction": "1: only campaigns that have one of the deals may bid.",
        "deals": "Deals on offer for this impression.",
    },
    "Deal": {
        "id": "The deal's id; campaigns name the deals that they want.",
        "bidfloorcur": "ISO 4217 currency of the floor; USD where absent.",
        "bidfloor": "CPM; replaces the impression's floor.",
        "wseat": "Buyer seats that have the deal.",
        "wadomain": "Advertiser domains that have the deal.",
        "guar": "1: guaranteed; the campaigns that have it come before any price.",
        "mincpmpersec": "CPM for each second of the creative, beside the floor, in its currency.",
        "durfloors": "Floors by the creative's duration, beside the floor and in its currency.",
    },
    "DurFloors": {
        "mindur": "Seconds; no lower end where absent.",
        "maxdur": "Seconds; no upper end where absent.",
        "bidfloor": "CPM; where spans overlap, each of them holds.",
    },
    "Device": {
        "devicetype": "AdCOM's Device Types: 1 mobile, 2 computer, 3 TV, 4 phone, 5 tablet.",
        "connectiontype": "AdCOM's Connection Types: 2 Wi-Fi, 3 to 7 cellular.",
        "os": "Operating system.",
        "carrier": "Carrier or provider.",
        "language": "Language, ISO 639-1.",
        "langb": "Language as a BCP 47 tag.",
        "ua": "User agent; asked for at go-live.",
        "ip": "IPv4 address; asked for at go-live.",
        "ipv6": "IPv6 address.",
        "ifa": "Advertising id; all zeroes count as none.",
        "lmt": "1: the user is not recognised for frequency caps.",
        "dnt": "1: the user is not recognised for frequency caps.",
    },
    "Geo": {
        "city": "City.",
        "zip": "Postal code.",
        "lat": "Latitude, -90 to 90.",
        "lon": "Longitude, -180 to 180.",
        "country": "ISO 3166-1, alpha-3 or alpha-2; asked for at go-live.",
        "region": "`USA-CA` or `CA`.",
    },
    "Regs": {
        "coppa": "1: no user data is used.",
        "gpc": "Global Privacy Control; 1: no user data is used.",
        "gdpr": "1: user data is used only as the consent string allows.",
        "us_privacy": "US privacy string; an opt-out is followed.",
        "gpp": "GPP string; an opt-out of a section that applies is followed.",
        "gpp_sid": "GPP sections that apply; one that is not known counts as an opt-out.",
    },
    "User": {
        "id": "User id, yours; the first id that there is recognises the user for caps.",
        "buyeruid": "Our id of the user; recognises them where there is no `id`.",
        "consent": "TCF consent string.",
        "eids": "Extended ids.",
    },
    "Site": {
        "domain": "Domain of the site.",
        "page": "Address of the page.",
        "cat": "IAB content categories.",
        "sectioncat": "IAB content categories of the section.",
        "pagecat": "IAB content categories of the page or view.",
    },
    "App": {
        "bundle": "Bundle or store id of the app.",
        "cat": "IAB content categories.",
        "sectioncat": "IAB content categories of the section.",
        "pagecat": "IAB content categories of the page or view.",
    },
    "Publisher": {
        "id": "Publisher id, yours.",
    },
    "BrandVersion": {
        "brand": "Name of the browser or platform.",
    },
    "Segment": {
        "id": "Id of the segment.",
    },
    "Eid": {
        "source": "Who issued the ids, as a domain.",
    },
    "Uid": {
        "id": "The id.",
    },
    "UserExt": {
        "consent": "TCF consent string, as OpenRTB 2.5 has it.",
    },
    "Dsa": {
        "dsarequired": "2 or 3: bids without a declaration are not taken.",
        "pubrender": "Who renders the declaration: 0 the buyer, 1 either, 2 the publisher.",
    },
    "RegsExt": {
        "coppa": "As `coppa` of `regs`.",
        "gpc": "As `gpc` of `regs`.",
        "gdpr": "As `gdpr` of `regs`.",
        "us_privacy": "As `us_privacy` of `regs`.",
        "gpp": "As `gpp` of `regs`.",
        "gpp_sid": "As `gpp_sid` of `regs`.",
    },
}
"""Struct -> field -> what partners should know about it."""

REQUIRED: Final = {"BidRequest": ["id", "imp"], "Imp": ["id"]}
_KEYWORDS: Final = {"type": "array", "minItems": 1, "items": ref("Imp")}
_ID: Final[Schema] = {"type": ["string", "integer"], "minLength": 1}


def request_schemas() -> dict[str, Schema]:
    """The schemas of a bid request and of all objects in it, by the names of their structs."""
    _, schemas = msgspec.json.schema_components([BidRequest], ref_template=REF)
    for name, schema in schemas.items():
        _refine(name, schema)
    schemas["BidRequest"]["description"] = (
        "OpenRTB 2.5 or 2.6 (3.2.1): the fields that are read; all others are ignored."
    )
    return schemas


def _refine(name: str, schema: Schema) -> None:
    """Add the notes, and what `decode` checks beyond the types."""
    stated = schema.get("description", "")
    schema["description"] = f"OpenRTB {stated}" if stated.startswith("2.6") else stated
    properties = schema["properties"]
    for field, own in properties.items():
        properties[field] = _plain(own)
    if name == "BidRequest":
        properties["imp"] = dict(_KEYWORDS)
    del schema["required"]
    if required := REQUIRED.get(name):
        schema["required"] = required
        properties["id"] = dict(_ID)
    for field, note in NOTES.get(name, {}).items():
        properties[field]["description"] = note


def _plain(schema: Schema) -> Schema:
    """Drop the default; merge alternatives of simple types into a list of types."""
    kept = {key: value for key, value in schema.items() if key != "default"}
    if "items" in kept:
        kept["items"] = _plain(kept["items"])
    choices = [_plain(choice) for choice in kept.get("anyOf", ())]
    if not choices:
        return kept
    if all(choice.keys() <= {"type", "items"} for choice in choices):
        merged: dict[str, Any] = {"type": [choice["type"] for choice in choices]}
        for choice in choices:
            merged |= {"items": choice["items"]} if "items" in choice else {}
        return merged
    return {"anyOf": choices}


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def response_schemas() -> dict[str, Schema]:
    """The schemas of the response; it is written from templates (`exchange/response.py`)."""
    bid = objects(
        {
            "id": _text("The bid's own id."),
            "impid": _text("The `id` of the impression."),
            "price": {"type": "number", "exclusiveMinimum": 0, "description": "CPM in `cur`."},
            "adm": _text("The markup; put your macros in as ever before it is shown."),
            "adomain": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The advertiser's domain.",
            },
            "cid": _text("The campaign's id."),
            "crid": _text("The creative's id."),
            "cat": {
                "type": "array",
                "items": {"type": "string"},
                "description": "IAB content categories of the ad.",
            },
            "cattax": {"type": "integer", "description": "The taxonomy of `cat`."},
            "attr": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "Creative attributes.",
            },
            "apis": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "API frameworks that the creative needs.",
            },
            "language": _text("The creative's language."),
            "w": {"type": "integer", "description": "Pixels, where known."},
            "h": {"type": "integer", "description": "Pixels, where known."},
            "iurl": _text("An image of the creative, for checking its content."),
            "ext": {
                "type": "object",
                "properties": {"dsa": {"type": "object", "description": "OpenRTB's DSA object."}},
                "description": "`dsa`: what the campaign declares, where the request asks for it.",
            },
            "mtype": {
                "enum": [1, 2, 3, 4],
                "description": "1 banner, 2 video, 3 audio, 4 native.",
            },
            "dur": {"type": "integer", "description": "Seconds, of video and audio, where known."},
            "protocol": {
                "type": "integer",
                "description": "The VAST or DAAST version, where the creative has one alone.",
            },
            "dealid": _text("The deal under which the bid is made."),
            "nurl": _text("Win: fire it as soon as the bid has won the auction."),
            "burl": _text("Billing: fire it when the impression is rendered and billed."),
            "lurl": _text("Loss: put the loss reason for `${AUCTION_LOSS}`, then fire it."),
        },
        *("cat", "cattax", "attr", "apis", "language", "w", "h", "iurl", "dur", "protocol"),
        *("dealid", "ext"),
        title="Bid",
        description="OpenRTB 2.6, 4.2.3.",
        additionalProperties=False,
    )
    seat = objects(
        {
            "bid": {"type": "array", "minItems": 1, "items": ref("Bid")},
            "seat": _text("The buyer seat; absent where the campaign has none."),
        },
        "seat",
        title="SeatBid",
        description="OpenRTB 2.6, 4.2.2.",
        additionalProperties=False,
    )
    response = objects(
        {
            "id": _text("The request's `id`."),
            "seatbid": {"type": "array", "minItems": 1, "items": ref("SeatBid")},
            "bidid": _text("Our id of this response."),
            "cur": {
                "type": "string",
                "pattern": "^[A-Z]{3}$",
                "description": "The currency of all prices.",
            },
        },
        title="BidResponse",
        description="OpenRTB 2.6, 4.2.1; at most one bid for each impression.",
        additionalProperties=False,
    )
    return {"BidResponse": response, "SeatBid": seat, "Bid": bid}
