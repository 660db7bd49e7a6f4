"""Typed structs of the catalog's events: a tagged union on `event`, decoded in one pass.

The structs are strict: an unknown field, a null in a required field or an integral float as a time
fails the decode, and the event takes another path. A decoded event is valid but for the few rules
that `fast` checks. Fields are in sorted order, so that the encoded struct is the
canonical envelope.
"""

from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, defstruct

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import MAX_EXACT, MAX_MS, MAX_TEXT, MIN_MS, Event, Field, Kind, Level

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Time = Annotated[int, Meta(ge=MIN_MS, le=MAX_MS)]
Number = Annotated[int, Meta(ge=0, le=MAX_EXACT)] | Annotated[float, Meta(ge=0)]
SignedNumber = Annotated[int, Meta(ge=-MAX_EXACT, le=MAX_EXACT)] | float
Hash = Annotated[str, Meta(min_length=64, max_length=64)]

_OPTIONS: Final[dict[str, Any]] = {
    "kw_only": True,
    "gc": False,
    "omit_defaults": True,
    "forbid_unknown_fields": True,
}


def _type_of(field: Field) -> Any:
    match field.kind:
        case Kind.CHOICE:
            return Literal[field.values]
        case Kind.NUMBER:
            return SignedNumber if field.signed else Number
        case Kind.FLAG:
            return bool
        case Kind.TIME:
            return Time
        case Kind.HASH:
            return Hash
    return Text


def _struct(name: str, types: dict[str, tuple[Any, bool]], **options: Any) -> type[msgspec.Struct]:
    """A struct from the type of each field and whether it is required."""
    fields = [
        (leaf, type_) if required else (leaf, type_ | None, None)
        for leaf, (type_, required) in sorted(types.items())
    ]
    return defstruct(name, fields, module=__name__, **_OPTIONS, **options)


def _types(fields: list[Field]) -> dict[str, tuple[Any, bool]]:
    return {field.leaf: (_type_of(field), field.level is Level.REQUIRED) for field in fields}


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _context(event: Event) -> type[msgspec.Struct]:
    groups: dict[str, list[Field]] = {}
    for field in event.context_fields():
        groups.setdefault(field.parent, []).append(field)
    name = _camel(event.name)
    types = _types(groups.pop("context"))
    for parent, fields in groups.items():
        leaf = parent.removeprefix("context.")
        types[leaf] = (_struct(f"{name}{_camel(leaf)}", _types(fields)), False)
    return _struct(f"{name}Context", types)


def _envelope(event: Event) -> type[msgspec.Struct]:
    name = _camel(event.name)
    fields = [
        ("timestamp", Time),
        ("identity", _struct(f"{name}Identity", _types(list(event.identity_fields())))),
        ("context", _context(event)),
    ]
    return defstruct(
        name, fields, module=__name__, tag_field="event", tag=event.name, **_OPTIONS
    )  # fmt: skip


ENVELOPES: Final[dict[str, type[msgspec.Struct]]] = {
    name: _envelope(event) for name, event in EVENTS.items()
}
"""Name of an event -> the struct of its envelope."""


@cache
def decoder_for(presets: frozenset[str]) -> "msgspec.json.Decoder[Any]":
    """The decoder of the events of these presets; any other event fails it."""
    enabled = [ENVELOPES[name] for name, event in EVENTS.items() if event.preset in presets]
    union: Any = enabled[0]
    for envelope in enabled[1:]:
        union = union | envelope
    return msgspec.json.Decoder(union)
