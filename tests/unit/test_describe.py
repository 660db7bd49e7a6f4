"""The description for partners: complete, sound, and of one mind with the code."""

import gzip
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import openapi_spec_validator
import pytest
from support.described import BASE_URL, DOCUMENT, SCHEMAS, validator
from support.event_cases import apply, generate, to_json

from snapbid.base import errors
from snapbid.base.settings import load
from snapbid.bidding.routes import ROUTES as NOTICE_ROUTES
from snapbid.events.answers import PROBLEM_CODES
from snapbid.events.catalog import EVENTS
from snapbid.events.endpoint import ROUTES as EVENT_ROUTES
from snapbid.events.fields import Event
from snapbid.events.rulebook import RULES, STATUSES, WARNINGS
from snapbid.partners.docs.document import AUTHORED, filled, limits
from snapbid.partners.docs.endpoint import ASSETS, LIBRARY, LIBRARY_VERSION
from snapbid.partners.docs.event_schemas import component

KNOWN = limits(load({"SNAPBID_BASE_URL": BASE_URL}))
# What a schema cannot tell: the time, what a product has, numbers that are infinite as doubles.
BEYOND = {"timestamp_in_future", "event_disabled", "out_of_range"}
CODES = ("currency", "jurisdiction")  # in any case, where the schema has them in upper case


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            yield path, operation


def test_document_is_valid_openapi() -> None:
    openapi_spec_validator.validate(DOCUMENT)
    assert DOCUMENT["servers"] == [{"url": BASE_URL}]


def test_every_route_for_partners_is_described() -> None:
    served = {*EVENT_ROUTES, *NOTICE_ROUTES}
    assert served <= DOCUMENT["paths"].keys()
    ids = [operation["operationId"] for _, operation in operations()]
    assert len(ids) == len(set(ids)) == len(served) + 4


def test_every_error_code_is_described() -> None:
    text = json.dumps(DOCUMENT["paths"])
    classes: set[type[errors.Problem]] = {errors.Problem, *errors.Problem.__subclasses__()}
    classes |= {errors.MissingToken, errors.InvalidToken, errors.SspMismatch}
    own = {problem.code for problem in classes if problem.__module__ == errors.__name__}
    codes = own | {*STATUSES} | {*PROBLEM_CODES.values()} - {"NOT_FOUND"}
    assert {code for code in codes if f'"{code}"' not in text} == set()


def test_every_event_and_rule_is_described() -> None:
    assert {*SCHEMAS["Event"]["discriminator"]["mapping"]} == {*EVENTS}
    assert SCHEMAS["Finding"]["properties"]["rule"]["enum"] == [*RULES]
    assert SCHEMAS["Warning"]["properties"]["rule"]["enum"] == [*WARNINGS]
    for name, event in EVENTS.items():
        levels = re.findall(r'"x-level": "(\w)', json.dumps(SCHEMAS[component(name)]))
        fields = [*event.identity_fields(), *event.context_fields()]
        assert sorted(levels) == sorted(field.level.value for field in fields)


def test_prose_is_filled_in() -> None:
    text = "Two\nlines, {{limit}} of them.\n\nMore:\n{{limit}}\n"
    assert filled([text, "{{limit}}"], {"limit": 2}) == ["Two lines, 2 of them.\n\nMore: 2", 2]
    with pytest.raises(KeyError):
        filled("{{unknown}}", {"limit": 2})
    assert "{{" not in json.dumps(DOCUMENT)


def test_every_line_of_the_prose_is_published() -> None:
    """Notes of fields, conditions of errors and headers that nothing has would be left unread."""
    shown = json.dumps(DOCUMENT, ensure_ascii=False)
    api = tomllib.loads(AUTHORED)
    sections = {**api["errors"], **api["notes"], "event_notes": api["event_notes"]}
    lines = [(name, text) for own in sections.values() for name, text in own.items()]
    lines += [(name, own["description"]) for name, own in api["headers"].items()]
    unread = [
        (name, text)
        for name, text in lines
        if name != "like"
        if json.dumps(filled(text, KNOWN), ensure_ascii=False)[1:-1] not in shown
    ]
    assert unread == []


def explains(schema: dict[str, Any]) -> bool:
    """Whether a field's schema says what it means, or names one that does."""
    if schema.get("description"):
        return True
    if "$ref" in schema:
        return explains(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    parts = [part for union in ("anyOf", "oneOf") for part in schema.get(union, ())]
    if "items" in schema:
        parts.append(schema["items"])
    return any(explains(part) for part in parts)


def mute(path: str, schema: dict[str, Any]) -> Iterator[str]:
    """The fields without a word of explanation."""
    for name, inner in schema.get("properties", {}).items():
        if not explains(inner):
            yield f"{path}.{name}"
        yield from mute(f"{path}.{name}", inner)


def test_every_field_is_described() -> None:
    assert [field for name, schema in SCHEMAS.items() for field in mute(name, schema)] == []


def test_examples_are_valid_under_their_schemas() -> None:
    seen = 0
    for path, operation in operations():
        parts = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in (part.get("content", {}).get("application/json") for part in parts):
            for name, example in (content or {}).get("examples", {}).items():
                violations = [*validator(content["schema"]).iter_errors(example["value"])]
                assert violations == [], (path, name)
                seen += 1
    assert seen > 40


def in_upper_case(envelope: Any) -> Any:
    """The envelope with codes as the schema lists them."""
    context = envelope.get("context") if isinstance(envelope, dict) else None
    if isinstance(context, dict):
        for name in CODES:
            code = context.get(name)
            if isinstance(code, str) and code.isascii():
                context[name] = code.upper()
    return envelope


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: event.name)
def test_event_schemas_agree_with_the_validation(event: Event) -> None:
    """Each generated case: what is refused breaks the schema, what is accepted keeps it."""
    judge = validator(SCHEMAS[component(event.name)])
    wrong = []
    whole, cases = generate(event)
    for case in cases:
        envelope = apply(whole, case)
        try:
            value = json.loads(to_json(envelope))
        except ValueError:
            continue
        rules = {violation["rule"] for violation in case.get("violations", [])}
        if rules and rules <= BEYOND:
            continue
        valid = judge.is_valid(in_upper_case(value))
        if valid == bool(rules):
            wrong.append(f"{case['case']}: {'valid' if valid else 'invalid'}, but {rules}")
    assert not wrong, "\n".join(wrong[:30])


def test_bundled_library_has_its_stated_version() -> None:
    script = gzip.decompress(LIBRARY.read_bytes()).decode()
    assert f"`{LIBRARY_VERSION}`" in script
    attribution = ASSETS.joinpath("ATTRIBUTION.md").read_text(encoding="utf-8")
    assert f"version {LIBRARY_VERSION} " in attribution


def test_assets_load_nothing_external() -> None:
    for name in ("docs.css", "docs.js"):
        text = ASSETS.joinpath(name).read_text(encoding="utf-8")
        assert not re.findall(r"url\(|@import|https?://|\beval\b|innerHTML", text)
