"""Removes personal data from a bid request (OpenRTB 2.6, 3.2.18 to 3.2.27), keeping its shape.

Identifiers become keyed hashes of the same form: a user remains recognisable as the same user, and
without the key the original can't be recovered by trying. Everything not known to be harmless is
dropped: each `ext` (except for regulations, supply chain, consent and ids), demographics, queries
in page addresses. Consent strings stay, since they decide whether user data may be used.
"""

import uuid
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

DEVICE_IDS: Final = ("ifa", "didsha1", "didmd5", "dpidsha1", "dpidmd5", "macsha1", "macmd5")
USER_IDS: Final = ("id", "buyeruid")
DROPPED_OF_USER: Final = ("yob", "gender", "keywords", "kwarray", "customdata")
KEPT_OF_USER_EXT: Final = ("consent", "eids")
PAGES: Final = ("page", "ref", "search")
DEGREE_DECIMALS: Final = 1  # of a position: some 10 km
_NETWORK4: Final = int(IPv4Address("10.0.0.0"))
_NETWORK6: Final = int(IPv6Address("fd00::"))

Document = dict[str, Any]


class Scrubber:
    """Scrubs requests; `key` has at most 64 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def scrub(self, request: Document) -> None:
        """Scrub the request in place; parts that should be objects and are not are dropped."""
        self._change(request, "device", self._device)
        self._change(request, "user", self._user)
        for name in ("site", "app", "dooh"):
            self._change(request, name, _publication)
        self._change(request, "source", _source)
        imps = request.get("imp")
        for part in [request, *(imps if isinstance(imps, list) else [])]:
            if isinstance(part, dict):
                part.pop("ext", None)
        if request.get("id") is not None:
            request["id"] = self._hex(request["id"])

    def _change(self, parent: Document, name: str, change: Any) -> None:
        value = parent.get(name)
        if isinstance(value, dict):
            change(value)
        elif value is not None:
            del parent[name]

    def _device(self, device: Document) -> None:
        device.pop("ext", None)
        for name, make in (("ip", self._address4), ("ipv6", self._address6)):
            if device.get(name):
                device[name] = make(device[name])
        for name in DEVICE_IDS:
            if device.get(name):
                device[name] = self._like(device[name])
        self._change(device, "geo", _geo)

    def _user(self, user: Document) -> None:
        for name in DROPPED_OF_USER:
            user.pop(name, None)
        for name in USER_IDS:
            if user.get(name):
                user[name] = self._like(user[name])
        self._eids(user)
        self._change(user, "geo", _geo)
        ext = user.pop("ext", None)
        if isinstance(ext, dict):
            kept = {name: ext[name] for name in KEPT_OF_USER_EXT if name in ext}
            self._eids(kept)
            if kept:
                user["ext"] = kept

    def _eids(self, parent: Document) -> None:
        eids = parent.pop("eids", None)
        if not isinstance(eids, list):
            return
        parent["eids"] = [
            {
                "source": eid.get("source"),
                "uids": [
                    {"id": self._like(uid["id"]), "atype": uid.get("atype")}
                    for uid in eid.get("uids") or ()
                    if isinstance(uid, dict) and uid.get("id")
                ],
            }
            for eid in eids
            if isinstance(eid, dict) and isinstance(eid.get("uids") or [], list)
        ]

    # -- hashes ----------------------------------------------------------------------------------

    def _hash(self, value: Any) -> bytes:
        return blake2b(str(value).encode(errors="replace"), key=self._key, digest_size=16).digest()

    def _hex(self, value: Any) -> str:
        return self._hash(value).hex()

    def _like(self, value: Any) -> str:
        """A hash in the form of the id: an all-zero id is kept, a UUID remains a UUID."""
        text = str(value)
        if not text.strip("0-"):
            return text
        return str(uuid.UUID(bytes=self._hash(text))) if text.count("-") == 4 else self._hex(text)

    def _address4(self, value: Any) -> str:
        """An address of a private network (RFC 1918), which identifies nobody."""
        return str(IPv4Address(_NETWORK4 | int.from_bytes(self._hash(value)[:3])))

    def _address6(self, value: Any) -> str:
        """An address of a private network (RFC 4193)."""
        return str(IPv6Address(_NETWORK6 | int.from_bytes(self._hash(value)[:15])))


def _geo(geo: Document) -> None:
    for name in ("lat", "lon"):
        try:
            geo[name] = round(float(geo[name]), DEGREE_DECIMALS)
        except (KeyError, TypeError, ValueError, OverflowError):
            geo.pop(name, None)
    for name in ("accuracy", "lastfix", "ext"):
        geo.pop(name, None)


def _source(source: Document) -> None:
    source.pop("tid", None)
    ext = source.pop("ext", None)
    if isinstance(ext, dict) and "schain" in ext:
        source["ext"] = {"schain": ext["schain"]}


def _publication(publication: Document) -> None:
    publication.pop("ext", None)
    for name in PAGES:
        address = publication.get(name)
        if isinstance(address, str):
            publication[name] = address.partition("?")[0].partition("#")[0]
