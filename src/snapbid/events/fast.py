"""The fast path for valid events: a typed decode, the few checks beyond types, and an encode.

It reads events that have only the catalog's fields, none of them null; `examine` reads all others.
It takes a third as long as an examination (measured by `bench/micro/test_events.py`, with a batch
and with a single event).

The structs are a tagged union on `event`. They are strict: an unknown field, a null in a required
field or an integral float as a time fails the decode. Their fields are in sorted order, so that the
encoded struct is the canonical envelope.
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, defstruct

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import MAX_EXACT, MAX_MS, MAX_TEXT, MIN_MS, Event, Field, Kind, Level
from snapbid.events.outcomes import AcceptedEvent, accepted
from snapbid.events.values import calling_code, country_code, currency_code, is_ip, read_hash

Check = Callable[[Any], bool]
"""Normalises a context in place; returns False if a rule is broken or `examine` must decide."""

Decode = Callable[[bytes], Any]

_encode: Final = msgspec.json.Encoder().encode


class EventPlan(NamedTuple):
    """An event's name, its checks after decoding, and a function for its deduplication key."""

    name: str
    checks: tuple[Check, ...]
    key: Callable[[Any], str] | None


def read(raw: bytes, decode: Decode, product: bytes, latest_ms: int) -> AcceptedEvent | None:
    """Read an event dated `latest_ms` or earlier; None if `examine` must decide.

    `raw` is UTF-8 without the escapes of `strict_json.SUSPECT`. Encoding the event again drops
    repeated keys and their colons, but keeps colons within strings. So if `raw` and the canonical
    envelope have the same number of colons, no key occurs twice. Nulls would be dropped too, so
    events with nulls are left to `examine`.
    """
    if raw.find(b"null") >= 0:  # faster than `in`
        return None
    try:
        event = decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    name, checks, key_of = _PLANS[event.__class__]
    context, identity = event.context, event.identity
    ids = identity.client_user_id, identity.anonymous_id, identity.click_id
    if event.timestamp > latest_ms or ids[0] is ids[1] is None:
        return None
    for check in checks:
        if not check(context):
            return None
    at_signs = raw.count(b"@")
    if at_signs and at_signs != sum(id.count("@") for id in ids if id is not None):
        return None  # an @ outside the user's ids may be part of an email address
    envelope = _encode(event)
    if envelope.count(b":") != raw.count(b":"):
        return None
    key = key_of(context) if key_of is not None else None
    return accepted(product, name, event.timestamp, ids, envelope, key)


# -- the checks of an event -----------------------------------------------------------------------


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
    """Make a check that turns integral floats in the named fields into integers."""

    def check(context: Any) -> bool:
        for name in names:
            value = getattr(context, name)
            if value.__class__ is float and value.is_integer() and abs(value) <= MAX_EXACT:
                setattr(context, name, int(value))
        return True

    return check


def _mapping_check(name: str, stored_form: Callable[[str], str | None]) -> Check:
    """Make a check that replaces a value with its stored form, and fails if there is none."""

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
    """Make a check that applies checks to the object `group` of the context, if it is there."""

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
            return _mapping_check(field.leaf, field.stored_forms.get)
    return None


def _checks_of(event: Event) -> tuple[Check, ...]:
    objects = {
        key: [check for field in fields if (check := _check_of(field)) is not None]
        for key, fields in event.context_objects().items()
    }
    checks = objects.pop("context")
    numbers = tuple(field.leaf for field in event.fields if field.kind is Kind.NUMBER)
    if numbers:
        checks.append(_numbers_check(numbers))
    checks += [_required_with_check(name, totals) for name, totals in event.required_with.items()]
    checks += [_group_check(key, tuple(inner)) for key, inner in objects.items() if inner]
    return tuple(checks)


# -- the structs of an event ----------------------------------------------------------------------

_Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
_Time = Annotated[int, Meta(ge=MIN_MS, le=MAX_MS)]
_Number = Annotated[int, Meta(ge=0, le=MAX_EXACT)] | Annotated[float, Meta(ge=0)]
_SignedNumber = Annotated[int, Meta(ge=-MAX_EXACT, le=MAX_EXACT)] | float
_Hash = Annotated[str, Meta(min_length=64, max_length=64)]

_OPTIONS: Final[dict[str, Any]] = {
    "kw_only": True,
    "gc": False,
    "omit_defaults": True,
    "forbid_unknown_fields": True,
}


def _type_of(field: Field) -> Any:
    match field.kind:
        case Kind.CHOICE:
            return Literal[field.values]
        case Kind.NUMBER:
            return _SignedNumber if field.signed else _Number
        case Kind.FLAG:
            return bool
        case Kind.TIME:
            return _Time
        case Kind.HASH:
            return _Hash
    return _Text


def _struct(name: str, types: dict[str, tuple[Any, bool]], **options: Any) -> type[msgspec.Struct]:
    """Define a struct from each field's type and whether it is required."""
    fields = [
        (leaf, type_) if required else (leaf, type_ | None, None)
        for leaf, (type_, required) in sorted(types.items())
    ]
    return defstruct(name, fields, module=__name__, **_OPTIONS, **options)


def _types(fields: list[Field]) -> dict[str, tuple[Any, bool]]:
    return {field.leaf: (_type_of(field), field.level is Level.REQUIRED) for field in fields}


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _context(event: Event) -> type[msgspec.Struct]:
    name = _camel(event.name)
    objects = event.context_objects()
    types = _types(objects.pop("context"))
    for key, fields in objects.items():
        types[key] = (_struct(f"{name}{_camel(key)}", _types(fields)), False)
    return _struct(f"{name}Context", types)


def _envelope(event: Event) -> type[msgspec.Struct]:
    name = _camel(event.name)
    fields = [
        ("timestamp", _Time),
        ("identity", _struct(f"{name}Identity", _types(list(event.identity_fields())))),
        ("context", _context(event)),
    ]
    return defstruct(
        name, fields, module=__name__, tag_field="event", tag=event.name, **_OPTIONS
    )  # fmt: skip


_ENVELOPES: Final[dict[str, type[msgspec.Struct]]] = {
    name: _envelope(event) for name, event in EVENTS.items()
}
"""Name of an event -> the struct of its envelope."""

_PLANS: Final[dict[type, EventPlan]] = {
    _ENVELOPES[name]: EventPlan(
        name, _checks_of(event), attrgetter(event.key) if event.key else None
    )
    for name, event in EVENTS.items()
}


@cache
def decoder_for(presets: frozenset[str]) -> Decode:
    """Return a function that decodes the events of these presets, and fails for all others."""
    enabled = [_ENVELOPES[name] for name, event in EVENTS.items() if event.preset in presets]
    union: Any = enabled[0]
    for envelope in enabled[1:]:
        union = union | envelope
    return msgspec.json.Decoder(union).decode
