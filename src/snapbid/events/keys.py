"""API keys, as a worker finds a request's (contract 7).

Keys are known only by their SHA-256: a request's key is hashed and looked up by its hash, and the
hashes are compared in constant time.
"""

import hmac
from hashlib import sha256
from typing import NamedTuple

from snapbid.base.redis_keys import EVENT_RATE
from snapbid.catalog.event_config import IssuedKeys
from snapbid.events.outcomes import Product


class ApiKey(NamedTuple):
    """A valid key; `digest` is its SHA-256, `rate_key` the Redis key of its requests.

    `rate` and `events` are the requests and events that it may send in a rolling minute.
    """

    digest: bytes
    product: Product
    rate: int
    events: int
    rate_key: str


class ApiKeys:
    """The keys of one catalog."""

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
        """The key that a request carries, None if it was not issued or is revoked."""
        digest = sha256(given).digest()
        key = self._keys.get(digest)
        return key if key is not None and hmac.compare_digest(key.digest, digest) else None


def rate_key(digest: bytes) -> str:
    """The Redis key of the requests of an API key within the last minute."""
    return f"{EVENT_RATE}{digest[:16].hex()}"
