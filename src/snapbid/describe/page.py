"""The API description as a self-contained HTML page, rendered from the OpenAPI document alone.

There are no scripts: long parts are `<details>`, and every type name links to its definition.
"""

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from http import HTTPStatus
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from snapbid.describe.types import enumeration, type_of

STYLE: Final = files("snapbid.describe").joinpath("docs.css").read_text(encoding="utf-8")
MANY: Final = 30  # values of an enumeration; more are folded

_CODE: Final = re.compile(r"`([^`]+)`")


def page(document: dict[str, Any]) -> str:
    """The whole page."""
    title = f"{document['info']['title']} API"
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = document["components"]["schemas"]
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            *_navigation(document, operations, schemas),
            f'<main><h1 id="top">{escape(title)} <small>{escape(document["info"]["version"])}'
            "</small></h1>",
            *_introduction(document),
            *(part for operation in operations for part in _operation(document, *operation)),
            *_attributes(document["x-attributes"]),
            '<h2 id="events">Event catalog</h2>',
            "<p>Each event is an envelope with <code>event</code>, <code>timestamp</code>, "
            "<code>identity</code> and <code>context</code>. <b>Required</b> fields must be "
            "present and valid, <b>Suggested</b> and <b>Optional</b> ones may be missing but must "
            "be valid if sent.</p>",
            *(part for name in _events(schemas) for part in _schema(name, schemas[name])),
            '<h2 id="schemas">Objects and values</h2>',
            *(part for name in _others(schemas) for part in _schema(name, schemas[name])),
            "</main></body></html>\n",
        ]
    )


def _events(schemas: dict[str, Any]) -> list[str]:
    return [name for name, schema in schemas.items() if "x-preset" in schema]


def _others(schemas: dict[str, Any]) -> list[str]:
    return [name for name, schema in schemas.items() if "x-preset" not in schema]


def _navigation(
    document: dict[str, Any], operations: list[tuple[str, str, Any]], schemas: dict[str, Any]
) -> Iterator[str]:
    yield '<nav aria-label="Contents"><a class="name" href="#top">'
    yield f"{escape(document['info']['title'])} API</a>"
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2><ul>"
        for method, _, operation in operations:
            if tag["name"] in operation["tags"]:
                yield f'<li><a href="#{operation["operationId"]}"><b class="{method}">{method}</b> '
                yield f"{_inline(operation['summary'])}</a>"
        yield "</ul>"
    yield '<p><a href="#honoured">What we honour</a></p>'
    for title, anchor, names in (
        ("Event catalog", "events", _events(schemas)),
        ("Objects and values", "schemas", _others(schemas)),
    ):
        yield f'<details><summary><a href="#{anchor}">{title}</a></summary><ul>'
        for name in names:
            yield f'<li><a href="#{name}">{escape(schemas[name].get("title", name))}</a>'
        yield "</ul></details>"
    yield '<p><a href="/openapi.json">openapi.json</a></nav>'


def _introduction(document: dict[str, Any]) -> Iterator[str]:
    yield f'<p class="server"><code>{escape(document["servers"][0]["url"])}</code></p>'
    yield _paragraphs(document["info"]["description"])
    yield '<h3 id="credentials">Credentials</h3><dl>'
    for name, scheme in document["components"]["securitySchemes"].items():
        header = "X-API-KEY: …" if scheme["type"] == "apiKey" else "Authorization: Bearer …"
        yield f'<dt id="{name}"><code>{header}</code><dd>{_inline(scheme["description"])}'
    yield "</dl>"


def _operation(
    document: dict[str, Any], method: str, path: str, operation: dict[str, Any]
) -> Iterator[str]:
    yield f'<section><h2 id="{operation["operationId"]}">{_inline(operation["summary"])}</h2>'
    yield f'<p class="route"><b class="{method}">{method}</b> <code>{escape(path)}</code></p>'
    yield _paragraphs(operation["description"])
    for names in operation["security"]:
        for name in names:
            yield f'<p>Needs credentials: <a href="#{name}">{escape(name)}</a>.</p>'
    rows = [
        (
            f"<code>{escape(parameter['name'])}</code>",
            f"{parameter['in']}{', required' if parameter.get('required') else ''}",
            _inline(parameter["description"]),
        )
        for parameter in operation.get("parameters", ())
    ]
    yield from _table("Parameters", ("Name", "Where", "Meaning"), rows)
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        yield f"<h3>Body</h3><p>{type_of(schema)}, as JSON.</p>"
    yield from _table("Answers", ("Status", "Body", "When"), _answers(operation["responses"]))
    yield "<h3>Examples</h3>"
    base = document["servers"][0]["url"]
    for example in operation["x-examples"]:
        yield from _example(base, example, operation["responses"])
    yield "</section>"


def _attributes(attributes: list[dict[str, str]]) -> Iterator[str]:
    """What becomes of each attribute of a bid request, by object."""
    yield '<h2 id="honoured">What we honour</h2>'
    yield "<p>Every attribute of a bid request (OpenRTB 2.6 to 202606, Native Ads 1.2), and the "
    yield "lists of AdCOM. <b>Enforced</b>: a limit that no bid breaks. <b>Targeted</b>: campaigns "
    yield "can ask for it; the dimension is named. <b>Used</b>: read for another purpose.</p>"
    for owner, entries in groupby(attributes, itemgetter("object")):
        rows = [
            (f"<code>{escape(entry['name'])}</code>", entry["status"], _inline(entry["note"]))
            for entry in entries
        ]
        yield "<details><summary>" + escape(owner) + "</summary>"
        yield from _table("", ("Attribute", "Status", "How, or why not"), rows)
        yield "</details>"


def _answers(responses: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for status, response in responses.items():
        content = response.get("content", {})
        bodies = [
            type_of(media["schema"]) + _codes(media["schema"]) or escape(media_type)
            for media_type, media in content.items()
        ]
        carried = ", ".join(f"<code>{escape(name)}</code>" for name in response.get("headers", ()))
        headers = f'<br><span class="faint">Headers: {carried}</span>' if carried else ""
        name = escape(HTTPStatus(int(status)).phrase)
        kind = f'<b class="s{status[0]}">{status}</b> {name}'
        yield kind, "".join(bodies) or "none", _inline(response["description"]) + headers


def _codes(schema: dict[str, Any]) -> str:
    """The error codes that an error body may have."""
    narrowed = schema.get("allOf", [{}])[-1].get("properties", {})
    codes = [code for schema in narrowed.values() for code in enumeration(schema)]
    return "".join(f"<br><code>{escape(code)}</code>" for code in codes)


def _example(base: str, example: dict[str, Any], responses: dict[str, Any]) -> Iterator[str]:
    status = example["status"]
    yield f'<details><summary>{escape(example["summary"])} <b class="s{str(status)[0]}">'
    yield f"{status}</b></summary><pre>{escape(_curl(base, example))}</pre>"
    answer = example.get("answer")
    if answer is None and "code" in example:
        content = responses[str(status)]["content"]["application/json"]
        shown = content["examples"].values()
        answer = next(item["value"] for item in shown if example["code"] in item["value"].values())
    if answer is not None:
        yield f"<pre>{escape(json.dumps(answer, indent=2, ensure_ascii=False))}</pre>"
    yield "</details>"


def _curl(base: str, example: dict[str, Any]) -> str:
    lines = [f"curl -i '{base}{example['target']}'"]
    for name, value in example.get("headers", {}).items():
        lines.append(f'-H "{name}: {value}"')
    if "body" in example:
        lines.append(f"-d '{json.dumps(example['body'])}'")
    return " \\\n  ".join(lines)


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f'<section class="schema"><h3 id="{name}">{escape(schema.get("title", name))}</h3>'
    yield _paragraphs(schema.get("description", ""))
    if "discriminator" in schema:
        yield '<p>See the <a href="#events">event catalog</a>.</p></section>'
        return
    rows = [*_fields("", schema)]
    if rows:
        yield from _table("", ("Field", "Type", "Meaning"), rows)
    elif values := enumeration(schema):
        yield f"<p>{_values(values)}</p>"
    else:
        yield f"<p>{type_of(schema)}</p>"
    yield "</section>"


def _fields(prefix: str, schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Table rows; fields of an unnamed inner object are listed in place, with their paths."""
    for field, inner in schema.get("properties", {}).items():
        path = f"{prefix}{field}"
        if "properties" in inner:
            yield f"<code>{escape(path)}</code>", "object", _inline(inner.get("description", ""))
            yield from _fields(f"{path}.", inner)
            continue
        level = inner.get("x-level") or ("Required" if field in schema.get("required", ()) else "")
        values = enumeration(inner)
        shown = "one of " + _values(values) if values and len(values) > 1 else ""
        text = "; ".join(part for part in (_inline(inner.get("description", "")), shown) if part)
        mark = f'<br><span class="{level.lower()}">{level}</span>' if level else ""
        yield f"<code>{escape(path)}</code>{mark}", type_of(inner), text


def _values(values: list[Any]) -> str:
    codes = [f"<code>{escape(str(value))}</code>" for value in values if value is not None]
    if len(codes) <= MANY:
        return ", ".join(codes)
    first, rest = codes[0], " ".join(codes)
    return f"<details><summary>{len(codes)} values, such as {first}</summary>{rest}</details>"


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    cells_of_rows = list(rows)
    if not cells_of_rows:
        return
    if title:
        yield f"<h3>{title}</h3>"
    cells = "".join(f'<th scope="col">{name}' for name in head)
    yield f'<div class="scroll"><table><thead><tr>{cells}</thead><tbody>'
    for row in cells_of_rows:
        yield "<tr>" + "".join(f"<td>{cell}" for cell in row)
    yield "</tbody></table></div>"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_inline(part)}</p>" for part in text.split("\n\n") if part)


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))
