"""The usual way of a valid event: one typed decode, the few rules that types cannot say, encode.

An event that this way does not take is not yet wrong: `examine` decides.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from snapbid.events import codes
from snapbid.events.catalog import EVENTS
from snapbid.events.fields import Event, Field, Kind
from snapbid.events.identity import event_id
from snapbid.events.outcomes import Accepted
from snapbid.events.structs import ENVELOPES, MAX_EXACT

Check = Callable[[Any], bool]
"""Takes a context: normalises it in place, False if a rule is broken or another look is needed."""

Decode = Callable[[bytes | Raw], Any]

_encode: Final = msgspec.json.Encoder().encode


class Plan(NamedTuple):
    """What is to be done with a decoded event: its name, its checks, what identifies it."""

    name: str
    name_bytes: bytes
    checks: tuple[Check, ...]
    key: Callable[[Any], str] | None


def read(raw: bytes, decode: Decode, product: bytes, latest_ms: int) -> Accepted | None:
    """Read one event, not later than `latest_ms`; None if this way does not take it.

    `raw` is UTF-8 without the escapes of `decode.SUSPECT`. Equal numbers of colons mean that no
    key is given twice: a colon stands after each key, and the strings keep theirs. A null would
    have a colon more, too, so that it is not even tried.
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
    envelope = _encode(event)
    if envelope.count(b":") != raw.count(b":"):
        return None
    return accepted(event, plan, product, envelope)


def normalise(event: Any, plan: Plan) -> bool:
    """Bring a decoded event into its stored form; False if a rule is broken."""
    context = event.context
    for check in plan.checks:
        if not check(context):
            return False
    identity = event.identity
    return identity.client_user_id is not None or identity.anonymous_id is not None


def accepted(event: Any, plan: Plan, product: bytes, envelope: bytes) -> Accepted:
    """The outcome of a normalised event with its canonical envelope."""
    name, name_bytes, _, key = plan
    made = envelope if key is None else key(event.context).encode()
    identity = event.identity
    return Accepted(
        name,
        event_id(product, name_bytes, made),
        event.timestamp,
        identity.client_user_id,
        identity.anonymous_id,
        identity.click_id,
        envelope,
    )


def _ip(context: Any) -> bool:
    address = context.ip_address
    return address is None or codes.is_ip(address)


def _currency(context: Any) -> bool:
    given = context.currency
    if given is None:
        return True
    code = codes.currency(given, crypto=context.is_crypto is True)
    if code is None:
        return False
    if code is not given:
        context.currency = code
    return True


def _numbers(names: tuple[str, ...]) -> Check:
    def check(context: Any) -> bool:
        for name in names:
            value = getattr(context, name)
            if value.__class__ is float and value.is_integer() and abs(value) <= MAX_EXACT:
                setattr(context, name, int(value))
        return True

    return check


def _mapped(name: str, find: Callable[[str], str | None]) -> Check:
    """Replace a value by what it is stored as; None of `find` breaks the rule."""

    def check(context: Any) -> bool:
        given = getattr(context, name)
        if given is None:
            return True
        stored = find(given)
        if stored is None:
            return False
        setattr(context, name, stored)
        return True

    return check


def _digest(text: str) -> str | None:
    rule, stored = codes.digest(text)
    return stored if rule is None else None


def _inside(group: str, checks: tuple[Check, ...]) -> Check:
    def check(context: Any) -> bool:
        inner = getattr(context, group)
        return inner is None or all(one(inner) for one in checks)

    return check


def _with(needed: str, totals: tuple[str, ...]) -> Check:
    def check(context: Any) -> bool:
        return getattr(context, needed) is not None or all(
            getattr(context, total) is None for total in totals
        )

    return check


def _check_of(field: Field) -> Check | None:
    match field.kind:
        case Kind.IP:
            return _ip
        case Kind.CURRENCY:
            return _currency
        case Kind.COUNTRY:
            return _mapped(field.leaf, codes.country)
        case Kind.CALLING_CODE:
            return _mapped(field.leaf, codes.calling_code)
        case Kind.HASH:
            return _mapped(field.leaf, _digest)
        case Kind.CHOICE if field.stored:
            return _mapped(
                field.leaf,
                (dict(zip(field.values, field.values, strict=True)) | dict(field.stored)).get,
            )
    return None


def _checks(event: Event) -> tuple[Check, ...]:
    groups: dict[str, list[Check]] = {}
    for field in event.context_fields():
        check = _check_of(field)
        if check is not None:
            groups.setdefault(field.parent, []).append(check)
    own = groups.pop("context")
    numbers = tuple(one.leaf for one in event.fields if one.kind is Kind.NUMBER)
    if numbers:
        own.append(_numbers(numbers))
    own += [_with(needed, totals) for needed, totals in event.required_with.items()]
    own += [
        _inside(parent.removeprefix("context."), tuple(checks)) for parent, checks in groups.items()
    ]
    return tuple(own)


PLANS: Final[dict[type, Plan]] = {
    ENVELOPES[name]: Plan(
        name, name.encode(), _checks(event), attrgetter(event.key) if event.key else None
    )
    for name, event in EVENTS.items()
}
