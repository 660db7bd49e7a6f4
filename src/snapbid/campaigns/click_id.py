"""Click ids: the campaign, SSP and person behind a click, in 60 characters (contract 12).

A click id passes through an advertiser's pages and comes back with a server event. It is 45 bytes
in base64url. This length needs no padding, so no two texts decode to the same bytes:

    version (high half) and key (low half)   1
    campaign, by number                      4
    creative, by digest                      4
    descriptor, by number                    4
    time of the bid, epoch s                 4
    auction and impression, by digest        8
    person                                   8
    signature of all of the above           12

Numbers and digests never change their meaning (tables `campaign_number`, `click_creative` and
`ssp_number`). The person is masked with a keyed hash of time and auction, so nobody without the key
can tell that two clicks come from the same person. If user data may not be used, auction and person
are zero.

Hashes and signature are SipHash-2-4, as for persons (native/persons.h), because click ids are made
on the bid path. The signature is two hashes with different keys, 96 bits in all.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Mapping
from hashlib import blake2b, sha256
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple

from snapbid.campaigns._persons import siphash

LENGTH: Final = 60  # characters
KEYS: Final = 16  # key numbers
NO_AUCTION: Final = bytes(8)

_VERSION: Final = 1
_LAYOUT: Final = Struct(">BI4sII8sq")
_SIGNATURE: Final = Struct(">qI")
_PERSON: Final = Struct(">q")
_MASKED: Final = slice(13, 25)  # time and auction


class Click(NamedTuple):
    """The contents of a click id; `person` is the hash of an id in the bid request, or 0."""

    campaign: int
    creative: bytes
    descriptor: int
    time_s: int
    auction: bytes = NO_AUCTION
    person: int = 0


class ClickKey:
    """A key that signs click ids and masks the persons in them; `number` tells valid keys apart.

    `keys` is the concatenation of three SipHash keys derived from the secret: two for the signature
    and one for the mask.
    """

    def __init__(self, number: int, secret: bytes) -> None:
        if len(secret) < 32:
            raise ValueError("the secret of a click key must have at least 32 bytes")
        self.number = number % KEYS
        self.keys = blake2b(secret, digest_size=48, person=b"snapbid clicks").digest()

    def make(self, click: Click) -> str:
        """Encode a click as a signed click id, in which the person is masked with this key."""
        content = _LAYOUT.pack(_VERSION << 4 | self.number, *click)
        if click.person:
            content = content[:-8] + _PERSON.pack(click.person ^ self._mask(content))
        return urlsafe_b64encode(content + self._signature(content)).decode()

    def read(self, content: bytes, signature: bytes) -> Click | None:
        """Decode the content of a click id; None if it was not signed with this key."""
        if not compare_digest(signature, self._signature(content)):
            return None
        click = Click(*_LAYOUT.unpack(content)[1:])
        if not click.person:
            return click
        return click._replace(person=click.person ^ self._mask(content))

    def _signature(self, content: bytes) -> bytes:
        halves = siphash(self.keys[:16], content), siphash(self.keys[16:32], content)
        return _SIGNATURE.pack(halves[0], halves[1] & 0xFFFFFFFF)

    def _mask(self, content: bytes) -> int:
        return siphash(self.keys[32:], content[_MASKED])


def read(text: str, keys: Mapping[int, ClickKey]) -> Click | None:
    """Decode a click id; None unless it is signed with one of `keys`, the valid keys by number."""
    if len(text) != LENGTH or not text.isascii():
        return None
    try:
        signed = urlsafe_b64decode(text)
    except Error:
        return None
    # The decoder skips foreign characters, and also accepts those of plain base64.
    if len(signed) != _LAYOUT.size + _SIGNATURE.size or urlsafe_b64encode(signed).decode() != text:
        return None
    key = keys.get(signed[0] & 15)
    if signed[0] >> 4 != _VERSION or key is None:
        return None
    return key.read(signed[: _LAYOUT.size], signed[_LAYOUT.size :])


def bought(campaign: int, creative: str) -> bytes:
    """Return the 8 bytes that identify a campaign (by number) and a creative in click ids."""
    return campaign.to_bytes(4, "big") + creative_digest(creative)


def creative_digest(creative: str) -> bytes:
    """Return the 4 bytes that identify a campaign's creative in click ids."""
    return sha256(creative.encode()).digest()[:4]
