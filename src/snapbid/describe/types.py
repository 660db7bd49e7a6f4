"""JSON Schema types as short HTML phrases: `array of <a href="#Imp">Imp</a>`."""

from html import escape
from typing import Any

Schema = dict[str, Any]


def type_of(schema: Schema) -> str:
    """The type of a value; that it may be null is left out."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{escape(name)}</a>'
    for union in ("anyOf", "oneOf"):
        if union in schema:
            options = [type_of(option) for option in schema[union] if option.get("type") != "null"]
            distinct = [*dict.fromkeys(option for option in options if option)]
            if distinct:
                return " or ".join(distinct)
    if "allOf" in schema and "type" not in schema:
        return type_of(schema["allOf"][0])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if "enum" in schema and "type" not in schema:
        return "one of a list of values"
    kinds = schema.get("type", [])
    names = [_kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    shown = [name for name in names if name != "null"]
    return " or ".join(shown) + _bounds(schema)


def enumeration(schema: Schema) -> list[Any]:
    """The values of an enumeration."""
    values: list[Any] = schema.get("enum", [])
    return values


def _kind(kind: str, schema: Schema) -> str:
    if kind == "array":
        return f"array of {type_of(schema.get('items', {})) or 'anything'}"
    return schema.get("format", kind) if kind == "string" else kind


def _bounds(schema: Schema) -> str:
    phrases = {
        "minimum": "at least {}",
        "exclusiveMinimum": "above {}",
        "maximum": "at most {}",
        "minItems": "at least {}",
        "maxItems": "at most {}",
        "maxLength": "up to {} characters",
    }
    bounds = [phrase.format(schema[name]) for name, phrase in phrases.items() if name in schema]
    return f' <span class="faint">({", ".join(bounds)})</span>' if bounds else ""
