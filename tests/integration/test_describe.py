"""The description against a real server: its examples, and what schemathesis makes of it."""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import schemathesis.checks as common
import schemathesis.specs.openapi.checks as openapi
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.openapi import from_dict
from support import sending
from support.browser import Browser, browser
from support.commands import succeed
from support.described import DOCUMENT, validator
from support.ops import ask, bid, prepare
from support.processes import eventually
from support.stack import JWT_SECRET, Stack

from snapbid.describe.samples import SAMPLES
from snapbid.report import tokens

CREDENTIALS = ("$KEY", "$SHOP_KEY", "$TOKEN")
GIVEN = {"apiKey": {"X-API-KEY": "$KEY"}, "reportToken": {"Authorization": "Bearer $TOKEN"}}
REQUESTS = 15  # of each kind, to each operation
ALWAYS = [
    common.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_headers_conformance,
    openapi.response_schema_conformance,
]
# What is valid under the schema, yet refused: the time, numbers that are infinite as doubles, and
# personal data that is deeper, or in another spelling.
BEYOND = {"timestamp_in_future", "out_of_range", "plaintext_pii"}


class Served(NamedTuple):
    """A server with an SSP and a campaign, and what partners were given."""

    stack: Stack
    key: str
    shop_key: str

    def filled(self, text: str) -> str:
        """A header with credentials in the place of their names; each token has its own rate."""
        token = tokens.issue("acme", JWT_SECRET.encode(), "snapbid")
        for name, value in zip(CREDENTIALS, (self.key, self.shop_key, token), strict=True):
            text = text.replace(name, value)
        return text


@pytest.fixture(scope="module")
def served(module_database: str, module_stack: Callable[..., Stack]) -> Served:
    prepare(module_database)
    succeed({"SNAPBID_DATABASE_URL": module_database}, "ssp", "add", "nova")
    shop = sending.issue(module_database, "shop", rate=1_000_000)
    casino = sending.issue(module_database, "casino", "igaming", rate=1_000_000)
    stack = module_stack()
    sending.await_key(stack.port, casino)
    eventually(lambda: bid(stack, "first")[0] == 200, "the campaign")
    return Served(stack, casino, shop)


def exchange(served: Served, example: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    headers = {name: served.filled(text) for name, text in example.get("headers", {}).items()}
    body = json.dumps(example["body"]).encode() if "body" in example else b""
    return ask(served.stack, example["method"], example["target"], body, ops=False, **headers)


EXAMPLES = [
    pytest.param(operation, example, id=f"{operation['operationId']}-{example['name']}")
    for methods in DOCUMENT["paths"].values()
    for operation in methods.values()
    for example in operation["x-examples"]
]


@pytest.mark.parametrize(("operation", "example"), EXAMPLES)
def test_examples_do_as_they_say(
    served: Served, operation: dict[str, Any], example: dict[str, Any]
) -> None:
    status, headers, body = exchange(served, example)
    assert status == example["status"], body
    described = operation["responses"][str(status)]
    if "content" not in described:
        assert body == b""
        return
    ((media_type, content),) = described["content"].items()
    assert headers["content-type"] == media_type
    named = {name.lower() for name in described.get("headers", {})}
    assert not {"retry-after", "allow", "www-authenticate", "ratelimit"} & headers.keys() - named
    if media_type == "image/gif":
        return
    answer = json.loads(body)
    assert [*validator(content["schema"]).iter_errors(answer)] == []
    if "code" in example:
        assert example["code"] in (answer.get("error"), answer.get("code"))
    if "answer" in example and status == 200 and operation["tags"] == ["Server events"]:
        assert answer == example["answer"]


def test_methods_and_sizes_are_refused_as_described(served: Served) -> None:
    for path, methods in DOCUMENT["paths"].items():
        ((method, operation),) = methods.items()
        target = path.replace("{sspId}", "acme")
        headers = {"x_api_key": served.key, "content_type": "application/json"}
        answers = [ask(served.stack, "PUT", target)]
        if method == "post":
            long = b" " * (5 << 20)
            answers.append(ask(served.stack, "POST", target, long, ops=False, **headers))
        for (status, carried, body), wanted in zip(answers, (405, 413), strict=False):
            assert status == wanted
            described = operation["responses"][str(status)]
            schema = described["content"]["application/json"]["schema"]
            assert [*validator(schema).iter_errors(json.loads(body))] == []
            assert ("allow" in carried) == ("Allow" in described.get("headers", {}))


LIMITED = [
    ("GET", "/api/v1/ssp/acme/report", "/api/v1/ssp/{sspId}/report"),
    ("POST", "/v3/s2s/event", "/v3/s2s/event"),
]


@pytest.mark.parametrize(("method", "target", "path"), LIMITED)
def test_rates_are_refused_as_described(
    served: Served, module_database: str, method: str, target: str, path: str
) -> None:
    key = sending.issue(module_database, "slow", rate=1)
    headers = {"authorization": served.filled("Bearer $TOKEN"), "x_api_key": key}
    answers: list[tuple[int, dict[str, str], bytes]] = []

    def is_limited() -> bool:
        answers.append(ask(served.stack, method, target, b"", ops=False, **headers))
        return answers[-1][0] == 429

    eventually(is_limited, "the limit")
    described = DOCUMENT["paths"][path][method.lower()]["responses"]["429"]
    _, carried, body = answers[-1]
    schema = described["content"]["application/json"]["schema"]
    assert [*validator(schema).iter_errors(json.loads(body))] == []
    assert {name.lower() for name in described["headers"]} <= carried.keys()


def test_the_document_is_served(served: Served) -> None:
    status, headers, body = ask(served.stack, "GET", "/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    document = json.loads(body)
    assert document["servers"] == [{"url": served.stack.base_url}]
    assert document["paths"].keys() == DOCUMENT["paths"].keys()
    assert headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/docs/search.json"])
def test_it_is_read_as_a_browser_reads(served: Served, path: str) -> None:
    status, headers, plain = ask(served.stack, "GET", path)
    assert status == 200
    assert "max-age" in headers["cache-control"]
    again = ask(served.stack, "GET", path, if_none_match=f'"other", W/{headers["etag"]}')
    assert (again[0], again[2]) == (304, b"")
    status, packed, body = ask(served.stack, "GET", path, accept_encoding="gzip")
    assert (status, packed["content-encoding"]) == (200, "gzip")
    assert packed["etag"] != headers["etag"]
    assert gzip.decompress(body) == plain
    status, bare, body = ask(served.stack, "HEAD", path)
    assert (status, bare["content-length"], body) == (200, str(len(plain)), b"")
    status, refused, _ = ask(served.stack, "POST", path, b"{}")
    assert (status, refused["allow"]) == (405, "GET, HEAD")


def test_the_first_page_leads_to_the_documentation(served: Served) -> None:
    status, headers, body = ask(served.stack, "GET", "/")
    assert (status, headers["location"], body) == (302, "/docs", b"")


PAGES = ["/docs", "/docs/bidding", "/docs/reports", "/docs/events", "/docs/attributes"]


def assets(page: bytes) -> list[str]:
    return re.findall(r'"(/docs/docs\.\w+\.(?:css|js))"', page.decode())


@pytest.mark.parametrize("path", PAGES)
def test_a_page_may_load_from_the_server_alone(served: Served, path: str) -> None:
    _, headers, page = ask(served.stack, "GET", path)
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert len(assets(page)) == 2
    for asset in assets(page):
        status, headers, text = ask(served.stack, "GET", asset)
        assert (status, headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
        assert hashlib.sha256(text).hexdigest()[:16] in asset


@pytest.mark.parametrize(("width", "height", "dark"), [(1280, 800, False), (390, 844, True)])
def test_the_pages_in_a_browser(served: Served, width: int, height: int, dark: bool) -> None:
    with browser(width, height, dark=dark) as window:
        window.open(f"{served.stack.base_url}/docs/events#ingestBatch")
        assert window.run("return scrollY") > 0, "the link leads nowhere"
        for path in PAGES:
            window.open(f"{served.stack.base_url}{path}")
            window.run(
                "document.querySelectorAll('details').forEach(part => part.open = true);"
                "window.fold = part => part.open = false"
            )
            margin = window.run("return getComputedStyle(document.body).marginTop")
            assert margin == "0px", "no style"
            wide = window.run("return document.documentElement.scrollWidth")
            assert wide <= window.run("return innerWidth"), f"{path} is wider than the window"
            assert window.problems() == []
            window.run("[...document.querySelectorAll('details')].slice(30).map(fold)")
            assert window.violations() == [], path


def test_what_the_script_adds(served: Served) -> None:
    with browser(1280, 800) as window:
        window.open(f"{served.stack.base_url}/docs/bidding")
        shown = (
            "return [...document.querySelectorAll('[role=tabpanel]')].filter(one => !one.hidden)"
            ".map(one => one.dataset.language)"
        )
        assert {*window.run(shown)} == {"curl"}
        window.run("document.querySelector('[role=tab][id$=Go]').click()")
        assert {*window.run(shown)} == {"Go"}
        window.open(f"{served.stack.base_url}/docs/events#Sha256")
        assert {*window.run(shown)} == {"Go"}, "the choice is forgotten"
        target = "document.getElementById('Sha256')"
        assert window.run(f"return {target}.checkVisibility() && {target}.open")
        assert window.run("return document.querySelectorAll('pre').length") == window.run(
            "return document.querySelectorAll('.copied button').length"
        )
        window.run(
            "const field = document.querySelector('#search input');"
            "field.value = 'bidfloorcur'; field.dispatchEvent(new Event('input'))"
        )
        hits = "return [...document.querySelectorAll('#search li a')].map(one => one.href)"
        eventually(lambda: bool(window.run(hits)), "hits of the search")
        assert window.run(hits)[0].endswith(("#Imp.bidfloorcur", "#Deal.bidfloorcur"))
        assert window.problems() == []


RECORD = (
    "window.sent = []; const real = fetch;"
    "window.fetch = (...all) => (sent.push(all), real(...all));"
)
SEND = (
    "const form = document.querySelector('form.try[data-path=\"{path}\"]');"
    "{fill} form.requestSubmit();"
)
OUTCOME = "return document.querySelector('form.try[data-path=\"{path}\"] .outcome').textContent"


def tried(window: Browser, path: str, fill: str) -> tuple[str, Any]:
    """What the form of a path shows after sending, and what it sent."""
    window.run(RECORD + SEND.format(path=path, fill=fill))
    outcome = OUTCOME.format(path=path)
    eventually(lambda: " ms" in window.run(outcome), "an answer")
    return window.run(outcome), window.run("return sent.at(-1)")


def test_requests_are_tried_as_tests(served: Served) -> None:
    """Whatever is typed, a bid has `test: 1`, an event the test mode; a notice counts nothing."""
    with browser(1280, 800) as window:
        window.open(f"{served.stack.base_url}/docs/bidding")
        typed = (
            "const area = form.querySelector('textarea');"
            "area.value = JSON.stringify({...JSON.parse(area.value), test: 0});"
        )
        outcome, (target, sent) = tried(window, "/api/v1/openrtb2/{sspId}/bid", typed)
        assert target == "/api/v1/openrtb2/acme/bid"
        assert outcome.startswith("200")
        assert '"price": 2' in outcome
        assert json.loads(sent["body"])["test"] == 1
        outcome, (target, sent) = tried(window, "/rtb/win", "")
        assert outcome.startswith("200")
        assert sent["method"] == "HEAD"
        window.open(f"{served.stack.base_url}/docs/events")
        key = f"form.querySelector('[name=X-API-KEY]').value = '{served.key}';"
        for path in ("/v3/s2s/event", "/v3/s2s/batch"):
            outcome, (_, sent) = tried(window, path, key)
            assert outcome.startswith("200")
            assert sent["headers"]["X-Test-Mode"] == "true"
        window.open(f"{served.stack.base_url}/docs/reports")
        token = served.filled("$TOKEN")
        outcome, _ = tried(
            window,
            "/api/v1/ssp/{sspId}/report",
            f"form.querySelector('[name=Authorization]').value = '{token}';",
        )
        assert outcome.startswith("200")
        assert '"currency": "USD"' in outcome
        assert window.problems() == []


PROGRAMS = {
    "curl": ["sh", "-c"],
    "Python": [sys.executable, "-c"],
    "JavaScript": ["node", "--input-type=module", "--eval"],
}


@pytest.mark.parametrize("language", PROGRAMS)
def test_samples_do_as_they_say(served: Served, language: str) -> None:
    """The first example of each operation, as the page shows it."""
    if shutil.which(PROGRAMS[language][0]) is None:
        pytest.skip(f"{PROGRAMS[language][0]} is not installed")
    environ = {name[1:]: served.filled(name) for name in CREDENTIALS}
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            example = operation["x-examples"][0]
            text = SAMPLES[language](served.stack.base_url, example)
            shown = subprocess.run(
                [*PROGRAMS[language], text],
                env={**os.environ, **environ},
                capture_output=True,
                text=True,
                errors="replace",  # a notice's pixel
            )
            assert re.search(rf"(^| ){example['status']}\b", shown.stdout), (text, shown)


FOUND = from_dict(DOCUMENT).get_all_operations()
OPERATIONS = {
    operation.ok().label: operation.ok() for operation in FOUND if isinstance(operation, Ok)
}


@pytest.mark.parametrize("mode", [*GenerationMode])
@pytest.mark.parametrize("label", OPERATIONS)
def test_generated_requests_are_answered_as_described(
    served: Served, label: str, mode: GenerationMode
) -> None:
    operation = OPERATIONS[label]
    path = {"sspId": "acme"} if "{sspId}" in label else None
    schemes = [name for names in operation.definition.raw["security"] for name in names]

    @seed(1)
    @settings(
        max_examples=REQUESTS,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(case=operation.as_strategy(generation_mode=mode, path_parameters=path))
    def run(case: "Case[Any]") -> None:
        given = {name: text for scheme in schemes for name, text in GIVEN[scheme].items()}
        headers = {name: served.filled(text) for name, text in given.items()}
        if mode is GenerationMode.POSITIVE:
            case.headers.pop("Content-Encoding", None)  # the body goes out as it is
        answer = case.call(base_url=served.stack.base_url, headers=headers)
        case.validate_response(answer, checks=ALWAYS[is_unmade(label) :])
        if mode is GenerationMode.POSITIVE:
            assert answer.status_code < 300 or may_be_refused(label, answer.json()), answer.text

    run()


def is_unmade(label: str) -> bool:
    """Whether it is answered 503 here, where no drain runs."""
    return "/demand" in label


def may_be_refused(label: str, answer: Any) -> bool:
    """Whether it was for what a schema cannot tell that a valid request was refused."""
    if "/bid" in label:
        return "is the same as" in answer["detail"]
    if "/report" in label or "/diagnosis" in label:
        return answer["error"] in ("bad_window", "bad_date")
    if is_unmade(label):
        return bool(answer["error"] == "unavailable")
    if "/s2s/" in label:
        rules = {violation["rule"] for violation in answer["violations"]}
        return rules <= BEYOND or (rules == {"malformed_json"} and "U+0000" in answer["message"])
    return "bytes" in answer["detail"]
