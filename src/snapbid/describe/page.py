"""The description as one HTML page that needs nothing else, made from the OpenAPI document alone.

No scripts: what is long folds by itself, and links lead from each name to what it names.
"""

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

from snapbid.describe.words import enumeration, type_of

STYLE: Final = files("snapbid.describe").joinpath("docs.css").read_text(encoding="utf-8")
MANY: Final = 30  # values of a list that are not all shown

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
            *(part for each in operations for part in _operation(document, *each)),
            '<h2 id="events">Event catalog</h2>',
            "<p>Each event is an envelope with <code>event</code>, <code>timestamp</code>, "
            "<code>identity</code> and <code>context</code>. <b>Required</b> fields must be there "
            "and hold, <b>Suggested</b> and <b>Optional</b> ones may be missing but must hold "
            "where they are sent.</p>",
            *(part for each in _events(schemas) for part in _schema(each, schemas[each])),
            '<h2 id="schemas">Objects and values</h2>',
            *(part for each in _others(schemas) for part in _schema(each, schemas[each])),
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
        for method, _, of in operations:
            if tag["name"] in of["tags"]:
                yield f'<li><a href="#{of["operationId"]}"><b class="{method}">{method}</b> '
                yield f"{_inline(of['summary'])}</a>"
        yield "</ul>"
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
    document: dict[str, Any], method: str, path: str, of: dict[str, Any]
) -> Iterator[str]:
    yield f'<section><h2 id="{of["operationId"]}">{_inline(of["summary"])}</h2>'
    yield f'<p class="route"><b class="{method}">{method}</b> <code>{escape(path)}</code></p>'
    yield _paragraphs(of["description"])
    for names in of["security"]:
        for name in names:
            yield f'<p>Needs credentials: <a href="#{name}">{escape(name)}</a>.</p>'
    rows = [
        (
            f"<code>{escape(one['name'])}</code>",
            f"{one['in']}{', required' if one.get('required') else ''}",
            _inline(one["description"]),
        )
        for one in of.get("parameters", ())
    ]
    yield from _table("Parameters", ("Name", "Where", "Meaning"), rows)
    if "requestBody" in of:
        schema = of["requestBody"]["content"]["application/json"]["schema"]
        yield f"<h3>Body</h3><p>{type_of(schema)}, as JSON.</p>"
    yield from _table("Answers", ("Status", "Body", "When"), _answers(of["responses"]))
    yield "<h3>Examples</h3>"
    base = document["servers"][0]["url"]
    for example in of["x-examples"]:
        yield from _example(base, example, of["responses"])
    yield "</section>"


def _answers(responses: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for status, of in responses.items():
        content = of.get("content", {})
        bodies = [
            type_of(each["schema"]) + _codes(each["schema"]) or escape(media_type)
            for media_type, each in content.items()
        ]
        carried = ", ".join(f"<code>{escape(name)}</code>" for name in of.get("headers", ()))
        headers = f'<br><span class="faint">Headers: {carried}</span>' if carried else ""
        name = escape(HTTPStatus(int(status)).phrase)
        kind = f'<b class="s{status[0]}">{status}</b> {name}'
        yield kind, "".join(bodies) or "none", _inline(of["description"]) + headers


def _codes(schema: dict[str, Any]) -> str:
    """The error codes that an error's body may have."""
    narrowed = schema.get("allOf", [{}])[-1].get("properties", {})
    codes = [code for of in narrowed.values() for code in enumeration(of)]
    return "".join(f"<br><code>{escape(code)}</code>" for code in codes)


def _example(base: str, example: dict[str, Any], responses: dict[str, Any]) -> Iterator[str]:
    status = example["status"]
    yield f'<details><summary>{escape(example["summary"])} <b class="s{str(status)[0]}">'
    yield f"{status}</b></summary><pre>{escape(_curl(base, example))}</pre>"
    answer = example.get("answer")
    if answer is None and "code" in example:
        content = responses[str(status)]["content"]["application/json"]
        shown = content["examples"].values()
        answer = next(one["value"] for one in shown if example["code"] in one["value"].values())
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
    """Rows of a table; the fields of an object without a name of its own stand among them."""
    for field, of in schema.get("properties", {}).items():
        path = f"{prefix}{field}"
        if "properties" in of:
            yield f"<code>{escape(path)}</code>", "object", _inline(of.get("description", ""))
            yield from _fields(f"{path}.", of)
            continue
        level = of.get("x-level") or ("Required" if field in schema.get("required", ()) else "")
        values = enumeration(of)
        shown = "one of " + _values(values) if values and len(values) > 1 else ""
        text = "; ".join(part for part in (_inline(of.get("description", "")), shown) if part)
        mark = f'<br><span class="{level.lower()}">{level}</span>' if level else ""
        yield f"<code>{escape(path)}</code>{mark}", type_of(of), text


def _values(values: list[Any]) -> str:
    codes = [f"<code>{escape(str(value))}</code>" for value in values if value is not None]
    if len(codes) <= MANY:
        return ", ".join(codes)
    first, rest = codes[0], " ".join(codes)
    return f"<details><summary>{len(codes)} values, such as {first}</summary>{rest}</details>"


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    found = list(rows)
    if not found:
        return
    if title:
        yield f"<h3>{title}</h3>"
    cells = "".join(f'<th scope="col">{name}' for name in head)
    yield f'<div class="scroll"><table><thead><tr>{cells}</thead><tbody>'
    for row in found:
        yield "<tr>" + "".join(f"<td>{cell}" for cell in row)
    yield "</tbody></table></div>"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_inline(part)}</p>" for part in text.split("\n\n") if part)


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))
