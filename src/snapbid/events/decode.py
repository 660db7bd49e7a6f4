"""JSON as this room reads it: RFC 8259 in UTF-8, and nothing that could mean two things.

Refused as a whole (`malformed_json`): invalid UTF-8 anywhere, a byte order mark, NaN and Infinity,
a key given twice in one object, U+0000, lone surrogates, nesting deeper than `MAX_DEPTH`. Numbers
beyond a double become infinite, so that the field can be named; integers beyond 64 bits become the
nearest double.
"""

import json
import re
from typing import Any, Final

import msgspec
from msgspec import Raw, defstruct

MAX_DEPTH: Final = 32
"""Objects and lists inside each other, those of the envelope included (a batch's array is not)."""

SUSPECT: Final = re.compile(rb"\\u(?:0000|003[aA]|[dD][89a-fA-F])")
"""Escapes that may hide U+0000, half a surrogate pair, or a colon."""

_MAX_INTEGER: Final = 2**63 - 1
_LONGEST_INTEGER: Final = 400  # digits; a double has at most 309
_COMMAS: Final = 100_000

_rows: Final = msgspec.json.Decoder(list[Raw])


class Malformed(Exception):
    """The text is no JSON that is read here; the message says why, without quoting it."""


class NotArray(Exception):
    """The text is JSON, but no array."""


class TooMany(Exception):
    """The array has more elements than are allowed."""


def check_text(body: bytes) -> None:
    """Raise Malformed if the body is not UTF-8; to be called before anything is decoded."""
    try:
        body.decode()
    except UnicodeDecodeError:
        raise Malformed("it is not UTF-8") from None


def elements(body: bytes, most: int) -> list[Raw]:
    """The elements of an array, each as its text, not yet decoded.

    Raises Malformed, NotArray, and TooMany for more than `most`.
    """
    if body.count(b",") > _COMMAS and _longer(body, most):
        raise TooMany
    try:
        rows = _rows.decode(body)
    except msgspec.ValidationError:
        document(body)
        raise NotArray from None
    except (msgspec.DecodeError, RecursionError):
        raise _malformed(body) from None
    if len(rows) > most:
        raise TooMany
    return rows


def _longer(body: bytes, most: int) -> bool:
    """Whether an array has more elements, found without making an object of each."""
    names = [f"e{place}" for place in range(most + 1)]
    row = defstruct("Row", [(name, Raw, Raw(b"")) for name in names], array_like=True, gc=False)
    try:
        return bool(getattr(msgspec.json.decode(body, type=row), names[-1]))
    except (msgspec.DecodeError, RecursionError):
        return False


def document(text: bytes | Raw) -> Any:
    """Decode a text whole, with every rule above. Raises Malformed."""
    raw = bytes(text)
    try:
        made = json.loads(
            raw.decode(),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_constant=_constant,
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise Malformed("it is not JSON") from None
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH or SUSPECT.search(raw):
        _walk(made, 0)
    return made


def _malformed(body: bytes) -> Malformed:
    """Why a body that could not be split is malformed, as exactly as can be said."""
    try:
        document(body)
    except Malformed as reason:
        return reason
    return Malformed("it is not JSON")


def _too_deep() -> Malformed:
    return Malformed(f"it is nested deeper than {MAX_DEPTH} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise Malformed("a key stands twice in one object")
    return made


def _integer(digits: str) -> int | float:
    if len(digits) > _LONGEST_INTEGER:
        return float("-inf") if digits[0] == "-" else float("inf")
    value = int(digits)
    return value if -_MAX_INTEGER <= value <= _MAX_INTEGER else float(digits)


def _constant(_: str) -> float:
    raise Malformed("it has NaN or Infinity, which are not JSON")


def _walk(value: Any, depth: int) -> None:
    if isinstance(value, str):
        _check_string(value)
    elif isinstance(value, dict):
        if depth >= MAX_DEPTH:
            raise _too_deep()
        for key, inner in value.items():
            _check_string(key)
            _walk(inner, depth + 1)
    elif isinstance(value, list):
        if depth >= MAX_DEPTH:
            raise _too_deep()
        for inner in value:
            _walk(inner, depth + 1)


def _check_string(text: str) -> None:
    if "\0" in text:
        raise Malformed("a string has U+0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Malformed("a string has half a surrogate pair") from None
