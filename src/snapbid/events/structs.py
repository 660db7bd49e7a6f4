"""Typed structs of the catalog's events: a tagged union on `event`, decoded in one pass.

The structs are strict: an unknown field, a null in a required place or an integral float as a time
fails the decode, and the event is then read field by field (`examine`), which decides. What does
decode is valid but for the few rules that `fast` adds. Fields stand in sorted order, which makes
the encoded struct the canonical envelope.
"""

from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, defstruct

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import MAX_MS, MAX_TEXT, MIN_MS, Event, Field, Kind, Level

MAX_EXACT: Final = 2**53
"""Integers up to here are kept as integers; beyond, a number is the nearest double."""

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Time = Annotated[int, Meta(ge=MIN_MS, le=MAX_MS)]
Number = Annotated[int, Meta(ge=0, le=MAX_EXACT)] | Annotated[float, Meta(ge=0)]
Signed = Annotated[int, Meta(ge=-MAX_EXACT, le=MAX_EXACT)] | float
Digest = Annotated[str, Meta(min_length=64, max_length=64)]

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
            return Signed if field.signed else Number
        case Kind.FLAG:
            return bool
        case Kind.TIME:
            return Time
        case Kind.HASH:
            return Digest
    return Text


def _struct(name: str, fields: dict[str, tuple[Any, bool]], **options: Any) -> type[msgspec.Struct]:
    made = [
        (leaf, kind) if required else (leaf, kind | None, None)
        for leaf, (kind, required) in sorted(fields.items())
    ]
    return defstruct(name, made, module=__name__, **_OPTIONS, **options)


def _group(name: str, fields: list[Field]) -> type[msgspec.Struct]:
    """The struct of the fields that share a parent."""
    typed = {one.leaf: (_type_of(one), one.level is Level.REQUIRED) for one in fields}
    return _struct(name, typed)


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _context(event: Event) -> type[msgspec.Struct]:
    groups: dict[str, list[Field]] = {}
    for field in event.context_fields():
        groups.setdefault(field.parent, []).append(field)
    name = _camel(event.name)
    typed = {one.leaf: (_type_of(one), one.level is Level.REQUIRED) for one in groups["context"]}
    for parent, fields in groups.items():
        if parent != "context":
            leaf = parent.removeprefix("context.")
            typed[leaf] = (_group(f"{name}{_camel(leaf)}", fields), False)
    return _struct(f"{name}Context", typed)


def _envelope(event: Event) -> type[msgspec.Struct]:
    name = _camel(event.name)
    parts = [
        ("timestamp", Time),
        ("identity", _group(f"{name}Identity", list(event.identity_fields()))),
        ("context", _context(event)),
    ]
    return defstruct(
        name, parts, module=__name__, tag_field="event", tag=event.name, **_OPTIONS
    )  # fmt: skip


ENVELOPES: Final[dict[str, type[msgspec.Struct]]] = {
    name: _envelope(event) for name, event in EVENTS.items()
}
"""Name of an event -> the struct of its envelope."""


@cache
def decoder(presets: frozenset[str]) -> "msgspec.json.Decoder[Any]":
    """The decoder of the events of these presets; any other name fails it."""
    enabled = [ENVELOPES[name] for name, event in EVENTS.items() if event.preset in presets]
    union: Any = enabled[0]
    for one in enabled[1:]:
        union = union | one
    return msgspec.json.Decoder(union)
