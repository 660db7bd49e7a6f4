"""JSON Schema in a few words, as HTML: `array of <a href="#Imp">Imp</a>`."""

from html import escape
from typing import Any

Schema = dict[str, Any]


def type_of(schema: Schema) -> str:
    """What a value is; that it may be null goes without saying."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{escape(name)}</a>'
    for union in ("anyOf", "oneOf"):
        if union in schema:
            shown = [type_of(one) for one in schema[union] if one.get("type") != "null"]
            found = [*dict.fromkeys(one for one in shown if one)]
            if found:
                return " or ".join(found)
    if "allOf" in schema:
        return type_of(schema["allOf"][0])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if "enum" in schema and "type" not in schema:
        return "value of a list"
    kinds = schema.get("type", [])
    names = [_kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    shown = [name for name in names if name != "null"]
    return " or ".join(shown) + _bounds(schema)


def enumeration(schema: Schema) -> list[Any]:
    """The values of a list."""
    values: list[Any] = schema.get("enum", [])
    return values


def _kind(kind: str, schema: Schema) -> str:
    if kind == "array":
        return f"array of {type_of(schema.get('items', {})) or 'anything'}"
    return schema.get("format", kind) if kind == "string" else kind


def _bounds(schema: Schema) -> str:
    words = {
        "minimum": "at least {}",
        "exclusiveMinimum": "above {}",
        "maximum": "at most {}",
        "minItems": "at least {}",
        "maxItems": "at most {}",
        "maxLength": "up to {} characters",
    }
    found = [word.format(schema[name]) for name, word in words.items() if name in schema]
    return f' <span class="faint">({", ".join(found)})</span>' if found else ""
