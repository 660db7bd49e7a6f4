"""API keys and the operator's exchange rates, as the catalog brings them to workers (contract 7).

Keys are known only by their SHA-256: a request's key is hashed and looked up by its hash, and the
hashes are compared in constant time.
"""

import hmac
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from hashlib import sha256
from typing import NamedTuple, TypeAlias

import msgspec

from snapbid.events.outcomes import Product
from snapbid.ledger.keys import EVENT_RATE

IssuedKeys: TypeAlias = Mapping[str, tuple[str, tuple[str, ...], int, int]]
"""SHA-256 (hexadecimal) of a key -> product, its presets, requests and events a rolling minute."""

OperatorRates: TypeAlias = Mapping[str, list[tuple[date, Decimal]]]
"""Currency -> pairs of first day and USD per unit."""


class EventConfig(msgspec.Struct, frozen=True):
    """The catalog's section for events."""

    keys: dict[str, tuple[str, tuple[str, ...], int, int]] = {}
    rates: dict[str, list[tuple[date, Decimal]]] = {}


class ApiKey(NamedTuple):
    """A valid key; `digest` is its SHA-256, `rate_key` the Redis key of its requests.

    `rate` and `events` are the requests and events that it may send in a rolling minute.
    """

    digest: bytes
    product: Product
    rate: int
    events: int
    rate_key: str


def encode(issued: IssuedKeys, rates: OperatorRates) -> bytes:
    """The section as JSON."""
    keys = {digest: tuple(key) for digest, key in issued.items()}
    return msgspec.json.encode({"keys": keys, "rates": rates})


def decode(text: bytes) -> EventConfig:
    """Decode what `encode` wrote, or `null`. Raises msgspec.DecodeError."""
    return msgspec.json.decode(text, type=EventConfig | None) or EventConfig()


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
