"""Strict JSON for the event endpoints: RFC 8259 in UTF-8, without ambiguities.

JSON is refused (`malformed_json`) for invalid UTF-8, NaN or Infinity, a duplicate key in an
object, U+0000, unpaired surrogates, or nesting deeper than `MAX_DEPTH`. A leading byte order mark
is skipped. The refusal gives the position of a syntax error in bytes, from 0, and the index of its
event in a batch (`locate`). Numbers beyond the range of a double become infinite, so a violation
can name the field; integers beyond 64 bits become the nearest double.
"""

import json
import re
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import Raw, defstruct

MAX_DEPTH: Final = 32
"""The deepest nesting of objects and lists, envelope included; a batch's array does not count."""

MAX_BYTES: Final = 64 << 10
MAX_VALUES: Final = 2_000
"""The most values that one event may have, since others wait while it is read; see `is_large`."""

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark in UTF-8."""

ESCAPE: Final = b"\\u"
SUSPECT: Final = re.compile(rb"\\u(?:0000|003[aA]|0040|[dD][89a-fA-F])")
"""Escapes that may encode U+0000, an unpaired surrogate, a colon, or an @."""

_INTEGERS: Final = range(-(2**63), 2**64)  # which msgspec encodes
_MAX_INTEGER_DIGITS: Final = 400  # a double has at most 309
_MANY_COMMAS: Final = 100_000

_decode_array: Final = msgspec.json.Decoder(list[Raw]).decode


class Malformed(Exception):
    """The text is not acceptable JSON; the message says why, without quoting the text.

    `index` is the event's position in a batch, if known.
    """

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason)
        self.index = index


class NotArray(Exception):
    """The text is JSON, but not an array."""


class TooMany(Exception):
    """The array has more elements than allowed."""


def check_utf8(body: bytes) -> None:
    """Raise Malformed if the body is not UTF-8; call this before decoding anything."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"it is not UTF-8 at byte {error.start}") from None


def elements(body: bytes, limit: int) -> list[Raw]:
    """Split an array into its elements, as undecoded text.

    Raises Malformed (see `locate`), NotArray, and TooMany for more than `limit`. A large body that
    is not an array raises NotArray, even if malformed.
    """
    if body.count(b",") > _MANY_COMMAS and _is_longer(body, limit):
        raise TooMany
    try:
        rows = _decode_array(body)
    except msgspec.ValidationError:
        if not is_large(body):
            decode_strictly(body)
        raise NotArray from None
    except (msgspec.DecodeError, RecursionError):
        raise Malformed("it has a syntax error") from None
    if len(rows) > limit:
        raise TooMany
    return rows


def _is_longer(body: bytes, limit: int) -> bool:
    """Return whether an array has more than `limit` elements, without decoding them all."""
    try:
        return bool(getattr(msgspec.json.decode(body, type=_row(limit)), f"e{limit}"))
    except (msgspec.DecodeError, RecursionError):
        return False


@cache
def _row(limit: int) -> type[msgspec.Struct]:
    """Define a struct for the first `limit` + 1 elements of an array."""
    fields = [(f"e{index}", Raw, Raw(b"")) for index in range(limit + 1)]
    return defstruct("Row", fields, array_like=True, gc=False)


def is_large(text: bytes) -> bool:
    """Return whether JSON text is larger than one event may be.

    Commas and opening brackets bound the number of values. Those within strings also count, since
    excluding them would take as long as decoding the text.
    """
    if is_long(text):
        return True
    return text.count(b",") + text.count(b"[") + text.count(b"{") > MAX_VALUES


def is_long(text: bytes) -> bool:
    """Return whether text, without surrounding white space, is longer than an event may be."""
    return len(text) > MAX_BYTES and len(text.strip(_WHITE)) > MAX_BYTES


def decode_strictly(text: bytes, skipped: int = 0) -> Any:
    """Decode JSON text by the rules of this module. Raises Malformed.

    Positions in the message include the `skipped` bytes before the text.
    """
    try:
        document = _STRICT.decode(text.decode())
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise _syntax(error.doc, error.pos, None, skipped) from None
    except ValueError:  # an integer with too many digits, say
        raise Malformed("it has a syntax error") from None
    if _may_break(text):
        _check(document, 0)
    return document


def locate(body: bytes, skipped: int = 0) -> Malformed | None:
    """Return the error in a malformed batch, with its event's position; None if none is found.

    Byte positions include the `skipped` bytes before the body.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        before = locate(body[: error.start])
        reason = f"it is not UTF-8 at byte {error.start + skipped}"
        return Malformed(reason, before.index if before is not None else None)
    at = _after_blanks(text, 0)
    if not text.startswith("[", at):
        return None
    index, at = 0, _after_blanks(text, at + 1)
    while not text.startswith("]", at) or index > 0:
        try:
            at = _after_blanks(text, _end_of_element(text, at))
        except RecursionError:
            return _too_deep(index)
        except json.JSONDecodeError as error:
            return _syntax(text, error.pos, index, skipped)
        except Malformed as reason:
            return Malformed(str(reason), index)
        if text.startswith("]", at):
            break
        if not text.startswith(",", at):
            return _syntax(text, at, index, skipped)
        index, at = index + 1, _after_blanks(text, at + 1)
    at = _after_blanks(text, at + 1)
    return _syntax(text, at, None, skipped) if at < len(text) else None


def _end_of_element(text: str, start: int) -> int:
    """Return the end of the element at `start`. Raises Malformed or JSONDecodeError."""
    _, end = _STRICT.raw_decode(text, start)
    element = text[start:end].encode()
    if _may_break(element) and not is_large(element):
        decode_strictly(element)
    return end


def _syntax(text: str, at: int, index: int | None, skipped: int) -> Malformed:
    where = len(text[:at].encode(errors="surrogatepass")) + skipped
    return Malformed(f"it has a syntax error at byte {where}", index)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _may_break(raw: bytes) -> bool:
    """Return whether JSON text may break a rule that decoding alone does not check."""
    return raw.count(b"{") + raw.count(b"[") > MAX_DEPTH or SUSPECT.search(raw) is not None


def _too_deep(index: int | None = None) -> Malformed:
    return Malformed(f"it is nested deeper than {MAX_DEPTH} levels", index)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Malformed("a key occurs twice in one object")
    return members


def _integer(digits: str) -> int | float:
    if len(digits) > _MAX_INTEGER_DIGITS:
        return float("-inf") if digits[0] == "-" else float("inf")
    value = int(digits)
    return value if value in _INTEGERS else float(digits)


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
        raise Malformed("a string contains an unpaired surrogate") from None


_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_WHITE: Final = b" \t\n\r"
_STRICT: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant
)
