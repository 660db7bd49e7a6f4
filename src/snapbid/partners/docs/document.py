"""The OpenAPI 3.1 document of the whole API: `api.toml` and `examples.json`, filled in."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

import msgspec

from snapbid.base.http import JSON, Answer
from snapbid.base.settings import Settings
from snapbid.base.version import RELEASE
from snapbid.bidding.notice import MAX_ID
from snapbid.events.endpoint import MAX_BYTES
from snapbid.events.rulebook import MAX_EVENTS
from snapbid.partners.docs.event_schemas import event_schemas
from snapbid.partners.docs.openapi import Fragment, Schema, ref
from snapbid.partners.docs.problems import problems
from snapbid.partners.docs.structs import struct_schemas
from snapbid.queues.rate import WINDOW_S
from snapbid.report.gate import REQUESTS
from snapbid.report.window import MAX_DAYS
from snapbid.warehouse.products import EVENTS, RATE

_FOLDER: Final = files("snapbid.partners.docs")
AUTHORED: Final = _FOLDER.joinpath("api.toml").read_text(encoding="utf-8")
JSON_TYPE: Final = JSON.decode()
_EXAMPLES: Final = _FOLDER.joinpath("examples.json").read_bytes()
EXAMPLES: Final = "x-examples"
"""Requests and outcomes of each operation, which the tests send to a real server.

`$KEY`, `$SHOP_KEY` and `$TOKEN` in a header stand for credentials. `answer`: an example of the
response's body; `code`: the error code in it; `faulty`: a body with an event that is refused.
"""

_LIMIT: Final = re.compile(r"{{(\w+)}}")
_WRAP: Final = re.compile(r"(?<!\n)\n(?!\n)")
_HEADER_NAMES: Final = {  # headers not spelled in title case
    "etag": "ETag",
    "ratelimit": "RateLimit",
    "ratelimit-policy": "RateLimit-Policy",
    "www-authenticate": "WWW-Authenticate",
}


def document(settings: Settings) -> dict[str, Any]:
    """Return the OpenAPI document for a server with these settings."""
    import tomllib  # which takes longer to load than all modules of this package

    known = limits(settings)
    api = filled(tomllib.loads(AUTHORED), known)
    writer = OperationWriter(api, problems(settings))
    examples = filled(json.loads(_EXAMPLES), known)
    paths = {
        path: {
            method: writer.operation(own, examples[own["operationId"]])
            for method, own in methods.items()
        }
        for path, methods in api["paths"].items()
    }
    schemas = struct_schemas(api["notes"]) | event_schemas(api["event_notes"]) | api["schemas"]
    return {
        "openapi": "3.1.0",
        "info": api["info"] | {"version": RELEASE},
        "servers": [{"url": settings.base_url}],
        "tags": api["tags"],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": api["securitySchemes"]},
    }


def limits(settings: Settings) -> dict[str, Any]:
    """Map the names of placeholders (`{{name}}`) to their values."""
    return {
        "base_url": settings.base_url,
        "bid_max_bytes": settings.bid_max_bytes,
        "bid_ttl_s": settings.bid_ttl_s,
        "tmax_ms": settings.tmax_ms,
        "max_id": MAX_ID,
        "max_days": MAX_DAYS,
        "report_requests": REQUESTS,
        "rate_window_s": WINDOW_S,
        "max_events": MAX_EVENTS,
        "event_max_mib": MAX_BYTES >> 20,
        "event_rate": RATE,
        "events_a_minute": EVENTS,
    }


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """Fill in the placeholders in all strings of a value from `known`.

    Also joins the lines of each paragraph. A string that is one placeholder becomes its value.
    """
    if isinstance(value, dict):
        return {name: filled(inner, known) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, known) for inner in value]
    if not isinstance(value, str):
        return value
    if alone := _LIMIT.fullmatch(value):
        return known[alone[1]]
    return _LIMIT.sub(lambda name: str(known[name[1]]), _WRAP.sub(" ", value.strip()))


class OperationWriter:
    """Expands the abbreviated operations of `api.toml`."""

    def __init__(self, api: dict[str, Any], problems: dict[str, dict[str, Answer]]) -> None:
        self._conditions: dict[str, dict[str, str]] = api["errors"]
        self._headers: dict[str, Fragment] = api["headers"]
        self._problems = problems

    def operation(self, own: Fragment, examples: list[Fragment]) -> Fragment:
        """Complete an operation with bodies, examples and errors."""
        full = own | {"responses": {}, EXAMPLES: examples}
        if "body" in own:
            sent = {each["name"]: shown(each["summary"], each["body"]) for each in examples
                    if each["status"] < 300 and "faulty" not in each}  # fmt: skip
            content = _content(_schema(full.pop("body")), sent)
            full["requestBody"] = {"required": True, "content": content}
        for status, response in own["responses"].items():
            answered = {each["name"]: shown(each["summary"], each["answer"]) for each in examples
                        if str(each["status"]) == status and "answer" in each}  # fmt: skip
            full["responses"][status] = self._response(response, answered)
        full["responses"] |= self._failures(full.pop("errors"))
        return full

    def _response(self, response: Fragment, examples: dict[str, Fragment]) -> Fragment:
        full = {"description": response["description"]}
        if "headers" in response:
            full["headers"] = self._described(response["headers"])
        if "body" in response:
            full["content"] = _content(ref(response["body"]), examples)
        elif "media_type" in response:
            full["content"] = {response["media_type"]: {"schema": {}}}
        return full

    def _described(self, names: list[str]) -> Fragment:
        return {_HEADER_NAMES.get(name, name.title()): self._headers[name] for name in names}

    def _failures(self, section: str) -> Fragment:
        """Return the error responses of a section of `api.toml`, by status."""
        by_status: dict[int, list[tuple[str, str, Answer]]] = {}
        for name, when, answer in self._errors(section):
            by_status.setdefault(answer.start["status"], []).append((name, when, answer))
        return {str(status): self._failure(by_status[status]) for status in sorted(by_status)}

    def _errors(self, section: str) -> Iterator[tuple[str, str, Answer]]:
        conditions = dict(self._conditions[section])
        if "like" in conditions:
            yield from self._errors(conditions.pop("like"))
        for name, when in conditions.items():
            yield name, when, self._problems[section][name]

    def _failure(self, given: list[tuple[str, str, Answer]]) -> Fragment:
        bodies = [msgspec.json.decode(answer.body) for _, _, answer in given]
        examples = {name: shown(when, body)
                    for (name, when, _), body in zip(given, bodies, strict=True)}  # fmt: skip
        carried = {name.decode() for _, _, answer in given for name, _ in answer.start["headers"]}
        response = {
            "description": "; ".join(when for _, when, _ in given) + ".",
            "content": _content(_error_schema(bodies), examples),
        }
        described = self._described(sorted(carried & self._headers.keys()))
        return response | ({"headers": described} if described else {})


def _error_schema(bodies: list[dict[str, Any]]) -> Schema:
    """Return the schema of these error bodies, which admits only their codes."""
    if bodies[0].keys() == {"error"}:
        return ref("RateError")
    name, tag = ("EventError", "code") if "code" in bodies[0] else ("Error", "error")
    codes = [*dict.fromkeys(body[tag] for body in bodies)]
    return {"allOf": [ref(name), {"properties": {tag: {"enum": codes}}}]}


def _schema(body: str | Schema) -> Schema:
    return ref(body) if isinstance(body, str) else body


def _content(schema: Schema, examples: dict[str, Fragment]) -> Fragment:
    return {JSON_TYPE: {"schema": schema} | ({"examples": examples} if examples else {})}


def shown(summary: str, value: Any) -> Fragment:
    """Return a body and its summary as an OpenAPI example."""
    return {"summary": summary, "value": value}
