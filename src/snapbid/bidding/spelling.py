"""Detection of field names in the wrong letter case: `Imp` for `imp`.

JSON names are case-sensitive, so such a field is ignored; the diagnosis reports it to the SSP
(contract 11).
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import Struct

MAX_BODY: Final = 16_384  # bytes; parsing more would delay other requests
MAX_ITEMS: Final = 20  # checked per list

_Fields = dict[str, tuple[str, type[Struct] | None]]  # by lower-case name


def misspelt_in(body: bytes, struct: type[Struct]) -> Iterator[str]:
    """Yield the paths of misspelt fields in a body, unless it exceeds MAX_BODY or is not JSON."""
    if len(body) > MAX_BODY:
        return
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    yield from misspelt(document, struct)


def misspelt(document: Any, struct: type[Struct], path: str = "") -> Iterator[str]:
    """Yield the paths (`imp[].banner`) of fields that the document spells in the wrong case."""
    if not isinstance(document, dict):
        return
    fields = _fields(struct)
    for given, value in document.items():
        name, below = fields.get(given.lower(), ("", None))
        if not name:
            continue
        if given != name:
            if name not in document:
                yield path + name
            continue
        if below is not None:
            items = value if isinstance(value, list) else [value]
            step = f"{path}{name}[]." if isinstance(value, list) else f"{path}{name}."
            for item in items[:MAX_ITEMS]:
                yield from misspelt(item, below, step)


@cache
def _fields(struct: type[Struct]) -> _Fields:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    return {
        field.encode_name.lower(): (field.encode_name, _struct_of(field.type))
        for field in info.fields
    }


def _struct_of(annotation: msgspec.inspect.Type) -> type[Struct] | None:
    """Return the struct in a field's type, even within a list or a union; None if there is none."""
    if isinstance(annotation, msgspec.inspect.StructType):
        return annotation.cls
    if isinstance(annotation, msgspec.inspect.ListType):
        return _struct_of(annotation.item_type)
    if isinstance(annotation, msgspec.inspect.UnionType):
        return next(filter(None, map(_struct_of, annotation.types)), None)
    return None
