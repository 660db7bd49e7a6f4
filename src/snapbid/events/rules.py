"""The rules of a field's value, one reader for each kind (contract 7, types and codes)."""

import math
from collections.abc import Callable
from typing import Any, Final

from snapbid.events import codes
from snapbid.events.fields import MAX_MS, MAX_TEXT, MIN_MS, Field, Kind
from snapbid.events.structs import MAX_EXACT

Verdict = tuple[str | None, Any]
"""The rule that is broken or None, and the value as it is stored."""


def plain(number: float) -> float:
    """A finite number as it is stored: integral ones up to 2^53 as integers, the rest doubles."""
    if abs(number) > MAX_EXACT:
        return float(number)
    return int(number) if number == int(number) else number


Reader = Callable[[Any, dict[str, Any]], Verdict]
"""Judges a value that is not null; the dictionary is where a currency finds `is_crypto`."""


def reader(field: Field) -> Reader:
    """The reader of a field's values."""
    match field.kind:
        case Kind.FLAG:
            return _flag
        case Kind.NUMBER:
            return _signed if field.signed else _number
        case Kind.TIME:
            return _time
        case Kind.CURRENCY:
            return _currency
        case Kind.CHOICE:
            return _choice(field)
    return _TEXTS[field.kind]


def text(value: Any) -> str | None:
    """The rule that a value breaks as a text, or None."""
    if not isinstance(value, str):
        return "type"
    if not value:
        return "empty"
    return "max_length" if len(value) > MAX_TEXT else None


def moment(value: Any) -> Verdict:
    """A time in epoch milliseconds: 13 digits, no fraction other than zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "type", value
    if math.isinf(value):
        return "out_of_range", value
    if not MIN_MS <= value < MAX_MS + 1:
        return "not_milliseconds", value
    return (None, int(value)) if value == int(value) else ("not_integer", value)


def _time(value: Any, _: dict[str, Any]) -> Verdict:
    return moment(value)


def _flag(value: Any, _: dict[str, Any]) -> Verdict:
    return (None if isinstance(value, bool) else "type"), value


def _signed(value: Any, _: dict[str, Any]) -> Verdict:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "type", value
    return ("out_of_range", value) if math.isinf(value) else (None, plain(value))


def _number(value: Any, context: dict[str, Any]) -> Verdict:
    rule, stored = _signed(value, context)
    return ("min", value) if rule is None and stored < 0 else (rule, stored)


def _text(value: Any, _: dict[str, Any]) -> Verdict:
    return text(value), value


def _currency(value: Any, context: dict[str, Any]) -> Verdict:
    rule = text(value)
    if rule is not None:
        return rule, value
    crypto = context.get("is_crypto")
    code = codes.currency(value, crypto=crypto is True)
    if code is None and crypto is not None and not isinstance(crypto, bool):
        # The flag itself is wrong, so that either reading may be the one that is meant.
        code = codes.currency(value, crypto=True)
    return ("currency" if code is None else None), code


def _choice(field: Field) -> Reader:
    stored = {value: field.stored.get(value, value) for value in field.values}

    def read(value: Any, _: dict[str, Any]) -> Verdict:
        rule = text(value)
        if rule is not None:
            return rule, value
        found = stored.get(value)
        return ("enum" if found is None else None), found

    return read


def _hash(value: Any, _: dict[str, Any]) -> Verdict:
    rule = text(value)
    return codes.digest(value) if rule is None else (rule, value)


def _ip(value: Any, _: dict[str, Any]) -> Verdict:
    rule = text(value)
    if rule is None and not codes.is_ip(value):
        rule = "ip_address"
    return rule, value


def _coded(find: Callable[[str], str | None], broken: str) -> Reader:
    def read(value: Any, _: dict[str, Any]) -> Verdict:
        rule = text(value)
        if rule is not None:
            return rule, value
        code = find(value)
        return (broken if code is None else None), code

    return read


_TEXTS: Final[dict[Kind, Reader]] = {
    Kind.TEXT: _text,
    Kind.HASH: _hash,
    Kind.IP: _ip,
    Kind.COUNTRY: _coded(codes.country, "country_code"),
    Kind.CALLING_CODE: _coded(codes.calling_code, "calling_code"),
}
