"""Signed notices: URLs that only who was sent the bid can know (contract 4).

`{base}/n/TOKEN/rtb/win?id=…&impId=…`: TOKEN names the family of SSPs that got the bid, and is a
keyed digest of it and of the two ids. A family's signed bids have records of their own in the
ledger, so that two SSPs with the same ids don't share one, and no other's notice counts for them.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from struct import Struct
from typing import Final

from snapbid.bidding.limits import RemembersBids
from snapbid.bidding.routes import SIGNED_PREFIX
from snapbid.ledger.bids.batch import LedgerBid

_FAMILY: Final = 4  # bytes
_DIGEST: Final = 11
_TOKEN: Final = 20  # characters
_LENGTH: Final = Struct("<I")


def family_of(canonical: str) -> bytes:
    """Return the 4 bytes that stand for a family of SSPs."""
    return blake2b(canonical.encode(), digest_size=_FAMILY).digest()


class NoticeSigner:
    """Signs and checks; every process that has the same secret makes the same tokens."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"notices", "sha256")

    def token(self, family: bytes, auction_id: bytes, imp_id: bytes) -> bytes:
        """Return the token of the bid that a family got for an impression."""
        return urlsafe_b64encode(family + self._digest(family, auction_id, imp_id))

    def family(self, token: str, auction_id: bytes, imp_id: bytes) -> bytes | None:
        """Return the family that a token names; None where it is not the token of this bid."""
        if len(token) != _TOKEN:
            return None
        try:
            given = urlsafe_b64decode(token)
        except (Error, ValueError):
            return None
        family, digest = given[:_FAMILY], given[_FAMILY:]
        is_own = hmac.compare_digest(digest, self._digest(family, auction_id, imp_id))
        return family if is_own and urlsafe_b64encode(given).decode() == token else None

    def _digest(self, family: bytes, auction_id: bytes, imp_id: bytes) -> bytes:
        signed = b"".join((family, _LENGTH.pack(len(auction_id)), auction_id, imp_id))
        return blake2b(signed, key=self._key, digest_size=_DIGEST).digest()

    def signs(self, family: bytes) -> Callable[[str, str], bytes]:
        """Return what makes the part of a URL with the token, by the ids of a bid."""

        def sign(auction_id: str, imp_id: str) -> bytes:
            ids = auction_id.encode(), imp_id.encode()
            return SIGNED_PREFIX.encode() + self.token(family, *ids)

        return sign


class FamilyLedger:
    """A ledger in which a family's bids are its own (`RemembersBids`)."""

    def __init__(self, ledger: RemembersBids, family: bytes) -> None:
        self._ledger = ledger
        self._family = family
        self.when_certain = ledger.when_certain

    def remember(
        self,
        auction_id: bytes,
        ssp: int,
        bids: list[LedgerBid],
        user: str | None,
        within_s: float,
        counted: bool = False,
    ) -> Awaitable[str] | None:
        own = self._family + auction_id
        return self._ledger.remember(own, ssp, bids, user, within_s, counted)

    def look(
        self, auction_id: bytes, bids: list[LedgerBid], user: str | None, within_s: float
    ) -> Awaitable[str]:
        return self._ledger.look(self._family + auction_id, bids, user, within_s)

    def shard_of(self, auction_id: bytes) -> int:
        return self._ledger.shard_of(self._family + auction_id)
