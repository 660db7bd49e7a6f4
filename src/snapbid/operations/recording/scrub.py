"""Removes personal data from recorded bid requests, keeping the fields that a bidder reads.

Fields that the request's structs do not have are removed, at every depth. Text fields are kept only
if they are listed here as harmless. Identifiers become keyed hashes of the same form: requests of
one user can still be linked, but without the key the originals cannot be found by brute force. If a
request opts out, user and device ids, segments and positions are removed. Consent strings stay,
since they decide whether user data may be used.
"""

import re
import uuid
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address
from math import isfinite
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from snapbid.base.errors import BadRequest
from snapbid.bidding import privacy
from snapbid.bidding.lookups import signals
from snapbid.bidding.native_request import AssetAsked, NativeMarkup, TrackerAsked
from snapbid.bidding.request import BidRequest, Device
from snapbid.bidding.tolerance import decode_tolerantly

HARMLESS: Final = {
    "BidRequest": "cur bcat acat badv bapp bseat wseat wlang wlangb",
    "Imp": "bidfloorcur bcat badv",
    "Banner": "mimes",
    "Video": "mimes podid",
    "Audio": "mimes podid",
    "Native": "ver",
    "NativeMarkup": "ver",
    "VideoAsked": "mimes",
    "Deal": "id bidfloorcur wseat wadomain",
    "Publisher": "id",
    "Site": "domain cat sectioncat pagecat",
    "App": "bundle cat sectioncat pagecat",
    "Geo": "country region city",
    "BrandVersion": "brand",
    "Device": "ua os carrier language langb",
    "Segment": "id",
    "Eid": "source",
    "User": "consent",
    "UserExt": "consent",
    "Regs": "us_privacy gpp",
    "RegsExt": "us_privacy gpp",
}
"""Text fields that are kept unchanged, by struct."""
MAX_TEXT: Final = 4_096  # characters, enough for consent strings
DEGREE_DECIMALS: Final = 1  # decimals of a position: some 10 km
_PERSONAL: Final = re.compile(r"@|%40|\A\s*\+|[\x00-\x1f]", re.IGNORECASE)  # an address, a phone
_NUMBER: Final = re.compile(r"\s*-?\d{1,15}(\.\d{1,15})?\s*|true|false")  # as text
_SHORT_ID: Final = re.compile(r"\d{1,4}")  # of an impression
_NETWORK4: Final = int(IPv4Address("10.0.0.0"))
_NETWORK6: Final = int(IPv6Address("fd00::"))
_USER_IDS: Final = ("id", "buyeruid", "eids", "data")
_DEVICE_IDS: Final = ("ip", "ipv6", "ifa")
_POSITION: Final = ("lat", "lon")

Document = dict[str, Any]


class _Field(NamedTuple):
    """The content of a struct's field: objects of another struct, text, or numbers."""

    struct: type[Struct] | None
    is_text: bool


class Scrubber:
    """Scrubs requests. `key`: at most 64 bytes; `vendor`: our id in the Global Vendor List."""

    def __init__(self, key: bytes, vendor: int | None = None) -> None:
        self._key = key
        self._vendor = vendor
        # How the fields that identify a person or a place are replaced, by struct and name.
        self._changes: dict[tuple[str, str], Callable[[Any], Any]] = {
            ("BidRequest", "id"): self._hex,
            ("Imp", "id"): self._impression_id,
            ("Native", "request"): self._native_request,
            ("Native", "assets"): lambda asset: self._object(asset, AssetAsked),
            ("Native", "eventtrackers"): lambda tracker: self._object(tracker, TrackerAsked),
            ("Native", "privacy"): _flag,
            ("Site", "page"): _origin,
            ("Geo", "lat"): _rounded,
            ("Geo", "lon"): _rounded,
            ("Device", "ip"): self._address4,
            ("Device", "ipv6"): self._address6,
            ("Device", "ifa"): self._like,
            ("User", "id"): self._like,
            ("User", "buyeruid"): self._like,
            ("Uid", "id"): self._like,
        }

    def scrub(self, request: Document) -> Document:
        """Return a request without personal data.

        Raises RecursionError if it is nested too deeply.
        """
        kept = self._object(request, BidRequest)
        if self._opts_out(request):
            _remove_ids(kept)
        return kept

    def _opts_out(self, request: Document) -> bool:
        """Return whether user data must not be used; True if that is unknown."""
        try:
            read = decode_tolerantly(msgspec.json.encode(request).decode(), BidRequest)
        except (BadRequest, ValueError, OverflowError):
            return True
        device = read.device or Device()
        if device.lmt == 1 or device.dnt == 1:
            return True
        return not privacy.may_use_user_data(signals(read), self._vendor)

    def _object(self, given: Any, struct: type[Struct]) -> Document:
        kept = {}
        if isinstance(given, dict):
            for name, field in _fields(struct).items():
                value = self._value(given.get(name), field, struct.__name__, name)
                if value is not None and (value or name != "ext"):
                    kept[name] = value
        return kept

    def _value(self, value: Any, field: _Field, struct: str, name: str) -> Any:
        """Scrub a field's value, or each value in a list.

        A value that may not be kept becomes None, or is left out of the list.
        """
        if isinstance(value, list):
            kept = [self._single(item, field, struct, name) for item in value]
            return [item for item in kept if item is not None]
        return self._single(value, field, struct, name)

    def _single(self, value: Any, field: _Field, struct: str, name: str) -> Any:
        if value is None or isinstance(value, list):
            return None
        if field.struct is not None:
            return self._object(value, field.struct) if isinstance(value, dict) else None
        if change := self._changes.get((struct, name)):
            return change(value)
        if field.is_text and name not in HARMLESS.get(struct, "").split():
            return None
        if isinstance(value, str):
            is_kept = _is_plain(value) if field.is_text else _NUMBER.fullmatch(value)
            return value if is_kept else None
        return value if isinstance(value, (bool, int, float)) else None

    # -- what is changed ---------------------------------------------------------------------------

    def _native_request(self, value: Any) -> Any:
        """Scrub a native request in the form it was sent: JSON as text, or an object."""
        if isinstance(value, dict):
            return self._object(value, NativeMarkup)
        try:
            given = msgspec.json.decode(value) if isinstance(value, str) else None
        except (msgspec.DecodeError, UnicodeEncodeError):
            return None
        if isinstance(given, str):  # encoded twice
            return msgspec.json.encode(self._native_request(given)).decode()
        return msgspec.json.encode(self._object(given, NativeMarkup)).decode()

    def _impression_id(self, value: Any) -> str:
        return str(value) if _SHORT_ID.fullmatch(str(value)) else self._hex(value)

    def _hash(self, value: Any) -> bytes:
        return blake2b(str(value).encode(errors="replace"), key=self._key, digest_size=16).digest()

    def _hex(self, value: Any) -> str:
        return self._hash(value).hex()

    def _like(self, value: Any) -> str | None:
        """Hash an id; the hash of a UUID has the form of a UUID.

        Returns an id of only zeros unchanged, and None for an empty id.
        """
        text = str(value)
        if not text.strip("0-"):
            return text or None
        return str(uuid.UUID(bytes=self._hash(text))) if text.count("-") == 4 else self._hex(text)

    def _address4(self, value: Any) -> str:
        """Map an IPv4 address to one in a private network (RFC 1918)."""
        return str(IPv4Address(_NETWORK4 | int.from_bytes(self._hash(value)[:3])))

    def _address6(self, value: Any) -> str:
        """Map an IPv6 address to one in a private network (RFC 4193)."""
        return str(IPv6Address(_NETWORK6 | int.from_bytes(self._hash(value)[:15])))


def _remove_ids(kept: Document) -> None:
    """Remove everything that a bidder must not use without consent (contract 3, "Privacy")."""
    for of, names in (("user", _USER_IDS), ("device", _DEVICE_IDS)):
        for part in _objects(kept.get(of)):
            for name in names:
                part.pop(name, None)
            for ext in _objects(part.get("ext")):
                ext.pop("eids", None)
            for geo in _objects(part.get("geo")):
                for name in _POSITION:
                    geo.pop(name, None)


def _objects(value: Any) -> list[Document]:
    return [each for each in (value if isinstance(value, list) else [value]) if each]


def _is_plain(text: str) -> bool:
    """Return whether `text` is short and printable, without an `@` or a leading `+`."""
    return len(text) <= MAX_TEXT and not _PERSONAL.search(text)


def _flag(value: Any) -> Any:
    return value if isinstance(value, int) else None


def _origin(value: Any) -> str | None:
    """Return the scheme and host of a page's URL, as `https://example.com/`; None if invalid."""
    try:
        parts = urlsplit(str(value))
        host = parts.hostname
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host or not _is_plain(host):
        return None
    return f"{parts.scheme}://{host}/"


def _rounded(value: Any) -> float | None:
    try:
        degrees = round(float(value), DEGREE_DECIMALS)
    except (TypeError, ValueError, OverflowError):
        return None
    return degrees if isfinite(degrees) else None


@cache
def _fields(struct: type[Struct]) -> dict[str, _Field]:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _field(field.type) for field in info.fields}


def _field(annotation: msgspec.inspect.Type) -> _Field:
    if isinstance(annotation, msgspec.inspect.UnionType):
        parts = [_field(each) for each in annotation.types]
        struct = next((part.struct for part in parts if part.struct), None)
        return _Field(struct, any(part.is_text for part in parts))
    if isinstance(annotation, msgspec.inspect.ListType):
        return _field(annotation.item_type)
    if isinstance(annotation, msgspec.inspect.StructType):
        return _Field(annotation.cls, False)
    return _Field(None, isinstance(annotation, msgspec.inspect.StrType))
