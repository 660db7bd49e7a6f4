"""The second, tolerant pass over a body that the typed decoder rejected (contract 3).

It accepts what real exchanges send where the meaning is plain: strings for numbers, floats for
integers, booleans for flags, numbers for ids, a single value for a list, several values in one
string, and a list of one for a single value. "" and null count as absent; so do [] for a single
value and an `ext` that is neither an object nor a list of one. A bound such as `maxduration` may be
a fraction, and is rounded so that it still holds. Anything else is rejected with the field's path.
So is a number that cannot be parsed: a floor, a size or a privacy flag is never guessed.
Enumerations are an exception: unknown text counts as absent or, in a list, which may be a
restriction, as `UNREADABLE`.

The time is bounded: in a list of objects, only the entries that will be used are converted, and a
body that takes more than `MAX_STEPS` steps is rejected. Decoding the body counts as steps, too; for
these, the number of values is estimated by counting commas.
"""

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from snapbid.base.errors import BadRequest
from snapbid.bidding.bounds import MAX_ENTRIES, MAX_FORMATS, MAX_IMPRESSIONS
from snapbid.campaigns.rules import Path, path_text

T = TypeVar("T", bound=Struct)

MAX_STEPS: Final = 8_500  # some 1.5 ms
_DECODED: Final = 6  # values decoded per step
_DECODED_SLOWLY: Final = 3  # values per step by Python's decoder, which accepts out-of-range ones
_CONVERTED: Final = 4  # steps per value that needs conversion
_PLAIN_TEXTS: Final = 4  # texts of a list per step, if none needs conversion
# Entries that are converted; lists that restrict are read in full.
_MOST: Final = {"Imp": MAX_IMPRESSIONS, "Format": MAX_FORMATS, "DurFloors": MAX_STEPS}
_TEXT: Final = frozenset({str, int})  # numbers as ids
_ABSENT: Final = frozenset({type(None)})
_NUMERIC: Final = frozenset("0123456789+-.nNiI \t\n\r\f\v")  # how a number in text may begin
_BEYOND: Final = math.inf  # stands for an integer beyond any range
_NUMBERS: Final = frozenset({"enumeration", "integer"})
_MAX_DIGITS: Final = 4300  # the typed decoder gives up beyond this, too
_EXTS: Final = frozenset({"ext", "prebid"})  # each sender's own, so they may hold anything
_BETWEEN: Final = re.compile("[,_]")  # separators of a list of numbers sent as one text
UNREADABLE: Final = -1  # stands for an entry of a list of numbers that is not a number
_BOUNDS: Final = {  # how a fraction is rounded so that the bound holds
    **dict.fromkeys(("minduration", "mindur", "minbitrate"), math.ceil),
    **dict.fromkeys(
        ("tmax", "maxduration", "maxdur", "poddur", "maxseq", "maxbitrate"), math.floor
    ),
}
_FLAG_TEXTS: Final = {"true": True, "false": False}  # as in the typed decoder


def decode_tolerantly(text: str, struct: type[T]) -> T:
    """Decode JSON to a struct. Raises BadRequest, naming the field."""
    if text.count("{") + text.count("[") > MAX_STEPS:  # before any is created
        raise BadRequest("the body is nested too deeply, or has too many lists and objects")
    values = text.count(",")
    steps = MAX_STEPS - values // _DECODED
    if steps < 0:
        raise BadRequest("the body has a value of the wrong type, and too many values to convert")
    try:
        try:
            raw = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError):
            steps -= values // _DECODED_SLOWLY
            if steps < 0:
                raise BadRequest(
                    "the body has too many values, and some are out of range"
                ) from None
            raw = _loads(text)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    if not isinstance(raw, dict):
        raise BadRequest("the body is not a JSON object")
    return msgspec.convert(_Conversion(steps).struct(raw, struct, ()), struct)


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of more digits than Python converts
        left = MAX_STEPS

        def parse_int(digits: str) -> float:
            nonlocal left
            left -= 1
            if left < 0:
                raise BadRequest("the body has too many integers to convert") from None
            if len(digits) <= _MAX_DIGITS:
                return int(digits)
            return math.copysign(_BEYOND, float(digits[:9]))

        return json.loads(text, parse_int=parse_int, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _Shape(Struct, frozen=True):
    """The kind of a field's values.

    `many`: the field is a list; `either`: it may also be a single value.
    """

    kind: str  # "text", "integer", "enumeration", "flag", "number", "struct", "any"
    struct: type[Struct] | None = None
    many: bool = False
    either: bool = False
    plain: frozenset[type] = frozenset()  # types of single values that need no conversion
    plain_items: frozenset[type] = frozenset()  # the same in a list


@cache
def _shapes(struct: type[Struct]) -> dict[str, _Shape]:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _shape(field.type) for field in info.fields}


def _shape(annotation: msgspec.inspect.Type, many: bool = False) -> _Shape:
    """Return the shape of a field's type, ignoring null.

    `many`: whether the field is a list whose items have this type.
    """
    if isinstance(annotation, msgspec.inspect.UnionType):
        kinds = list(annotation.types)
    else:
        kinds = [annotation]
    kinds = [kind for kind in kinds if not isinstance(kind, msgspec.inspect.NoneType)]
    for kind in kinds:
        if isinstance(kind, msgspec.inspect.ListType):
            shape = _shape(kind.item_type, many=True)
            return msgspec.structs.replace(shape, either=len(kinds) > 1)
    first = kinds[0]
    if isinstance(first, msgspec.inspect.AnyType):
        return _Shape("any", many=many)
    if isinstance(first, msgspec.inspect.Metadata):
        return _Shape("enumeration", many=many, plain=frozenset({int}))
    if isinstance(first, msgspec.inspect.StructType):
        return _Shape("struct", first.cls, many)
    types = {type(kind) for kind in kinds}
    if msgspec.inspect.StrType in types:
        items = _TEXT if msgspec.inspect.IntType in types else _TEXT - {int}
        return _Shape("text", many=many, plain=_TEXT - {int}, plain_items=items)
    if msgspec.inspect.BoolType in types:
        return _Shape("flag", many=many, plain=frozenset({int}))
    if msgspec.inspect.FloatType in types:
        return _Shape("number", many=many, plain=frozenset({float}))
    return _Shape("integer", many=many, plain=frozenset({int}))


class _Conversion:
    """The conversion of one body for the typed decoder, in at most `steps` steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def _count(self, steps: int, path: Path) -> None:
        self._left -= steps
        if self._left < 0:
            raise BadRequest(
                f"{path_text(path)}: gave up here: the body has values of the wrong type, and too"
                " many values to convert them all"
            )

    def struct(self, raw: dict[str, Any], struct: type[Struct], path: Path) -> dict[str, Any]:
        shapes, values = _shapes(struct), {}
        for name, value in raw.items():
            shape = shapes.get(name)
            if shape is None or value is None or value == "":
                continue
            kind = value.__class__
            if kind in shape.plain and not shape.many and (kind is not str or value.isascii()):
                self._left -= 1  # checked at the next conversion
            elif kind is int and shape.kind == "text" and not shape.many:
                self._left -= 2
                value = str(value)
            elif name in _EXTS and kind is not dict and not _has_one_object(value):
                continue
            else:
                value = self._field(value, shape, (path, name))
                if value is None:
                    continue
            values[name] = value
        return values

    def _field(self, value: Any, shape: _Shape, path: Path) -> Any:
        """Return a field's value for the typed decoder, or None if it counts as absent."""
        if shape.kind == "any":
            self._count(1, path)
            return value
        self._count(_CONVERTED, path)
        if _is_null(value) and (shape.many or shape.kind != "text"):
            return None
        if not shape.many or (shape.either and not isinstance(value, list)):
            return self._single(value, shape, path)
        if isinstance(value, dict) and shape.kind != "struct":
            raise BadRequest(f"{path_text(path)}: expected a list, found an object")
        if not isinstance(value, list):
            value = [value]
            if shape.kind == "text" and type(value[0]) is str:
                value = value[0].split(",")
        if shape.kind == "text":
            self._count(len(value) // _PLAIN_TEXTS, path)
            if (texts := _plain_texts(value, shape)) is not None:
                return texts
        return self._items(value, shape, path)

    def _items(self, value: list[Any], shape: _Shape, path: Path) -> list[Any]:
        if shape.kind in _NUMBERS:
            value = list(_apart(value))
        most = len(value)
        if shape.struct is not None:
            most = _MOST.get(shape.struct.__name__, MAX_ENTRIES)
        items: list[Any] = []
        for index, item in enumerate(value):
            if item is not None and item != "":
                self._count(_CONVERTED, path)
                if _is_null(item) and shape.kind != "text":
                    continue
                item = self._item(item, shape, (path, index))
                if item is None and shape.kind == "enumeration":
                    item = UNREADABLE
                if item is not None:
                    items.append(item)
                    if len(items) == most:
                        break
        return items

    def _single(self, value: Any, shape: _Shape, path: Path) -> Any:
        """Read a single value, which may be the only item of a list."""
        if isinstance(value, list) and len(value) < 2:
            value = value[0] if value else None
            if value is None or value == "":
                return None
        return self._item(value, shape, path)

    def _item(self, value: Any, shape: _Shape, path: Path) -> Any:
        if shape.struct is not None:
            if isinstance(value, dict):
                return self.struct(value, shape.struct, path)
            if value == []:
                return None
            raise BadRequest(f"{path_text(path)}: expected an object, found {_kind_of(value)}")
        if isinstance(value, (dict, list)):
            raise BadRequest(
                f"{path_text(path)}: expected {_EXPECTED[shape.kind]}, found {_kind_of(value)}"
            )
        if shape.kind == "text":
            return _read_text(value, path)
        return _read_number(value, shape.kind, path)


def _has_one_object(value: Any) -> bool:
    return type(value) is list and len(value) == 1 and type(value[0]) is dict


def _apart(items: list[Any]) -> Iterator[Any]:
    """Yield numbers one by one, splitting strings that hold several."""
    for item in items:
        if type(item) is str and _BETWEEN.search(item) is not None:
            yield from map(str.strip, _BETWEEN.split(item))
        else:
            yield item


def _is_null(value: Any) -> bool:
    """Return whether a value is the string `null`, which the typed decoder also reads as null."""
    return value.__class__ is str and value.lower() == "null"


def _plain_texts(value: list[Any], shape: _Shape) -> list[Any] | None:
    """Return a list's items that are not null; None if any of them needs conversion."""
    kinds = set(map(type, value))
    if not kinds <= shape.plain_items | _ABSENT:
        return None
    if kinds & _ABSENT:
        value = [item for item in value if item is not None]
    if str in kinds:
        texts = [item for item in value if type(item) is str] if int in kinds else value
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:  # an unpaired surrogate in one of them
            return None
    return value


_EXPECTED: Final = {
    "text": "a string",
    "integer": "an integer",
    "enumeration": "an integer",
    "flag": "0 or 1",
    "number": "a number",
}


def _kind_of(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "a boolean"
    return "a string" if isinstance(value, str) else "a number"


def _read_text(value: Any, path: Path) -> str:
    if isinstance(value, bool):
        raise BadRequest(f"{path_text(path)}: expected a string, found a boolean")
    if isinstance(value, float):
        if math.isinf(value):
            raise BadRequest(f"{path_text(path)}: is out of range")
        value = int(value) if value.is_integer() else value
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{path_text(path)}: contains an unpaired surrogate") from None
    return text


def _read_number(value: Any, kind: str, path: Path) -> float | None:
    if isinstance(value, bool):
        if kind == "number":
            raise BadRequest(f"{path_text(path)}: expected a number, found a boolean")
        return int(value)
    if isinstance(value, str):
        if kind == "flag" and value.lower() in _FLAG_TEXTS:
            return _FLAG_TEXTS[value.lower()]
        try:
            value = _number(value)
        except ValueError:
            if kind == "enumeration":
                return None
            raise BadRequest(
                f"{path_text(path)}: expected {_EXPECTED[kind]}, found a string"
            ) from None
    if kind == "number":
        try:
            return float(value)
        except OverflowError:
            return _BEYOND if value > 0 else -_BEYOND
    if isinstance(value, float):
        if math.isinf(value):
            return None
        if not value.is_integer():
            if path[-1] not in _BOUNDS or not abs(value) >= 1:  # 0 would be no bound
                found = "NaN" if math.isnan(value) else "a fraction"
                raise BadRequest(f"{path_text(path)}: expected {_EXPECTED[kind]}, found {found}")
            return _BOUNDS[path[-1]](value)
    return int(value)


def _number(text: str) -> float:
    """Parse a number. Raises ValueError."""
    if text[:1] not in _NUMERIC:  # raising is slow
        raise ValueError(text)
    if "_" in text or not text.isascii():  # forms that only Python accepts
        raise ValueError(text)
    try:
        return int(text)
    except ValueError:
        return float(text)
