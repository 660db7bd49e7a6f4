"""The fast paths of a valid event: one typed decode, the few checks that types cannot do, encode.

`read` takes events that have nothing but the catalog's fields. `read_wide` also takes unknown
fields and nulls, which partners send routinely, so that they do not cost as much as a refusal. An
event that neither takes is not necessarily invalid: `examine` decides.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import MAX_EXACT, Event, Field, Kind
from snapbid.events.outcomes import AcceptedEvent, canonical_envelope, event_id
from snapbid.events.personal import is_key
from snapbid.events.structs import ENVELOPES
from snapbid.events.values import (
    HASH_SUFFIX,
    calling_code,
    country_code,
    currency_code,
    is_ip,
    read_hash,
)

Check = Callable[[Any], bool]
"""Normalises a context in place; False if a rule is broken or `examine` has to decide."""

Decode = Callable[[bytes | Raw], Any]

_ENVELOPE_KEYS: Final = frozenset(("event", "timestamp", "identity", "context"))
_IDENTITY_KEYS: Final = frozenset(("client_user_id", "anonymous_id", "click_id"))
_CONTEXT_KEYS: Final = {
    name: frozenset(field.path.split(".")[1] for field in event.context_fields())
    for name, event in EVENTS.items()
}

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class EventPlan(NamedTuple):
    """How a decoded event is finished: its name, its checks, and its deduplication key."""

    name: str
    name_bytes: bytes
    checks: tuple[Check, ...]
    key: Callable[[Any], str] | None


def read(raw: bytes, decode: Decode, product: bytes, latest_ms: int) -> AcceptedEvent | None:
    """Read an event dated `latest_ms` or earlier; None if this path does not take it.

    `raw` is UTF-8 without the escapes of `strict_json.SUSPECT`. If it has as many colons as the
    canonical envelope, no key is given twice: each key is followed by a colon, and strings keep
    theirs. A null would add a colon too, so an event with one is not even tried.
    """
    if b"null" in raw:
        return None
    try:
        event = decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    plan = PLANS[event.__class__]
    if event.timestamp > latest_ms or not normalise(event, plan):
        return None
    if b"@" in raw and _has_at_elsewhere(event.identity, raw):
        return None
    envelope = _encode(event)
    if envelope.count(b":") != raw.count(b":"):
        return None
    return accept(event, plan, product, envelope)


def read_wide(
    raw: bytes, presets: frozenset[str], product: bytes, latest_ms: int
) -> AcceptedEvent | None:
    """Read an event as `read` does, unknown fields and nulls included; None if not taken.

    Fields that the catalog does not have are set aside, the rest is converted to the typed struct,
    and the unknown fields of the context are put back.
    """
    try:
        document = _decode(raw)
        if not isinstance(document, dict) or _encode(document).count(b":") != raw.count(b":"):
            return None
        event = _read_document(document, presets, product, latest_ms)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if event is not None and b"@" in raw and _has_at_elsewhere(event, raw):
        return None
    return event


def _has_at_elsewhere(identity: Any, raw: bytes) -> bool:
    """Whether there is an @ elsewhere than in the user's ids, perhaps that of an email address."""
    left = raw.count(b"@")
    for id in (identity.client_user_id, identity.anonymous_id, identity.click_id):
        if id is not None:
            left -= id.count("@")
    return left != 0


def _read_document(
    document: dict[str, Any], presets: frozenset[str], product: bytes, latest_ms: int
) -> AcceptedEvent | None:
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
    known = _CONTEXT_KEYS[name]
    unknown = _unknown_fields(context, known)
    if (
        unknown is None
        or _has_nested(document, _ENVELOPE_KEYS)
        or _has_nested(identity, _IDENTITY_KEYS)
    ):
        return None
    typed = {
        "event": name,
        "timestamp": document.get("timestamp"),
        "identity": {key: value for key, value in identity.items() if key in _IDENTITY_KEYS},
        "context": {key: value for key, value in context.items() if key in known},
    }
    event: Any = msgspec.convert(typed, ENVELOPES[name])
    plan = PLANS[event.__class__]
    if event.timestamp > latest_ms or not normalise(event, plan):
        return None
    whole = msgspec.to_builtins(event.context) | unknown
    envelope = canonical_envelope(name, event.timestamp, msgspec.to_builtins(event.identity), whole)
    return accept(event, plan, product, envelope)


def _unknown_fields(context: dict[str, Any], known: frozenset[str]) -> dict[str, Any] | None:
    """The unknown fields as they are stored; None if `examine` has to judge one of them."""
    kept = {}
    for key, value in context.items():
        if key in known or value is None:
            continue
        if key.endswith(HASH_SUFFIX) or is_key(key) or not _is_plain(value):
            return None
        kept[key] = value
    return kept


def _is_plain(value: Any) -> bool:
    """Whether a value is stored unchanged, without looking inside it."""
    kind = value.__class__
    if kind is str or kind is bool:
        return True
    if kind is int:
        return bool(-MAX_EXACT <= value <= MAX_EXACT)
    return kind is float and not value.is_integer()


def _has_nested(members: dict[str, Any], known: frozenset[str]) -> bool:
    """Whether an unknown key holds a list or an object, which might be nested too deep."""
    return any(
        value.__class__ in (dict, list) for key, value in members.items() if key not in known
    )


def normalise(event: Any, plan: EventPlan) -> bool:
    """Bring a decoded event into its stored form; False if a rule is broken."""
    context = event.context
    for check in plan.checks:
        if not check(context):
            return False
    identity = event.identity
    return identity.client_user_id is not None or identity.anonymous_id is not None


def accept(event: Any, plan: EventPlan, product: bytes, envelope: bytes) -> AcceptedEvent:
    """The accepted form of a normalised event with its canonical envelope."""
    name, name_bytes, _, key_of = plan
    key = envelope if key_of is None else key_of(event.context).encode()
    identity = event.identity
    return AcceptedEvent(
        name,
        event_id(product, name_bytes, key),
        event.timestamp,
        identity.client_user_id,
        identity.anonymous_id,
        identity.click_id,
        envelope,
    )


def _check_ip(context: Any) -> bool:
    address = context.ip_address
    return address is None or is_ip(address)


def _check_currency(context: Any) -> bool:
    given = context.currency
    if given is None:
        return True
    code = currency_code(given, crypto=context.is_crypto is True)
    if code is None:
        return False
    if code is not given:
        context.currency = code
    return True


def _numbers_check(names: tuple[str, ...]) -> Check:
    """Turn integral floats into integers."""

    def check(context: Any) -> bool:
        for name in names:
            value = getattr(context, name)
            if value.__class__ is float and value.is_integer() and abs(value) <= MAX_EXACT:
                setattr(context, name, int(value))
        return True

    return check


def _mapping_check(name: str, stored_form: Callable[[str], str | None]) -> Check:
    """Replace a value by its stored form, which is None where the value breaks the rule."""

    def check(context: Any) -> bool:
        given = getattr(context, name)
        if given is None:
            return True
        stored = stored_form(given)
        if stored is None:
            return False
        setattr(context, name, stored)
        return True

    return check


def _stored_hash(text: str) -> str | None:
    rule, stored = read_hash(text)
    return stored if rule is None else None


def _group_check(group: str, checks: tuple[Check, ...]) -> Check:
    """Apply checks to an object inside the context."""

    def check(context: Any) -> bool:
        inner = getattr(context, group)
        return inner is None or all(check(inner) for check in checks)

    return check


def _required_with_check(required: str, totals: tuple[str, ...]) -> Check:
    def check(context: Any) -> bool:
        return getattr(context, required) is not None or all(
            getattr(context, total) is None for total in totals
        )

    return check


def _check_of(field: Field) -> Check | None:
    match field.kind:
        case Kind.IP:
            return _check_ip
        case Kind.CURRENCY:
            return _check_currency
        case Kind.COUNTRY:
            return _mapping_check(field.leaf, country_code)
        case Kind.CALLING_CODE:
            return _mapping_check(field.leaf, calling_code)
        case Kind.HASH:
            return _mapping_check(field.leaf, _stored_hash)
        case Kind.CHOICE if field.stored:
            stored_forms = dict(zip(field.values, field.values, strict=True)) | dict(field.stored)
            return _mapping_check(field.leaf, stored_forms.get)
    return None


def _checks_of(event: Event) -> tuple[Check, ...]:
    groups: dict[str, list[Check]] = {}
    for field in event.context_fields():
        check = _check_of(field)
        if check is not None:
            groups.setdefault(field.parent, []).append(check)
    checks = groups.pop("context")
    numbers = tuple(field.leaf for field in event.fields if field.kind is Kind.NUMBER)
    if numbers:
        checks.append(_numbers_check(numbers))
    checks += [_required_with_check(name, totals) for name, totals in event.required_with.items()]
    checks += [
        _group_check(parent.removeprefix("context."), tuple(inner))
        for parent, inner in groups.items()
    ]
    return tuple(checks)


PLANS: Final[dict[type, EventPlan]] = {
    ENVELOPES[name]: EventPlan(
        name, name.encode(), _checks_of(event), attrgetter(event.key) if event.key else None
    )
    for name, event in EVENTS.items()
}
