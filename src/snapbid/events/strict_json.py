"""JSON as event endpoints read it: RFC 8259 in UTF-8, without anything ambiguous.

A body is refused as a whole (`malformed_json`) for invalid UTF-8, a byte order mark, NaN or
Infinity, a key given twice in one object, U+0000, lone surrogates, or nesting deeper than
`MAX_DEPTH`. Numbers beyond the range of a double become infinite, so that the field can be named;
integers beyond 64 bits become the nearest double.
"""

import json
import re
from typing import Any, Final

import msgspec
from msgspec import Raw, defstruct

MAX_DEPTH: Final = 32
"""Nesting of objects and lists, the envelope included; the array of a batch does not count."""

SUSPECT: Final = re.compile(rb"\\u(?:0000|003[aA]|[dD][89a-fA-F])")
"""Escapes that may hide U+0000, half a surrogate pair, or a colon."""

_MAX_INTEGER: Final = 2**63 - 1
_MAX_INTEGER_DIGITS: Final = 400  # a double has at most 309
_MANY_COMMAS: Final = 100_000

_decode_array: Final = msgspec.json.Decoder(list[Raw]).decode


class Malformed(Exception):
    """The text is not acceptable JSON; the message says why, without quoting it."""


class NotArray(Exception):
    """The text is JSON, but not an array."""


class TooMany(Exception):
    """The array has more elements than allowed."""


def check_utf8(body: bytes) -> None:
    """Raise Malformed if the body is not UTF-8; call it before anything is decoded."""
    try:
        body.decode()
    except UnicodeDecodeError:
        raise Malformed("it is not UTF-8") from None


def elements(body: bytes, limit: int) -> list[Raw]:
    """The elements of an array, each as its undecoded text.

    Raises Malformed, NotArray, and TooMany for more than `limit`.
    """
    if body.count(b",") > _MANY_COMMAS and _is_longer(body, limit):
        raise TooMany
    try:
        rows = _decode_array(body)
    except msgspec.ValidationError:
        decode_strictly(body)
        raise NotArray from None
    except (msgspec.DecodeError, RecursionError):
        raise _malformed(body) from None
    if len(rows) > limit:
        raise TooMany
    return rows


def _is_longer(body: bytes, limit: int) -> bool:
    """Whether an array has more elements, without creating an object for each of them."""
    names = [f"e{index}" for index in range(limit + 1)]
    row = defstruct("Row", [(name, Raw, Raw(b"")) for name in names], array_like=True, gc=False)
    try:
        return bool(getattr(msgspec.json.decode(body, type=row), names[-1]))
    except (msgspec.DecodeError, RecursionError):
        return False


def decode_strictly(text: bytes | Raw) -> Any:
    """Decode a text under all the rules above. Raises Malformed."""
    raw = bytes(text)
    try:
        document = json.loads(
            raw.decode(),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_constant=_constant,
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise Malformed("it has a syntax error") from None
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH or SUSPECT.search(raw):
        _check(document, 0)
    return document


def _malformed(body: bytes) -> Malformed:
    """The most exact reason why a body could not be split into elements."""
    try:
        decode_strictly(body)
    except Malformed as reason:
        return reason
    return Malformed("it has a syntax error")


def _too_deep() -> Malformed:
    return Malformed(f"it is nested deeper than {MAX_DEPTH} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Malformed("a key occurs twice in one object")
    return members


def _integer(digits: str) -> int | float:
    if len(digits) > _MAX_INTEGER_DIGITS:
        return float("-inf") if digits[0] == "-" else float("inf")
    value = int(digits)
    return value if -_MAX_INTEGER <= value <= _MAX_INTEGER else float(digits)


def _constant(_: str) -> float:
    raise Malformed("it contains NaN or Infinity")


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str):
        _check_string(value)
    elif isinstance(value, dict):
        if depth >= MAX_DEPTH:
            raise _too_deep()
        for key, member in value.items():
            _check_string(key)
            _check(member, depth + 1)
    elif isinstance(value, list):
        if depth >= MAX_DEPTH:
            raise _too_deep()
        for item in value:
            _check(item, depth + 1)


def _check_string(text: str) -> None:
    if "\0" in text:
        raise Malformed("a string contains U+0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Malformed("a string contains half a surrogate pair") from None
