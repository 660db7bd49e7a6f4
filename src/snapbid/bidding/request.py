"""The bid request: structs with only the fields that are used, and their decoder.

Field names are OpenRTB's (2.5 and 2.6); a field that 2.6 moved out of `ext` is read in either
place. A request is decoded in one typed pass; if that fails, `tolerance` decodes the body again.
"""

import re
from codecs import BOM_UTF8
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from snapbid.base.errors import BadRequest
from snapbid.bidding.bounds import MAX_IMPRESSIONS, MAX_VALUES
from snapbid.bidding.spelling import misspelt_in
from snapbid.bidding.tolerance import decode_tolerantly

Text: TypeAlias = str | int | None  # some send numbers as ids
Texts: TypeAlias = list[str | int | None] | None
Flag: TypeAlias = int | bool | None
# An integer from an OpenRTB enumeration; text counts as an unknown value.
Listed: TypeAlias = Annotated[int, Meta(extra={"enumeration": True})]
Enumeration: TypeAlias = Listed | None
Enumerations: TypeAlias = list[Listed | None] | None


class Format(Struct, gc=False):
    """A size that a banner accepts (OpenRTB 2.6, 3.2.10)."""

    w: int | None = None
    h: int | None = None


class Banner(Struct, gc=False):
    """The banners that an impression accepts (OpenRTB 2.6, 3.2.6)."""

    w: int | None = None
    h: int | None = None
    format: list[Format] | None = None
    battr: Enumerations = None
    pos: Enumeration = None
    btype: Enumerations = None
    mimes: Texts = None
    api: Enumerations = None


class DurFloors(Struct, gc=False):
    """A floor for a range of durations (OpenRTB 2.6, 3.2.35)."""

    mindur: int | None = None
    maxdur: int | None = None
    bidfloor: float | None = None


class Video(Struct, gc=False):
    """The videos that an impression accepts (OpenRTB 2.6, 3.2.7; `protocol` is from 2.1)."""

    mimes: Texts = None
    minduration: int | None = None
    maxduration: int | None = None
    rqddurs: list[int | None] | None = None
    poddur: int | None = None
    podid: Text = None
    maxseq: int | None = None
    protocols: Enumerations = None
    protocol: Enumeration | Enumerations = None
    w: int | None = None
    h: int | None = None
    boxingallowed: Flag = None
    linearity: Enumeration = None
    skip: Flag = None
    minbitrate: int | None = None
    maxbitrate: int | None = None
    delivery: Enumerations = None
    battr: Enumerations = None
    pos: Enumeration = None
    plcmt: Enumeration = None
    placement: Enumeration = None
    api: Enumerations = None
    mincpmpersec: float | None = None
    durfloors: list[DurFloors] | None = None


class Audio(Struct, gc=False):
    """The audio ads that an impression accepts (OpenRTB 2.6, 3.2.8)."""

    mimes: Texts = None
    minduration: int | None = None
    maxduration: int | None = None
    rqddurs: list[int | None] | None = None
    poddur: int | None = None
    podid: Text = None
    maxseq: int | None = None
    protocols: Enumerations = None
    minbitrate: int | None = None
    maxbitrate: int | None = None
    delivery: Enumerations = None
    battr: Enumerations = None
    api: Enumerations = None
    mincpmpersec: float | None = None
    durfloors: list[DurFloors] | None = None


class Native(Struct, gc=False):
    """The native ads that an impression accepts (OpenRTB 2.6, 3.2.9).

    `request` is JSON text, though some exchanges send an object, and others put the members of that
    object here. See `native_request`.
    """

    request: Any = None
    ver: Text = None
    assets: Any = None
    eventtrackers: Any = None
    privacy: Any = None
    plcmttype: Enumeration = None
    battr: Enumerations = None
    api: Enumerations = None


class Deal(Struct, gc=False):
    """A deal offered for an impression (OpenRTB 2.6, 3.2.12)."""

    id: Text = None
    bidfloor: float | None = None
    bidfloorcur: str | None = None
    wseat: Texts = None
    wadomain: Texts = None
    guar: Flag = None
    mincpmpersec: float | None = None
    durfloors: list[DurFloors] | None = None


class Pmp(Struct, gc=False):
    """The deals offered for an impression (OpenRTB 2.6, 3.2.11)."""

    private_auction: Flag = None
    deals: list[Deal] | None = None


class Qty(Struct, gc=False):
    """The number of impressions that one impression stands for (OpenRTB 2.6, 3.2.31)."""

    multiplier: float | None = None


class PrebidExt(Struct, gc=False):
    """`imp.ext.prebid` of Prebid Server, which has its own name for `rwdd`."""

    rwdd: Flag = msgspec.field(default=None, name="is_rewarded_inventory")


class ImpExt(Struct, gc=False):
    """`imp.ext`: a field that OpenRTB 2.6 moved into `imp`, and Prebid Server's extension."""

    rwdd: Flag = None
    prebid: PrebidExt | None = None


class Imp(Struct, gc=False):
    """An impression, the ad space on offer (OpenRTB 2.6, 3.2.4)."""

    id: Text = None
    banner: Banner | None = None
    video: Video | None = None
    audio: Audio | None = None
    native: Native | None = None
    pmp: Pmp | None = None
    bidfloor: float | None = None
    bidfloorcur: str | None = None
    secure: Flag = None
    bcat: Texts = None
    badv: Texts = None
    rwdd: Flag = None
    instl: Flag = None
    qty: Qty | None = None
    ext: ImpExt | None = None


class Publisher(Struct, gc=False):
    """The publisher of a site, an app or a screen (OpenRTB 2.6, 3.2.15)."""

    id: Text = None


class Site(Struct, gc=False):
    """The website that shows the ad (OpenRTB 2.6, 3.2.13)."""

    domain: Text = None
    page: Text = None
    cat: Texts = None
    sectioncat: Texts = None
    pagecat: Texts = None
    publisher: Publisher | None = None


class App(Struct, gc=False):
    """The app that shows the ad (OpenRTB 2.6, 3.2.14)."""

    bundle: Text = None
    cat: Texts = None
    sectioncat: Texts = None
    pagecat: Texts = None
    publisher: Publisher | None = None


class Dooh(Struct, gc=False):
    """The digital out-of-home screen that shows the ad (OpenRTB 2.6, 3.2.32)."""

    publisher: Publisher | None = None


class Geo(Struct, gc=False):
    """The location of a device, or a user's home (OpenRTB 2.6, 3.2.19)."""

    country: Text = None
    region: Text = None
    city: Text = None
    zip: Text = None
    lat: float | None = None
    lon: float | None = None


class BrandVersion(Struct, gc=False):
    """A browser or platform named by a user agent (OpenRTB 2.6, 3.2.30)."""

    brand: Text = None


class UserAgent(Struct, gc=False):
    """A structured user agent (OpenRTB 2.6, 3.2.29)."""

    browsers: list[BrandVersion] | None = None
    platform: BrandVersion | None = None


class DeviceExt(Struct, gc=False):
    """`device.ext` of OpenRTB 2.5: a field that 2.6 moved into `device`."""

    sua: UserAgent | None = None


class Device(Struct, gc=False):
    """The device that shows the ad (OpenRTB 2.6, 3.2.18)."""

    ua: Text = None
    sua: UserAgent | None = None
    ip: Text = None
    ipv6: Text = None
    geo: Geo | None = None
    devicetype: Enumeration = None
    connectiontype: Enumeration = None
    os: Text = None
    carrier: Text = None
    language: Text = None
    langb: Text = None
    ifa: Text = None
    lmt: Flag = None
    dnt: Flag = None
    ext: DeviceExt | None = None


class Segment(Struct, gc=False):
    """An audience segment of the user (OpenRTB 2.6, 3.2.22)."""

    id: Text = None


class Data(Struct, gc=False):
    """A data provider's segments for the user (OpenRTB 2.6, 3.2.21)."""

    segment: list[Segment] | None = None


class Uid(Struct, gc=False):
    """A user's id from one source (OpenRTB 2.6, 3.2.28)."""

    id: Text = None


class Eid(Struct, gc=False):
    """A user's extended ids from one source (OpenRTB 2.6, 3.2.27)."""

    source: Text = None
    uids: list[Uid] | None = None


class UserExt(Struct, gc=False):
    """`user.ext` of OpenRTB 2.5: fields that 2.6 moved into `user`."""

    consent: str | None = None
    eids: list[Eid] | None = None


class User(Struct, gc=False):
    """The user of the device (OpenRTB 2.6, 3.2.20)."""

    id: Text = None
    buyeruid: Text = None
    data: list[Data] | None = None
    geo: Geo | None = None
    consent: str | None = None
    eids: list[Eid] | None = None
    ext: UserExt | None = None


class Dsa(Struct, gc=False):
    """Requirements of the Digital Services Act (IAB DSA Transparency, "Bid request")."""

    dsarequired: Enumeration = None
    pubrender: Enumeration = None


class RegsExt(Struct, gc=False):
    """`regs.ext`: fields of `regs` that OpenRTB 2.5, or some senders, put here."""

    coppa: Flag = None
    gpc: Flag = None
    gdpr: Flag = None
    us_privacy: str | None = None
    gpp: str | None = None
    gpp_sid: list[int] | None = None
    dsa: Dsa | None = None


class Regs(Struct, gc=False):
    """The regulations that apply (OpenRTB 2.6, 3.2.3); `gpc` is Global Privacy Control."""

    coppa: Flag = None
    gpc: Flag = None
    gdpr: Flag = None
    us_privacy: str | None = None
    gpp: str | None = None
    gpp_sid: list[int] | None = None
    dsa: Dsa | None = None
    ext: RegsExt | None = None


class BidRequest(Struct, gc=False):
    """A bid request (OpenRTB 2.6, 3.2.1).

    After `decode`, `id` and each `imp[].id` are non-empty text.
    """

    id: Text = None
    imp: list[Imp] | None = None
    site: Site | None = None
    app: App | None = None
    dooh: Dooh | None = None
    device: Device | None = None
    user: User | None = None
    regs: Regs | None = None
    test: Flag = None
    tmax: int | None = None
    cur: Texts = None
    bcat: Texts = None
    acat: Texts = None
    cattax: Enumeration = None
    badv: Texts = None
    bapp: Texts = None
    bseat: Texts = None
    wseat: Texts = None
    wlang: Texts = None
    wlangb: Texts = None


COMPRESSED: Final = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_INDEX: Final = re.compile(r"\[\d+\]")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")  # JSON admits unpaired ones, msgspec does not

decode_plain: Final = msgspec.json.Decoder(BidRequest, strict=False).decode
"""Decode an ASCII body without checking required fields. Raises msgspec's errors."""


def decode(body: bytes, error: Exception | None = None) -> BidRequest:
    """Decode a body into a request that has an id, and impressions with distinct ids.

    Impressions beyond `MAX_IMPRESSIONS` are dropped. `error`: the exception that `decode_plain`
    raised, if that was called before. Raises BadRequest, naming the field.
    """
    # 256 KiB can hold more than 100,000 of the shortest values.
    if len(body) > MAX_VALUES < len(body) - len(body.translate(None, b",[{")):
        raise BadRequest(f"the body has more than {MAX_VALUES:,} values")
    try:
        if error is not None:
            raise error
        # The decoder does not validate UTF-8 in the fields that it skips.
        request = decode_plain(body if body.isascii() else body.decode())
    except msgspec.ValidationError:
        request = decode_tolerantly(body.decode(), BidRequest)
    except UnicodeDecodeError as wrong:
        _check_compression(body)
        raise BadRequest(f"the body is not UTF-8 (byte {wrong.start})") from None
    except msgspec.DecodeError as wrong:
        if body.startswith(BOM_UTF8) and not body.startswith(BOM_UTF8, len(BOM_UTF8)):
            return decode(body[len(BOM_UTF8) :])
        if not _SURROGATE.search(body):
            raise BadRequest(f"the body is not JSON: {wrong}") from None
        request = decode_tolerantly(body.decode(), BidRequest)  # it may be in a field not read
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    check(request, body)
    return request


def _check_compression(body: bytes) -> None:
    """Raise BadRequest for a body that is compressed without a Content-Encoding."""
    for encoding, begin in COMPRESSED.items():
        if body.startswith(begin):
            raise BadRequest(f"Content-Encoding: is missing, but the body is {encoding}")


def check(request: BidRequest, body: bytes = b"") -> None:
    """Drop impressions beyond `MAX_IMPRESSIONS`, and check required fields (contract 4).

    `body`: the text that the request was decoded from. Raises BadRequest.
    """
    impressions = request.imp
    if impressions is not None and len(impressions) > MAX_IMPRESSIONS:
        del impressions[MAX_IMPRESSIONS:]
    if type(request.id) is not str or not request.id:
        request.id = _required(request.id, "id", body)
    if not impressions:
        raise _missing("imp", body)
    for index, imp in enumerate(impressions):
        if type(imp.id) is not str or not imp.id:
            imp.id = _required(imp.id, f"imp[{index}].id", body)
    if len(impressions) > 1:
        seen: dict[Text, int] = {}
        for index, imp in enumerate(impressions):
            if seen.setdefault(imp.id, index) != index:
                raise BadRequest(f"imp[{index}].id: is the same as imp[{seen[imp.id]}].id")


def _required(value: Text, path: str, body: bytes) -> str:
    if isinstance(value, str):
        if value:
            return value
    elif value is not None:
        return str(value)
    raise _missing(path, body)


def _missing(path: str, body: bytes) -> BadRequest:
    """Build the error for a missing field, or for one whose name is in the wrong letter case."""
    rule = "is required and may not be empty"
    if _INDEX.sub("[]", path) in misspelt_in(body, BidRequest):
        rule = "is required, but its name is in the wrong letter case"
    return BadRequest(f"{path}: {rule}")
