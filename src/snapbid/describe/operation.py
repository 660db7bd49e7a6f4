"""An operation of the API: what is sent and answered, samples in several languages, and a form."""

import json
from collections.abc import Iterator
from html import escape
from http import HTTPStatus
from typing import Any

from snapbid.describe.fields import FieldWriter
from snapbid.describe.markup import inline, paragraphs, pretty
from snapbid.describe.openapi import JSON_TYPE, TRY
from snapbid.describe.samples import SAMPLES
from snapbid.describe.types import enumeration, type_of

Operation = dict[str, Any]


def operation(
    base: str, method: str, path: str, described: Operation, fields: FieldWriter
) -> Iterator[str]:
    """The section of an operation; samples call the server at `base`."""
    name = described["operationId"]
    yield f'<section class="operation" aria-labelledby="{name}"><div>'
    yield f'<h2 id="{name}">{inline(described["summary"])}</h2>'
    yield f'<p class="route"><b class="{method}">{method}</b> <code>{escape(path)}</code></p>'
    yield paragraphs(described["description"])
    for scheme in (scheme for schemes in described["security"] for scheme in schemes):
        yield f'<p>Needs credentials: <a href="#{scheme}">{escape(scheme)}</a>.</p>'
    yield from _parameters(name, described.get("parameters", ()))
    if "requestBody" in described:
        yield "<h3>Body</h3>"
        schema = described["requestBody"]["content"][JSON_TYPE]["schema"]
        yield from fields.body(f"{name}.body", schema)
    yield "<h3>Answers</h3>"
    for status, response in described["responses"].items():
        yield from _answer(name, status, response, fields)
    yield '</div><div class="aside">'
    yield from _form(method, path, described)
    yield "<h3>Examples</h3>"
    for number, example in enumerate(described["x-examples"]):
        yield from _example(base, example, described["responses"], is_open=number == 0)
    yield "</div></section>"


def _parameters(name: str, parameters: Any) -> Iterator[str]:
    if not parameters:
        return
    yield '<h3>Parameters</h3><ul class="fields">'
    for parameter in parameters:
        required = ' <b class="required">required</b>' if parameter.get("required") else ""
        yield f'<li id="{name}.{parameter["name"]}"><code>{escape(parameter["name"])}</code> '
        yield f'<span class="type">{parameter["in"]}, {type_of(parameter["schema"])}</span>'
        yield f"{required}<p>{inline(parameter['description'])}</p></li>"
    yield "</ul>"


def _answer(name: str, status: str, response: dict[str, Any], fields: FieldWriter) -> Iterator[str]:
    succeeds = status < "300"
    phrase = escape(HTTPStatus(int(status)).phrase)
    yield f'<details class="answer" id="{name}.{status}"{" open" if succeeds else ""}>'
    yield f'<summary><b class="s{status[0]}">{status}</b> {phrase}</summary>'
    yield f"<p>{inline(response['description'])}</p>"
    if headers := response.get("headers"):
        yield '<ul class="fields">'
        for header, described in headers.items():
            yield f"<li><code>{escape(header)}</code> "
            yield f'<span class="type">header</span><p>{inline(described["description"])}</p></li>'
        yield "</ul>"
    for media_type, media in response.get("content", {}).items():
        schema = media["schema"]
        if media_type != JSON_TYPE:
            yield f'<p class="type">{escape(media_type)}</p>'
            continue
        if codes := _codes(schema):
            yield f"<p>Codes: {codes}</p>"
        yield from fields.body(f"{name}.{status}", schema)
        for example in () if succeeds else media.get("examples", {}).values():
            yield f"<p>{inline(example['summary'])}:</p>{_block(pretty(example['value']))}"
    yield "</details>"


def _codes(schema: dict[str, Any]) -> str:
    """The error codes that an error body may have."""
    narrowed = schema.get("allOf", [{}])[-1].get("properties", {})
    codes = [code for inner in narrowed.values() for code in enumeration(inner)]
    return ", ".join(f"<code>{escape(code)}</code>" for code in codes)


def _example(
    base: str, example: dict[str, Any], responses: dict[str, Any], *, is_open: bool
) -> Iterator[str]:
    status = example["status"]
    yield f'<details class="example"{" open" if is_open else ""}>'
    yield f'<summary>{escape(example["summary"])} <b class="s{str(status)[0]}">{status}</b>'
    yield '</summary><div class="tabs">'
    for language, write in SAMPLES.items():
        yield f'<div data-language="{language}"><p class="language">{language}</p>'
        yield f"{_block(escape(write(base, example), quote=False))}</div>"
    yield "</div>"
    answer = example.get("answer")
    if answer is None and "code" in example:
        shown = responses[str(status)]["content"][JSON_TYPE]["examples"].values()
        answer = next(item["value"] for item in shown if example["code"] in item["value"].values())
    if answer is not None:
        yield f'<p class="language">Answer</p>{_block(pretty(answer))}'
    yield "</details>"


def _block(text: str) -> str:
    return f"<pre>{text}</pre>"


def _form(method: str, path: str, described: Operation) -> Iterator[str]:
    """The form that sends a request from the page; its script shows it."""
    attempt = described.get(TRY, {})
    name = described["operationId"]
    example = next(
        (shown for shown in described["x-examples"] if shown["name"] == attempt.get("example")),
        described["x-examples"][0],
    )
    fixed = {name: text for name, text in example.get("headers", {}).items() if "$" not in text}
    yield f'<form class="try" hidden data-method="{attempt.get("method", method.upper())}" '
    yield f'data-path="{escape(path)}" data-headers="{escape(json.dumps(fixed))}" '
    yield f'data-sets="{escape(json.dumps(attempt.get("sets", {})))}"><h3>Try it</h3>'
    if "note" in attempt:
        yield f"<p>{inline(attempt['note'])}</p>"
    schemes = [scheme for schemes in described["security"] for scheme in schemes]
    for scheme in schemes:
        header, before = ("X-API-KEY", "") if scheme == "apiKey" else ("Authorization", "Bearer ")
        yield f'<label>{escape(scheme)} <input type="password" autocomplete="off" required '
        yield f'data-in="header" data-before="{before}" name="{header}"></label>'
    for parameter in described.get("parameters", ()):
        if parameter["name"] in fixed or parameter["name"].endswith("-Encoding"):
            continue  # set already, or the browser's own
        yield _input(name, parameter)
    if "body" in example:
        text = pretty(example["body"])
        yield f'<label>Body <textarea rows="12" spellcheck="false">{text}</textarea></label>'
    yield '<button type="submit">Send</button><div class="outcome" role="status"></div></form>'


def _input(name: str, parameter: dict[str, Any]) -> str:
    required = " required" if parameter.get("required") else ""
    value = escape(str(parameter.get("example", "")))
    return (
        f'<label>{escape(parameter["name"])} <input data-in="{parameter["in"]}" '
        f'name="{escape(parameter["name"])}" value="{value}" autocomplete="off"{required}></label>'
    )
