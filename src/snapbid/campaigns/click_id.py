"""Click ids: who bought the click of an advertisement, in 60 characters (contract 12).

A click id goes through an advertiser's pages, and comes back with a server event. It is the
base64url text of 45 bytes. These need no padding, so that no two texts have the same bytes:

    version (high half) and key (low half)   1
    campaign, by number                      4
    creative, by digest                      4
    descriptor, by number                    4
    time of the bid, epoch s                 4
    auction and impression, by digest        8
    person                                   8
    signature of all of the above           12

Numbers and digests mean the same for ever (tables `campaign_number`, `click_creative` and
`ssp_number`). The person is masked with a keyed hash of time and auction: without the key, nobody
sees that two clicks are of one person. If user data may not be used, auction and person are zero.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Mapping
from hashlib import blake2b, sha256
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple

LENGTH: Final = 60  # characters
NOTHING: Final = bytes(8)  # no auction, or no person
KEYS: Final = 16  # numbers of keys

_VERSION: Final = 1
_LAYOUT: Final = Struct(">BI4sII8s8s")
_SIGNATURE: Final = 12
_MASKED: Final = slice(13, 25)  # time and auction
_BY_SSP: Final = frozenset(("user", "buyeruid"))  # ids that mean nothing to another SSP


class Click(NamedTuple):
    """The content of a click id; `person` is a `person_hash`, or NOTHING."""

    campaign: int
    creative: bytes
    descriptor: int
    time_s: int
    auction: bytes = NOTHING
    person: bytes = NOTHING


class ClickKey:
    """A key that signs click ids and masks persons; `number` tells the valid keys apart."""

    def __init__(self, number: int, secret: bytes) -> None:
        if len(secret) < 32:
            raise ValueError("the secret of a click key must have at least 32 bytes")
        self.number = number % KEYS
        self._signing = blake2b(b"click signature", key=secret[:64]).digest()
        self._masking = blake2b(b"click person", key=secret[:64]).digest()

    def make(self, click: Click) -> str:
        """Return the click id."""
        content = _LAYOUT.pack(_VERSION << 4 | self.number, *click)
        if click.person != NOTHING:
            content = content[:-8] + self._masked(content, click.person)
        return urlsafe_b64encode(content + self._signature(content)).decode()

    def read(self, content: bytes, signature: bytes) -> Click | None:
        """Return the click; None if this key has not signed it."""
        if not compare_digest(signature, self._signature(content)):
            return None
        click = Click(*_LAYOUT.unpack(content)[1:])
        if click.person == NOTHING:
            return click
        return click._replace(person=self._masked(content, click.person))

    def _signature(self, content: bytes) -> bytes:
        return blake2b(content, key=self._signing, digest_size=_SIGNATURE).digest()

    def _masked(self, content: bytes, person: bytes) -> bytes:
        """Mask a person, or unmask one."""
        mask = blake2b(content[_MASKED], key=self._masking, digest_size=8).digest()
        return bytes(a ^ b for a, b in zip(person, mask, strict=True))


def read(text: str, keys: Mapping[int, ClickKey]) -> Click | None:
    """Read a click id; None if it is none of ours. `keys`: those valid, by number."""
    if len(text) != LENGTH or not text.isascii():
        return None
    try:
        signed = urlsafe_b64decode(text)
    except Error:
        return None
    # The decoder skips foreign characters, and takes those of plain base64.
    if len(signed) != _LAYOUT.size + _SIGNATURE or urlsafe_b64encode(signed).decode() != text:
        return None
    key = keys.get(signed[0] & 15)
    if signed[0] >> 4 != _VERSION or key is None:
        return None
    return key.read(signed[: _LAYOUT.size], signed[_LAYOUT.size :])


def creative_digest(creative: str) -> bytes:
    """Return the 4 bytes by which click ids name a campaign's creative."""
    return sha256(creative.encode()).digest()[:4]


def person_hash(key: bytes, kind: str, family: str, id: str) -> bytes:
    """Return the 8 bytes by which a person is known, from an id of theirs.

    `key` is the warehouse's and never changes (`suppression_key`). `kind` is that of
    `bidding.identity.recognise`: `user` and `buyeruid` mean a person to one family of SSPs (the
    canonical id) only; `ifa`, in any case, and `eid`, as `SOURCE ID`, to all.
    """
    scope = family if kind in _BY_SSP else ""
    name = f"{kind} {scope} {id.lower() if kind == 'ifa' else id}"
    return blake2b(name.encode(errors="surrogatepass"), key=key[:64], digest_size=8).digest()
