"""Lookup of a request's API key in a worker (contract 7).

Workers know only the SHA-256 of each key. A request's key is hashed and looked up by that hash;
hashes are compared in constant time.
"""

import hmac
from hashlib import sha256
from typing import NamedTuple

from snapbid.base.redis_keys import EVENT_RATE
from snapbid.catalog.catalog import IssuedKeys
from snapbid.events.outcomes import Product


class ApiKey(NamedTuple):
    """A valid key; `digest`: its SHA-256; `rate_key`: the Redis key that counts its requests.

    `rate` and `events`: the most requests and events in a rolling minute.
    """

    digest: bytes
    product: Product
    rate: int
    events: int
    rate_key: str


class ApiKeys:
    """The API keys that one catalog lists as valid."""

    def __init__(self, issued: IssuedKeys) -> None:
        self._keys = {
            digest: ApiKey(
                digest, Product(product, frozenset(presets)), rate, events, rate_key(digest)
            )
            for digest, (product, presets, rate, events) in (
                (bytes.fromhex(text), key) for text, key in issued.items()
            )
        }

    def find(self, given: bytes) -> ApiKey | None:
        """Find the key of a request; None if it was never issued, or has been revoked."""
        digest = sha256(given).digest()
        key = self._keys.get(digest)
        return key if key is not None and hmac.compare_digest(key.digest, digest) else None


def rate_key(digest: bytes) -> str:
    """Return the Redis key that counts an API key's requests in the last minute."""
    return f"{EVENT_RATE}{digest[:16].hex()}"
