"""A schema with all that is in it, in place: fields within fields, each with its description.

An object is written out where a page first comes to it, under an anchor of its name; later on its
name links there.
"""

from collections.abc import Iterator
from html import escape
from typing import Any, Final, NamedTuple

from snapbid.describe.markup import inline, paragraphs, plain
from snapbid.describe.types import enumeration, type_of

Schema = dict[str, Any]
MANY: Final = 30  # values of an enumeration; more are folded


class SearchEntry(NamedTuple):
    """What the search may lead to: a title, its address and the text that it is found by."""

    title: str
    address: str
    text: str


class FieldWriter:
    """Writes the schemas of one page, at `address`; `entries` grows with what it writes."""

    def __init__(self, schemas: dict[str, Schema], address: str) -> None:
        self._schemas = schemas
        self._address = address
        self._written: set[str] = set()
        self.entries: list[SearchEntry] = []

    def body(self, anchor: str, schema: Schema) -> Iterator[str]:
        """The fields of a body, or the objects that it may be; `anchor` begins theirs."""
        yield f'<p class="type">{type_of(schema)}</p>'
        for name in _references(schema):
            yield from self._named(name, is_open=True)
        yield from self._fields(anchor, schema)

    def _named(self, name: str, *, is_open: bool = False) -> Iterator[str]:
        """An object or value under its own name, once for each page."""
        if name in self._written:
            return
        self._written.add(name)
        schema = self._schemas[name]
        title = schema.get("title", name)
        description = schema.get("description", "")
        self._note(title, name, description)
        yield f'<details id="{name}"{" open" if is_open else ""}><summary>{escape(title)}</summary>'
        yield paragraphs(description)
        if "discriminator" in schema:
            for reference in schema["discriminator"]["mapping"].values():
                yield from self._named(reference.rpartition("/")[2])
        elif "properties" in schema:
            yield from self._fields(name, schema)
        elif values := enumeration(schema):
            yield f'<div class="values">{_values(values)}</div>'
        else:
            yield f'<p class="type">{type_of(schema)}{_pattern(schema)}</p>'
            for inner in _references(schema):
                yield from self._named(inner)
        yield "</details>"

    def _fields(self, path: str, schema: Schema) -> Iterator[str]:
        properties = schema.get("properties", {})
        if not properties:
            return
        required = schema.get("required", ())
        yield '<ul class="fields">'
        for field, inner in properties.items():
            yield from self._field(f"{path}.{field}", field, inner, field in required)
        yield "</ul>"

    def _field(self, path: str, field: str, schema: Schema, required: bool) -> Iterator[str]:
        description = schema.get("description", "")
        self._note(path, path, description)
        level = schema.get("x-level") or ("Required" if required else "")
        mark = f'<b class="{level.lower()}">{level.lower()}</b>' if level else ""
        yield f'<li id="{escape(path)}"><code>{escape(field)}</code> '
        yield f'<span class="type">{type_of(schema)}{_pattern(schema)}</span> {mark}'
        if description:
            yield f"<p>{inline(description)}</p>"
        values = enumeration(schema)
        if len(values) > 1:
            yield f'<div class="values">One of {_values(values)}</div>'
        for name in _references(schema):
            yield from self._named(name)
        inner = _unnamed(schema)
        if "properties" in inner:
            yield "<details open><summary>fields</summary>"
            yield from self._fields(path, inner)
            yield "</details>"
        yield "</li>"

    def _note(self, title: str, anchor: str, text: str) -> None:
        self.entries.append(SearchEntry(title, f"{self._address}#{anchor}", plain(text)))


def _references(schema: Schema) -> list[str]:
    """The names of the schemas that this one consists of, or is a list of."""
    if "$ref" in schema:
        return [schema["$ref"].rpartition("/")[2]]
    parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    if "items" in schema:
        parts.append(schema["items"])
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        parts.append(additional)
    return list(dict.fromkeys(name for part in parts for name in _references(part)))


def _unnamed(schema: Schema) -> Schema:
    """The object without a name that a field has, or has a list or a map of."""
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict) and "properties" in inner:
            return inner
    return schema


def _pattern(schema: Schema) -> str:
    pattern = schema.get("pattern", "")
    return f' <code class="faint">{escape(pattern)}</code>' if 0 < len(pattern) < 40 else ""


def _values(values: list[Any]) -> str:
    codes = [f"<code>{escape(str(value))}</code>" for value in values if value is not None]
    if len(codes) <= MANY:
        return ", ".join(codes)
    first, rest = codes[0], " ".join(codes)
    return f"<details><summary>{len(codes)} values, such as {first}</summary>{rest}</details>"
