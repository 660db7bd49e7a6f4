"""Accepted events, their ids, and the results of reading a body (contract 7).

The canonical envelope is the JSON `{"event":…,"timestamp":…,"identity":{…},"context":{…}}` in UTF-8
without whitespace. The keys of `identity`, of `context` and of every object in it are sorted by
code point, known fields are never null, every value is in its stored form, and integral numbers up
to 2^53 have no fraction. Two requests with the same event therefore have the same bytes, so a retry
gets the same `eventId` without a lookup.
"""

from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct

from snapbid.events.fields import CORE
from snapbid.events.rulebook import FieldFinding, RejectedEvent

ID_PREFIX: Final = "ev1-"
"""The prefix of event ids, which changes whenever the derivation of ids changes."""

_ID_DIGITS: Final = 32
ID_LENGTH: Final = len(ID_PREFIX) + _ID_DIGITS

_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


class Product(Struct, frozen=True):
    """The product of an API key, and its presets, which always include `general.core`."""

    name: str
    presets: frozenset[str] = frozenset({CORE})


class AcceptedEvent(Struct, frozen=True, gc=False):
    """A valid event, normalised. `envelope`: the canonical JSON, as it will be stored."""

    event: str
    event_id: str
    occurred_at_ms: int
    client_user_id: str | None
    anonymous_id: str | None
    click_id: str | None
    envelope: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The decoded envelope: `event`, `timestamp`, `identity`, `context`."""
        document: dict[str, Any] = msgspec.json.decode(self.envelope)
        return document


class SingleResult(Struct, frozen=True):
    """A valid event, and in test mode its warnings."""

    event: AcceptedEvent
    warnings: list[FieldFinding]


class BatchResult(Struct, frozen=True):
    """The accepted events of a batch, their positions in it, and the rejected events.

    `rejected` is empty unless handling is lenient or the request is in test mode. `warnings` are
    collected in test mode only.
    """

    accepted: list[AcceptedEvent]
    positions: list[int]
    rejected: list[RejectedEvent]
    warnings: list[FieldFinding]


def canonical_envelope(
    event: str, timestamp: int, identity: dict[str, Any], context: dict[str, Any]
) -> bytes:
    """Encode the normalised parts of an event as its canonical envelope (see the module)."""
    return b'{"event":"%b","timestamp":%d,"identity":%b,"context":%b}' % (
        event.encode(),
        timestamp,
        _encode_sorted(identity),
        _encode_sorted(context),
    )


def accepted(
    product: bytes,
    event: str,
    timestamp: int,
    ids: tuple[str | None, str | None, str | None],
    envelope: bytes,
    key: str | None,
) -> AcceptedEvent:
    """Build the accepted event; `ids` are in the order of the fields of `AcceptedEvent`.

    The event's id is a hash of its product, name and `key`, separated by U+0000, which none of them
    can contain. `key`: the id of the transaction or bonus; None to hash the whole envelope instead.
    """
    unique = envelope if key is None else key.encode()
    digest = sha256(b"%b\0%b\0%b" % (product, event.encode(), unique)).hexdigest()
    return AcceptedEvent(event, ID_PREFIX + digest[:_ID_DIGITS], timestamp, *ids, envelope)
