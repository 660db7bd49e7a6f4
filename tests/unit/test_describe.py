"""The description for partners: complete, sound, and of one mind with the code."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import openapi_spec_validator
import pytest
from support import event_cases
from support.described import BASE_URL, DOCUMENT, SCHEMAS, validator
from support.event_cases import apply, to_json

from snapbid import errors
from snapbid.describe.document import document
from snapbid.describe.event_schemas import component
from snapbid.describe.openrtb import NOTES
from snapbid.describe.page import Assets, RenderedPages, render
from snapbid.describe.samples import SAMPLES
from snapbid.events.answers import PROBLEM_CODES
from snapbid.events.catalog import EVENTS
from snapbid.events.routes import ROUTES as EVENT_ROUTES
from snapbid.events.rulebook import RULES, STATUSES, WARNINGS
from snapbid.exchange.routes import ROUTES as NOTICE_ROUTES
from snapbid.settings import load

ASSETS = Assets("/docs/docs.css", "/docs/docs.js")
SITE = render(DOCUMENT, ASSETS)
FILES = sorted(event_cases.FOLDER.glob("*.json"))
# What a schema cannot tell: the time, what a product has, numbers that are infinite as doubles.
BEYOND = {"timestamp_in_future", "event_disabled", "out_of_range"}
CODES = ("currency", "jurisdiction")  # in any case, where the schema has them in upper case


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            yield path, operation


def test_it_is_openapi() -> None:
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


def test_notes_are_of_fields_that_there_are() -> None:
    noted = {(name, field) for name, notes in NOTES.items() for field in notes}
    known = {(name, field) for name in NOTES for field in SCHEMAS[name]["properties"]}
    assert not noted - known


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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_event_schemas_agree_with_the_validation(path: Path) -> None:
    """Each generated case: what is refused breaks the schema, what is accepted keeps it."""
    document = json.loads(path.read_text())
    judge = validator(SCHEMAS[component(path.stem)])
    wrong = []
    for case in document["cases"]:
        envelope = apply(document["envelope"], case)
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


def ids(page: str) -> list[str]:
    return re.findall(r' id="([^"]+)"', page)


@pytest.mark.parametrize("path", SITE.pages)
def test_a_page_loads_nothing_from_elsewhere(path: str) -> None:
    page = SITE.pages[path]
    loaded = re.findall(r'<(?:link|script|img)[^>]* (?:src|href)="([^"]*)"', page)
    assert {*loaded} == {*ASSETS, "data:,"}
    assert not re.findall(r'<a [^>]*href="(?![#/])[^"]*"', page)
    assert "style=" not in page
    assert "<style" not in page
    for name in ("docs.css", "docs.js"):
        text = files("snapbid.describe").joinpath("assets", name).read_text(encoding="utf-8")
        assert not re.findall(r"url\(|@import|https?://|\beval\b|innerHTML", text)


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in SITE.pages.values():
        assert len(ids(page)) == len({*ids(page)})
        assert {*re.findall(r'href="#([^"]+)"', page)} <= {*ids(page)}
        for path, anchor in re.findall(r'href="(/docs[^"#]*)#([^"]+)"', page):
            assert anchor in ids(SITE.pages[path]), (path, anchor)
    for title, address, _ in SITE.entries:
        path, _, anchor = address.partition("#")
        assert anchor in ids(SITE.pages[path]), title


def test_old_links_to_operations_still_lead_to_them() -> None:
    names = {operation["operationId"] for _, operation in operations()}
    assert names | {"honoured", "apiKey", "reportToken"} <= {*ids(SITE.pages["/docs"])}


def test_every_object_and_field_is_on_a_page_and_can_be_searched() -> None:
    found = {title for title, _, _ in SITE.entries}
    fields = {
        f"{name}.{field}"
        for name, schema in SCHEMAS.items()
        for field in schema.get("properties", ())
    }
    assert fields <= found
    assert {schema.get("title", name) for name, schema in SCHEMAS.items()} <= found


def test_the_pages_quote_what_they_show() -> None:
    odd = document(load({"SNAPBID_BASE_URL": "https://a.example/<b>"}))
    site: RenderedPages = render(odd, ASSETS)
    for page in site.pages.values():
        assert "<b>/" not in page
    assert "a.example/&lt;b&gt;" in site.pages["/docs"]


@pytest.mark.parametrize("language", SAMPLES)
def test_samples_quote_what_they_send(language: str) -> None:
    odd = 'it\'s `a` "b" \\ \n $HOME ü'
    example = {"method": "POST", "target": "/x?a=1&b=2", "body": {"a": [odd, None, True]}}
    text = SAMPLES[language]("http://h", example)
    if language == "curl":
        *_, body = shlex.split(text)
        assert json.loads(body) == example["body"]
    elif language == "Python":
        call = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        assert given["json"] == example["body"]
    elif language == "JavaScript":
        inner = text.partition("JSON.stringify(")[2].rpartition("),\n")[0]
        assert json.loads(inner) == example["body"]
    else:
        literal = text.partition("NewReader(")[2].partition(")\n\tif")[0].removesuffix(")")
        assert json.loads(json.loads(literal)) == example["body"]


def test_programs_in_go_import_what_they_use() -> None:
    for _, operation in operations():
        for example in operation["x-examples"]:
            text = SAMPLES["Go"](BASE_URL, example)
            imports, _, body = text.partition("func main")
            names = {name.rpartition("/")[2] for name in re.findall(r'"([\w/]+)"', imports)}
            assert names == {*re.findall(r"\b(fmt|io|log|http|os|strings)\.", body)}
