"""Checks for field values, one for each kind of value (contract 7).

A check returns the rule that the value breaks, if any, and the form in which to store it. `fast`
and `examine` share the checks that take a string. `examine`, which names broken rules, gets a
reader for each field from `reader_of`.
"""

import math
import re
import socket
from collections.abc import Callable
from typing import Any, Final

from snapbid.events.fields import MAX_EXACT, MAX_MS, MAX_TEXT, MIN_MS, Field, Kind
from snapbid.events.personal import is_email, is_unhashed
from snapbid.reference import calling_codes, countries, currencies

EMPTY_HASH: Final = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of the empty string."""

HASH_SUFFIX: Final = "_hash"

_CRYPTO: Final = re.compile(r"[A-Z0-9]{2,10}")
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_NUMBERS: Final = (int, float)  # of JSON; a flag is not a number

Verdict = tuple[str | None, Any]
"""The broken rule or None, and the stored value."""

Reader = Callable[[Any, dict[str, Any]], Verdict]
"""Judges a value that is not null, given its enclosing object (a currency needs `is_crypto`)."""

country_code = countries.alpha2
calling_code = calling_codes.calling_code


def is_ip(text: str) -> bool:
    """Return whether text is a dotted-decimal IPv4 address or an IPv6 address without a zone."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, ValueError):
        return False
    return True


def currency_code(text: str, *, crypto: bool) -> str | None:
    """Return an ISO 4217 code or, with `crypto`, any symbol, in upper case; None if invalid."""
    if not crypto:
        return currencies.code(text)
    upper = text.upper() if text.isascii() else ""
    return upper if _CRYPTO.fullmatch(upper) else None


def read_hash(text: str) -> tuple[str | None, str]:
    """Return the rule that a hash breaks (or None), and the hash in lower case."""
    if _SHA256.fullmatch(text):
        lower = text.lower()
        return ("empty_hash" if lower == EMPTY_HASH else None), lower
    return ("plaintext_pii" if is_unhashed(text) else "sha256_hex"), text


def normalise_number(number: float) -> float:
    """Convert a finite number to its stored form: integral numbers up to 2^53 become integers."""
    if abs(number) > MAX_EXACT:
        return float(number)
    return int(number) if number == int(number) else number


def text_rule(value: Any) -> str | None:
    """Return the rule for texts that a value breaks: `type`, `empty` or `max_length`.

    Returns None if the value is valid.
    """
    if not isinstance(value, str):
        return "type"
    if not value:
        return "empty"
    return "max_length" if len(value) > MAX_TEXT else None


def read_time(value: Any) -> Verdict:
    """Read a time in epoch milliseconds: a whole number of 13 digits."""
    if value.__class__ not in _NUMBERS:
        return "type", value
    if math.isinf(value):
        return "out_of_range", value
    if not MIN_MS <= value < MAX_MS + 1:
        return "not_milliseconds", value
    return (None, int(value)) if value == int(value) else ("not_integer", value)


def reader_of(field: Field) -> Reader:
    """Return the function that checks and converts a field's values."""
    match field.kind:
        case Kind.FLAG:
            return _flag
        case Kind.NUMBER:
            return _signed_number if field.signed else _number
        case Kind.TIME:
            return _time
        case Kind.CURRENCY:
            return _currency
        case Kind.CHOICE:
            return _choice(field)
        case Kind.TEXT if field.parent != "identity":
            return _text_of_context
    return _TEXT_READERS[field.kind]


def _time(value: Any, _: dict[str, Any]) -> Verdict:
    return read_time(value)


def _flag(value: Any, _: dict[str, Any]) -> Verdict:
    return (None if isinstance(value, bool) else "type"), value


def _signed_number(value: Any, _: dict[str, Any]) -> Verdict:
    if value.__class__ not in _NUMBERS:
        return "type", value
    return ("out_of_range", value) if math.isinf(value) else (None, normalise_number(value))


def _number(value: Any, context: dict[str, Any]) -> Verdict:
    rule, stored = _signed_number(value, context)
    return ("min", value) if rule is None and stored < 0 else (rule, stored)


def _text(value: Any, _: dict[str, Any]) -> Verdict:
    return text_rule(value), value


def _text_of_context(value: Any, _: dict[str, Any]) -> Verdict:
    rule = text_rule(value)
    if rule is None and is_email(value):
        rule = "plaintext_pii"
    return rule, value


def _currency(value: Any, context: dict[str, Any]) -> Verdict:
    rule = text_rule(value)
    if rule is not None:
        return rule, value
    crypto = context.get("is_crypto")
    code = currency_code(value, crypto=crypto is True)
    if code is None and crypto is not None and not isinstance(crypto, bool):
        # `is_crypto` itself is invalid and reported as such: accept either reading of the code.
        code = currency_code(value, crypto=True)
    return ("currency" if code is None else None), code


def _choice(field: Field) -> Reader:
    stored_forms = field.stored_forms

    def read(value: Any, _: dict[str, Any]) -> Verdict:
        rule = text_rule(value)
        if rule is not None:
            return rule, value
        stored = stored_forms.get(value)
        return ("enum" if stored is None else None), stored

    return read


def _hash(value: Any, _: dict[str, Any]) -> Verdict:
    rule = text_rule(value)
    return read_hash(value) if rule is None else (rule, value)


def _ip(value: Any, _: dict[str, Any]) -> Verdict:
    rule = text_rule(value)
    if rule is None and not is_ip(value):
        rule = "ip_address"
    return rule, value


def _code(normalise: Callable[[str], str | None], broken_rule: str) -> Reader:
    def read(value: Any, _: dict[str, Any]) -> Verdict:
        rule = text_rule(value)
        if rule is not None:
            return rule, value
        code = normalise(value)
        return (broken_rule if code is None else None), code

    return read


_TEXT_READERS: Final[dict[Kind, Reader]] = {
    Kind.TEXT: _text,
    Kind.HASH: _hash,
    Kind.IP: _ip,
    Kind.COUNTRY: _code(country_code, "country_code"),
    Kind.CALLING_CODE: _code(calling_code, "calling_code"),
}
