"""The way of a valid event with more in it than the catalog has: unknown fields, and nulls.

Partners send such events as a matter of course, so that they are not to cost what a refusal costs.
What the catalog does not have is set aside, the rest goes the fast way, and the unknown fields of
the context are put back. Anything but plain values, or a key that needs judging, is left to
`examine`.
"""

from typing import Any, Final

import msgspec

from snapbid.events import codes
from snapbid.events.catalog import EVENTS
from snapbid.events.fast import PLANS, accepted, normalise
from snapbid.events.identity import envelope
from snapbid.events.outcomes import Accepted
from snapbid.events.structs import ENVELOPES, MAX_EXACT

_PARTS: Final = frozenset(("event", "timestamp", "identity", "context"))
_IDENTITY: Final = frozenset(("client_user_id", "anonymous_id", "click_id"))
_KNOWN: Final = {
    name: frozenset(field.path.split(".")[1] for field in event.context_fields())
    for name, event in EVENTS.items()
}

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


def read(raw: bytes, presets: frozenset[str], product: bytes, latest_ms: int) -> Accepted | None:
    """Read one event as `fast.read` does; None if this way does not take it either."""
    try:
        document = _decode(raw)
        if not isinstance(document, dict) or _encode(document).count(b":") != raw.count(b":"):
            return None
        return _read(document, presets, product, latest_ms)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _read(
    document: dict[str, Any], presets: frozenset[str], product: bytes, latest_ms: int
) -> Accepted | None:
    """Raises msgspec.ValidationError."""
    name, identity, context = (
        document.get("event"),
        document.get("identity"),
        document.get("context"),
    )
    if not isinstance(name, str) or name not in EVENTS or EVENTS[name].preset not in presets:
        return None
    if not isinstance(identity, dict) or not isinstance(context, dict):
        return None
    known = _KNOWN[name]
    unknown = _beside(context, known)
    if unknown is None or _nested(document, _PARTS) or _nested(identity, _IDENTITY):
        return None
    typed = {
        "event": name,
        "timestamp": document.get("timestamp"),
        "identity": {key: value for key, value in identity.items() if key in _IDENTITY},
        "context": {key: value for key, value in context.items() if key in known},
    }
    event: Any = msgspec.convert(typed, ENVELOPES[name])
    plan = PLANS[event.__class__]
    if event.timestamp > latest_ms or not normalise(event, plan):
        return None
    whole = msgspec.to_builtins(event.context) | unknown
    canonical = envelope(name, event.timestamp, msgspec.to_builtins(event.identity), whole)
    return accepted(event, plan, product, canonical)


def _beside(context: dict[str, Any], known: frozenset[str]) -> dict[str, Any] | None:
    """The unknown fields as they are kept; None if one of them needs another look."""
    kept = {}
    for key, value in context.items():
        if key in known or value is None:
            continue
        if key.endswith(codes.HASH_SUFFIX) or codes.is_plaintext_key(key) or not _simple(value):
            return None
        kept[key] = value
    return kept


def _simple(value: Any) -> bool:
    """Whether a value is stored as it came, without a look inside."""
    kind = value.__class__
    if kind is str or kind is bool:
        return True
    if kind is int:
        return bool(-MAX_EXACT <= value <= MAX_EXACT)
    return kind is float and not value.is_integer()


def _nested(given: dict[str, Any], known: frozenset[str]) -> bool:
    """Whether there is a list or an object in what is not read: it might be nested too deep."""
    return any(value.__class__ in (dict, list) for key, value in given.items() if key not in known)
