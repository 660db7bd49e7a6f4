"""The canonical envelope of an event, and its id (contract 7, deduplication by construction).

Canonical is the JSON `{"event":…,"timestamp":…,"identity":{…},"context":{…}}` in UTF-8 without
blanks, the keys of `identity` and of `context`, and of every object in it, sorted by code point,
without nulls in known places, with every value in the form in which it is stored, integral numbers
up to 2^53 without a fraction. Two requests that mean the same event have the same bytes.
"""

from hashlib import sha256
from typing import Any, Final

import msgspec

ID_PREFIX: Final = "ev1-"
"""Changes when the derivation does."""

_DIGITS: Final = 32
_sorted: Final = msgspec.json.Encoder(order="sorted").encode


def envelope(
    event: str, timestamp: int, identity: dict[str, Any], context: dict[str, Any]
) -> bytes:
    """The canonical envelope of normalised parts."""
    return b'{"event":"%b","timestamp":%d,"identity":%b,"context":%b}' % (
        event.encode(),
        timestamp,
        _sorted(identity),
        _sorted(context),
    )


def event_id(product: bytes, event: bytes, key: bytes) -> str:
    """`ev1-` and 32 hexadecimal digits of the SHA-256 of product, event and key.

    The key is the transaction's or bonus's id, or else the canonical envelope. None of the parts
    can have U+0000, which therefore separates them.
    """
    return ID_PREFIX + sha256(b"%b\0%b\0%b" % (product, event, key)).hexdigest()[:_DIGITS]
