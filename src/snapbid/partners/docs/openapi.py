"""Building blocks of JSON schemas."""

from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]
Fragment: TypeAlias = dict[str, Any]
"""Any other object of the document: an operation, a response, a parameter."""

REF: Final = "#/components/schemas/{name}"
NULL: Final[Schema] = {"type": "null"}


def ref(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": REF.format(name=name)}


def optional(schema: Schema) -> Schema:
    """Return a schema that also allows null, which counts as absent."""
    if "$ref" in schema:
        return {"anyOf": [schema, NULL]}
    if "enum" in schema:
        schema = schema | {"enum": [*schema["enum"], None]}
    return schema | {"type": [schema["type"], "null"]}
