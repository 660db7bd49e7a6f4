"""API keys and the operator's rates as a worker knows them (contract 7, Key).

Both come with the catalog. Keys are known by their SHA-256 alone: what a request carries is hashed,
found by its hash, and the hashes are compared in constant time.
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

Issued: TypeAlias = Mapping[str, tuple[str, tuple[str, ...], int]]
"""Hash (hexadecimal) -> product, its presets, requests in a rolling minute."""

OperatorRates: TypeAlias = Mapping[str, list[tuple[date, Decimal]]]
"""Currency -> (first day, USD per unit)."""


class Carried(msgspec.Struct, frozen=True):
    """What the catalog carries."""

    keys: dict[str, tuple[str, tuple[str, ...], int]] = {}
    rates: dict[str, list[tuple[date, Decimal]]] = {}


class Key(NamedTuple):
    """A key that holds; `digest` is its SHA-256."""

    digest: bytes
    product: Product
    rate: int


def encode(issued: Issued, rates: OperatorRates) -> bytes:
    """JSON for the catalog."""
    keys = {digest: tuple(key) for digest, key in issued.items()}
    return msgspec.json.encode({"keys": keys, "rates": rates})


def decode(text: bytes) -> Carried:
    """What `encode` wrote, or `null`. Raises msgspec.DecodeError."""
    return msgspec.json.decode(text, type=Carried | None) or Carried()


class Keys:
    """The keys of one catalog."""

    def __init__(self, issued: Issued) -> None:
        self._keys = {
            digest: Key(digest, Product(product, frozenset(presets)), rate)
            for digest, (product, presets, rate) in (
                (bytes.fromhex(text), key) for text, key in issued.items()
            )
        }

    def find(self, given: bytes) -> Key | None:
        """The key of a request, None where it is not one of ours."""
        digest = sha256(given).digest()
        key = self._keys.get(digest)
        return key if key is not None and hmac.compare_digest(key.digest, digest) else None


def rate_key(digest: bytes) -> str:
    """The Redis key of the requests of an API key within the last minute."""
    return f"{EVENT_RATE}{digest[:16].hex()}"
