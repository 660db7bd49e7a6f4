"""Building blocks of the OpenAPI 3.1 document: schemas, responses, parameters, examples."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from snapbid.http import JSON, Answer

Schema: TypeAlias = dict[str, Any]
Fragment: TypeAlias = dict[str, Any]
"""Any other object of the document: an operation, a response, a parameter."""

JSON_TYPE: Final = JSON.decode()
REF: Final = "#/components/schemas/{name}"
TRY: Final = "x-try"
"""How an operation is tried out harmlessly: the `method`, the `example` to begin with, members that
are set in a body (`sets`), and a `note`; all of them optional."""
NULL: Final[Schema] = {"type": "null"}

# Response headers other than Content-Type and Content-Length.
HEADERS: Final[dict[str, Fragment]] = {
    "accept-encoding": {
        "description": "The content encodings that are accepted.",
        "schema": {"type": "string"},
    },
    "age": {
        "description": "On a cached answer: for how many seconds it has been in the cache.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "allow": {
        "description": "The methods that this path accepts.",
        "schema": {"type": "string"},
    },
    "cache-control": {
        "description": "Whether and for how long the answer may be cached.",
        "schema": {"type": "string"},
    },
    "content-encoding": {
        "description": "`gzip` or `zstd` where the body is compressed.",
        "schema": {"enum": ["gzip", "zstd"]},
    },
    "etag": {
        "description": "Names this version of the answer, for `If-None-Match`.",
        "schema": {"type": "string"},
    },
    "preference-applied": {
        "description": "Confirms that `Prefer: handling=lenient` was applied.",
        "schema": {"const": "handling=lenient"},
    },
    "ratelimit": {
        "description": "What is left of the rate limit: `r` requests now, one more in `t` seconds.",
        "schema": {"type": "string"},
        "example": '"token";r=9;t=60',
    },
    "ratelimit-policy": {
        "description": "The rate limit: `q` requests in `w` seconds.",
        "schema": {"type": "string"},
        "example": '"token";q=10;w=60',
    },
    "retry-after": {
        "description": "Seconds to wait before trying again.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "www-authenticate": {
        "description": "The scheme of the credentials that are missing or wrong.",
        "schema": {"type": "string"},
    },
}

HEADER_NAMES: Final = {  # whose usual spelling is not title case
    "etag": "ETag",
    "ratelimit": "RateLimit",
    "ratelimit-policy": "RateLimit-Policy",
    "www-authenticate": "WWW-Authenticate",
}


class Example(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request and its outcome; the tests send each of them to a real server.

    `$KEY`, `$SHOP_KEY` and `$TOKEN` in a header stand for credentials. `answer` is an example of
    the response's body, `code` the error code in it.
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
    """The schema or null, which counts as absent."""
    if "$ref" in schema:
        return {"anyOf": [schema, NULL]}
    if "enum" in schema:
        schema = schema | {"enum": [*schema["enum"], None]}
    return schema | {"type": [schema["type"], "null"]}


def objects(properties: Schema, *absent: str, **more: Any) -> Schema:
    """An object with these properties, all required but those listed as `absent`."""
    required = [name for name in properties if name not in absent]
    return {"type": "object", "required": required, "properties": properties, **more}


def parameter(name: str, place: str, schema: Schema, description: str, **more: Any) -> Fragment:
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
    """The usual spelling: `Retry-After` for `retry-after`."""
    return HEADER_NAMES.get(name, name.title())


def headers(*names: str) -> Fragment:
    """The headers of a response."""
    return {header_name(name): HEADERS[name] for name in names}


def body(schema: Schema, examples: Iterable[Example] = (), answers: bool = False) -> Fragment:
    """A JSON body with the examples' requests, or with their answers."""
    shown = {
        example.name: {"summary": example.summary, "value": value}
        for example in examples
        if (value := example.answer if answers else example.body) is not None
    }
    return {JSON_TYPE: {"schema": schema} | ({"examples": shown} if shown else {})}


def failures(schema: Schema, tag: str, given: Iterable[tuple[str, Answer]]) -> Fragment:
    """Error responses by status, from pairs of condition and the answer that the code gives.

    `tag` is the body's field with the error code; codes and headers are taken from the answers.
    """
    by_status: dict[int, list[tuple[str, Answer]]] = {}
    for when, answer in given:
        by_status.setdefault(answer.start["status"], []).append((when, answer))
    return {
        str(status): _failure(schema, tag, by_status[status]) for status in sorted(by_status)
    }  # fmt: skip


def _failure(schema: Schema, tag: str, given: list[tuple[str, Answer]]) -> Fragment:
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
    response = {
        "description": "; ".join(when for when, _ in given) + ".",
        "content": {JSON_TYPE: {"schema": narrowed, "examples": shown}},
    }
    return response | ({"headers": headers(*described)} if described else {})
