"""Signed notices: URLs that only the receiver of the bid can know (contract 4).

In `{base}/n/TOKEN/rtb/win?id=…&impId=…`, TOKEN contains the family of SSPs that received the bid,
and a keyed digest of the family and the two ids. The ledger records signed bids per family. So two
SSPs that use the same ids do not share a record, and notices count only for the sender's family.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Iterable
from hashlib import blake2b
from struct import Struct
from typing import Final

from snapbid.bidding.routes import SIGNED_PREFIX
from snapbid.ledger.bids.records import FAMILY_SIZE, NAMED_BY_FAMILY, family_of

_DIGEST: Final = 11  # bytes
_TOKEN: Final = 20  # characters
_LENGTH: Final = Struct("<I")


class NoticeSigner:
    """A signer and verifier of notices; processes with the same secret make the same tokens."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"notices", "sha256")
        self._families: dict[bytes, str] = {}

    def use_families(self, canonicals: Iterable[str]) -> None:
        """Set the registered families, by canonical id; for others, `canonical` returns ""."""
        self._families = {family_of(canonical): canonical for canonical in canonicals}

    def canonical(self, family: bytes) -> str:
        """Return the canonical id of a family; "" if the family is no longer registered."""
        return self._families.get(family, "")

    def token(self, family: bytes, auction_id: bytes, imp_id: bytes) -> bytes:
        """Return the token for a family's bid on an impression."""
        digest = self._digest(family, auction_id, imp_id)
        return urlsafe_b64encode(family.removeprefix(NAMED_BY_FAMILY) + digest)

    def family(self, token: str, auction_id: bytes, imp_id: bytes) -> bytes | None:
        """Return the family named by a token; None if the token is not for this bid."""
        if len(token) != _TOKEN:
            return None
        try:
            given = urlsafe_b64decode(token)
        except (Error, ValueError):
            return None
        family, digest = NAMED_BY_FAMILY + given[:FAMILY_SIZE], given[FAMILY_SIZE:]
        is_own = hmac.compare_digest(digest, self._digest(family, auction_id, imp_id))
        return family if is_own and urlsafe_b64encode(given).decode() == token else None

    def _digest(self, family: bytes, auction_id: bytes, imp_id: bytes) -> bytes:
        signed = b"".join((family, _LENGTH.pack(len(auction_id)), auction_id, imp_id))
        return blake2b(signed, key=self._key, digest_size=_DIGEST).digest()

    def signs(self, family: bytes) -> Callable[[str, str], bytes]:
        """Return a function that makes `/n/TOKEN` from a bid's auction id and impression id."""

        def sign(auction_id: str, imp_id: str) -> bytes:
            ids = auction_id.encode(), imp_id.encode()
            return SIGNED_PREFIX.encode() + self.token(family, *ids)

        return sign
