"""What descriptions are put together from: schemas, answers, parameters, examples (OpenAPI 3.1)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from snapbid.http import JSON, Answer

Schema: TypeAlias = dict[str, Any]
Part: TypeAlias = dict[str, Any]

JSON_TYPE: Final = JSON.decode()
REF: Final = "#/components/schemas/{name}"
NULL: Final[Schema] = {"type": "null"}

# Headers that answers carry beside type and length.
HEADERS: Final[dict[str, Part]] = {
    "accept-encoding": {
        "description": "The content encodings that are read.",
        "schema": {"type": "string"},
    },
    "age": {
        "description": "On a cached answer: for how many seconds it has been in the cache.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "allow": {
        "description": "The methods that there are at this path.",
        "schema": {"type": "string"},
    },
    "cache-control": {
        "description": "Whether and for how long the answer may be kept.",
        "schema": {"type": "string"},
    },
    "content-encoding": {
        "description": "`gzip` where the body is compressed.",
        "schema": {"const": "gzip"},
    },
    "preference-applied": {
        "description": "Says that `Prefer: handling=lenient` was followed.",
        "schema": {"const": "handling=lenient"},
    },
    "ratelimit": {
        "description": "What is left of the rate: `r` requests, one more in `t` seconds.",
        "schema": {"type": "string"},
        "example": '"token";r=9;t=60',
    },
    "ratelimit-policy": {
        "description": "The rate that is allowed: `q` requests in `w` seconds.",
        "schema": {"type": "string"},
        "example": '"token";q=10;w=60',
    },
    "retry-after": {
        "description": "In how many seconds to try again.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "www-authenticate": {
        "description": "The scheme of the credentials that are missing or wrong.",
        "schema": {"type": "string"},
    },
}

NAMES: Final = {  # as people write them
    "ratelimit": "RateLimit",
    "ratelimit-policy": "RateLimit-Policy",
    "www-authenticate": "WWW-Authenticate",
}


class Example(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request as it is sent, and what comes of it; the tests send each to a real server.

    `$KEY`, `$SHOP_KEY` and `$TOKEN` in a header stand for credentials. `answer` is the body as an
    example, `code` the error code in it.
    """

    name: str
    summary: str
    method: str
    target: str
    status: int
    headers: Mapping[str, str] = {}
    body: Any = None
    answer: Any = None
    code: str | None = None


def ref(name: str) -> Schema:
    """A reference to a schema of the document."""
    return {"$ref": REF.format(name=name)}


def optional(schema: Schema) -> Schema:
    """The same, or null, which counts as absent."""
    if "$ref" in schema:
        return {"anyOf": [schema, NULL]}
    if "enum" in schema:
        schema = schema | {"enum": [*schema["enum"], None]}
    return schema | {"type": [schema["type"], "null"]}


def objects(properties: Schema, *absent: str, **more: Any) -> Schema:
    """An object that has all of these properties, but for those that may be absent."""
    required = [name for name in properties if name not in absent]
    return {"type": "object", "required": required, "properties": properties, **more}


def parameter(name: str, place: str, schema: Schema, description: str, **more: Any) -> Part:
    """A parameter in the path, the query or a header; required in a path."""
    required = {"required": True} if place == "path" else {}
    return {
        "name": name,
        "in": place,
        "description": description,
        "schema": schema,
        **required,
        **more,
    }


def header_name(name: str) -> str:
    """`retry-after` as people write it."""
    return NAMES.get(name, name.title())


def headers(*names: str) -> Part:
    """The headers of an answer."""
    return {header_name(name): HEADERS[name] for name in names}


def body(schema: Schema, examples: Iterable[Example] = (), answers: bool = False) -> Part:
    """A JSON body, with what the examples send, or what is answered to them."""
    shown = {
        one.name: {"summary": one.summary, "value": one.answer if answers else one.body}
        for one in examples
        if (one.answer if answers else one.body) is not None
    }
    return {JSON_TYPE: {"schema": schema} | ({"examples": shown} if shown else {})}


def failures(schema: Schema, tag: str, given: Iterable[tuple[str, Answer]]) -> Part:
    """Error answers by status: (when, the answer as the code gives it).

    `tag` is the field of the body that has the code; codes and headers are those of the answers.
    """
    by_status: dict[int, list[tuple[str, Answer]]] = {}
    for when, answer in given:
        by_status.setdefault(answer.start["status"], []).append((when, answer))
    return {
        str(status): _failure(schema, tag, by_status[status]) for status in sorted(by_status)
    }  # fmt: skip


def _failure(schema: Schema, tag: str, given: list[tuple[str, Answer]]) -> Part:
    bodies = [msgspec.json.decode(answer.body) for _, answer in given]
    codes = [body[tag] for body in bodies]
    carried = {name.decode() for _, answer in given for name, _ in answer.start["headers"]}
    described = sorted(carried & HEADERS.keys())
    narrowed = {"allOf": [schema, {"properties": {tag: {"enum": [*dict.fromkeys(codes)]}}}]}
    shown = {
        f"{code}_{number}" if codes.index(code) != number else code: {
            "summary": when,
            "value": body,
        }
        for number, (code, body, (when, _)) in enumerate(zip(codes, bodies, given, strict=True))
    }
    found = {
        "description": "; ".join(when for when, _ in given) + ".",
        "content": {JSON_TYPE: {"schema": narrowed, "examples": shown}},
    }
    return found | ({"headers": headers(*described)} if described else {})
