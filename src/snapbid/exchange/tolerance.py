"""The tolerant reading of a body that the typed decoder refused (contract 3).

It accepts what real exchanges send where the meaning is plain: numbers as strings, floats for
integers, booleans as flags, numbers as ids, a lone value for a list, "", null and, for an object,
[] as absent. What makes no sense is refused with the path of the field. A number that cannot be
read at all is refused too, but for the enumerations, where an unknown word is an unknown value: no
floor, size or privacy flag is ever guessed.
"""

import json
import math
from functools import cache
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from snapbid.errors import BadRequest

T = TypeVar("T", bound=Struct)

_BEYOND: Final = math.inf  # stands for an integer that nothing here could hold
_MAX_DIGITS: Final = 4300  # beyond them the typed decoder gives up, too
_WORDS: Final = {"true": True, "false": False}  # what the typed decoder takes as flags


def decode_tolerantly(text: str, struct: type[T]) -> T:
    """A JSON text to the struct. Raises BadRequest, naming the field."""
    try:
        raw = json.loads(text, parse_int=_parse_int, parse_constant=_refuse_constant)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    if not isinstance(raw, dict):
        raise BadRequest("the body is not a JSON object")
    return msgspec.convert(_read_struct(raw, struct, ""), struct)


def _parse_int(digits: str) -> float:
    return int(digits) if len(digits) <= _MAX_DIGITS else math.copysign(_BEYOND, float(digits[:9]))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _Shape(Struct, frozen=True):
    """How a field is read: as one of the kinds, or as a struct, and whether as a list of it."""

    kind: str  # "text", "integer", "enumeration", "flag", "number", "struct"
    struct: type[Struct] | None = None
    many: bool = False


@cache
def _shapes(struct: type[Struct]) -> dict[str, _Shape]:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _shape(field.type) for field in info.fields}


def _shape(found: msgspec.inspect.Type, many: bool = False) -> _Shape:
    """The kind of a field's type; a union is what is left of it without null."""
    kinds = list(found.types) if isinstance(found, msgspec.inspect.UnionType) else [found]
    kinds = [kind for kind in kinds if not isinstance(kind, msgspec.inspect.NoneType)]
    first = kinds[0]
    if isinstance(first, msgspec.inspect.Metadata):
        return _Shape("enumeration", many=many)
    if isinstance(first, msgspec.inspect.ListType):
        return _shape(first.item_type, many=True)
    if isinstance(first, msgspec.inspect.StructType):
        return _Shape("struct", first.cls, many)
    types = {type(kind) for kind in kinds}
    if msgspec.inspect.StrType in types:
        return _Shape("text", many=many)
    if msgspec.inspect.BoolType in types:
        return _Shape("flag", many=many)
    if msgspec.inspect.FloatType in types:
        return _Shape("number", many=many)
    return _Shape("integer", many=many)


def _read_struct(raw: dict[str, Any], struct: type[Struct], path: str) -> dict[str, Any]:
    read = {}
    for name, shape in _shapes(struct).items():
        value = raw.get(name)
        if value is None or value == "":
            continue
        value = _read(value, shape, f"{path}.{name}" if path else name)
        if value is not None:
            read[name] = value
    return read


def _read(value: Any, shape: _Shape, path: str) -> Any:
    """The field's value as the typed decoder takes it, or None where it counts as absent."""
    if value.__class__ is str and value.lower() == "null" and (shape.many or shape.kind != "text"):
        return None  # as the typed decoder reads it
    if not shape.many:
        return _read_one(value, shape, path)
    if isinstance(value, dict) and shape.kind != "struct":
        raise BadRequest(f"{path}: expected a list, found an object")
    if not isinstance(value, list):
        value = [value]
    items = []
    for place, item in enumerate(value):
        if item is not None and item != "":
            item = _read_one(item, shape, f"{path}[{place}]")
            if item is not None:
                items.append(item)
    return items


def _read_one(value: Any, shape: _Shape, path: str) -> Any:
    if shape.kind == "struct":
        assert shape.struct is not None
        if isinstance(value, dict):
            return _read_struct(value, shape.struct, path)
        if value == []:
            return None
        raise BadRequest(f"{path}: expected an object, found {_named(value)}")
    if isinstance(value, (dict, list)):
        raise BadRequest(f"{path}: expected {_WANTED[shape.kind]}, found {_named(value)}")
    if shape.kind == "text":
        return _read_text(value, path)
    return _read_number(value, shape.kind, path)


_WANTED: Final = {
    "text": "a text",
    "integer": "an integer",
    "enumeration": "an integer",
    "flag": "0 or 1",
    "number": "a number",
}


def _named(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "a boolean"
    return "a text" if isinstance(value, str) else "a number"


def _read_text(value: Any, path: str) -> str:
    if isinstance(value, bool):
        raise BadRequest(f"{path}: expected a text, found a boolean")
    if isinstance(value, float):
        if math.isinf(value):
            raise BadRequest(f"{path}: is out of range")
        value = int(value) if value.is_integer() else value
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{path}: holds half of a surrogate pair") from None
    return text


def _read_number(value: Any, kind: str, path: str) -> float | None:
    if isinstance(value, bool):
        if kind == "number":
            raise BadRequest(f"{path}: expected a number, found a boolean")
        return int(value)
    if isinstance(value, str):
        if kind == "flag" and value.lower() in _WORDS:
            return _WORDS[value.lower()]
        try:
            value = _number(value)
        except ValueError:
            if kind == "enumeration":
                return None
            raise BadRequest(f"{path}: expected {_WANTED[kind]}, found a text") from None
    if kind == "number":
        try:
            return float(value)
        except OverflowError:
            return _BEYOND if value > 0 else -_BEYOND
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value)


def _number(text: str) -> float:
    """The number that a text spells. Raises ValueError."""
    if "_" in text or not text.isascii():  # Python's own ways to write one
        raise ValueError(text)
    try:
        return int(text)
    except ValueError:
        return float(text)
