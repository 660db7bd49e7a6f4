"""Breaks a valid bid request in every way that a client may come up with.

Each result is a pair of a name and a body. Any answer will do, as long as there is one.
"""

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]
Path = tuple[str | int, ...]

_MARK = "@@raw@@"

# Raw text, JSON or not, that replaces a value.
RAW_VALUES: dict[str, str] = {
    "an object": "{}",
    "an object of another kind": '{"a":{"b":[1]}}',
    "an empty list": "[]",
    "a list": '[1,"x",null,{}]',
    "a text": '"x"',
    "an empty text": '""',
    "a number as text": '"12"',
    "true": "true",
    "null": "null",
    "a negative number": "-7",
    "a fraction": "0.5",
    "a large integer": "9223372036854775808",
    "an integer of 5,000 digits": "9" * 5000,
    "5,000 digits as text": '"' + "9" * 5000 + '"',
    "1e400": "1e400",
    "-1e400": "-1e400",
    "a tiny number": "1e-400",
    "NaN": "NaN",
    "NaN as text": '"NaN"',
    "-Infinity": "-Infinity",
    "infinity as text": '"-inf"',
    "a leading zero": "012",
    "a bare word": "undefined",
    "an illegal escape": r'"\x41"',
    "an escape cut short": r'"\u12"',
    "an unpaired surrogate": r'"\ud800"',
    "surrogates the wrong way round": r'"\udc00\ud800"',
    "U+0000": r'"\u0000"',
    "a control character": '"\x01"',
    "a long text": '"' + "x" * 50_000 + '"',
    "a list in a list": "[[[[[[[[1]]]]]]]]",
    "no value": "",
    "a macro": '"${AUCTION_LOSS}"',
    "a path": '"../../etc/passwd%00"',
}


def of_values(document: Document, rng: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """`count` bodies, each with a value of the document replaced by one of RAW_VALUES."""
    paths = list(paths_of(document))
    for _ in range(count):
        path, name = rng.choice(paths), rng.choice(list(RAW_VALUES))
        text = json.dumps(_replaced(document, path, _MARK)).replace(f'"{_MARK}"', RAW_VALUES[name])
        yield f"{name} at {'.'.join(map(str, path))}", text.encode()


def of_bytes(document: Document, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """The document's bytes, damaged as a whole."""
    body = json.dumps(document).encode()
    inside = rng.randrange(1, len(body))
    yield "cut off", body[:inside]
    yield "one byte short", body[:-1]
    yield "without its beginning", body[inside:]
    yield "empty", b""
    yield "blank", b" \r\n\t" * 100
    yield "trailing garbage", body + b"garbage"
    yield "twice", body + body
    yield "a NUL at its end", body + b"\0"
    yield "a NUL inside", body[:inside] + b"\0" + body[inside:]
    yield "bytes that are no UTF-8", body[:inside] + b"\xff\xfe\xc0\xaf" + body[inside:]
    yield "an encoded surrogate", body.replace(b'"id"', b'"i\xed\xa0\x80d"', 1)
    yield "a byte order mark", b"\xef\xbb\xbf" + body
    yield "UTF-16", body.decode().encode("utf-16")
    yield "UTF-32", body.decode().encode("utf-32")
    yield "a bit turned", _with_turned_bit(body, rng)
    yield "noise", rng.randbytes(1000)
    yield "in a list", b"[" + body + b"]"
    yield "in a text", json.dumps(body.decode()).encode()
    yield "members twice", body[:-1] + b"," + body[1:]
    yield "a member twice with another type", body[:-1] + b',"imp":7}'
    yield "gzip", b"\x1f\x8b\x08" + rng.randbytes(100)


# From Python 3.14 on, how deep is too deep depends on the size of the stack.
NESTED_STATUSES = (400, 413) if sys.version_info < (3, 14) else (204, 400, 413)


def deeply_nested(depth: int = 100_000) -> Iterator[tuple[str, bytes]]:
    """Bodies nested deeply enough to overflow a recursive parser, in fields it reads or skips."""
    good = '{"id":"a","imp":[{"id":"1"}],'
    lists, objects = "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth
    yield "lists that do not end", ("[" * depth).encode()
    yield "lists", lists.encode()
    yield "objects that do not end", ('{"a":' * (depth // 3)).encode()
    yield "lists in a field that is not read", f'{good}"x":{lists}}}'.encode()
    yield "lists in a field that is read", f'{good}"device":{lists}}}'.encode()
    yield "lists, read tolerantly", f'{good}"tmax":"","x":{lists}}}'.encode()
    yield "objects", objects[: 6 * (depth // 3)].encode()
    shallow = '{"a":' * (depth // 6) + "1" + "}" * (depth // 6)
    yield "objects in a field that is not read", f'{good}"ext":{shallow}}}'.encode()
    yield "objects, read tolerantly", f'{good}"tmax":"","ext":{shallow}}}'.encode()


def paths_of(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value inside a document."""
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for key, member in members:
        yield (*path, key)
        yield from paths_of(member, (*path, key))


def _replaced(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    first, *rest = path
    changed = value.copy()
    changed[first] = _replaced(value[first], tuple(rest), new)
    return changed


def _with_turned_bit(body: bytes, rng: random.Random) -> bytes:
    turned = bytearray(body)
    turned[rng.randrange(len(turned))] ^= 1 << rng.randrange(8)
    return bytes(turned)
