"""The description against a real server: its examples, and what schemathesis makes of it."""

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator
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

from snapbid.events.catalog import EVENTS
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
def test_examples_behave_as_described(
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


LIBRARY = "/docs/scalar-1.76.0.js"
NAME = "@scalar/api-reference@1.76.0"
PAGES = ["/docs", "/docs/attributes"]


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/docs/attributes.json", LIBRARY])
def test_browsers_get_html(served: Served, path: str) -> None:
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


@pytest.mark.parametrize("path", PAGES)
def test_a_page_may_load_from_the_server_alone(served: Served, path: str) -> None:
    _, headers, page = ask(served.stack, "GET", path)
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert "http" not in headers["content-security-policy"]
    loaded = re.findall(r'<(?:script|link)\b[^>]* (?:src|href)="([^"]+)"', page.decode())
    assets = [address for address in loaded if address != "data:,"]
    assert len(assets) == len(loaded) - 1 == 3
    assert LIBRARY in assets
    for asset in assets:
        status, headers, text = ask(served.stack, "GET", asset)
        assert (status, headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
        assert asset == LIBRARY or hashlib.sha256(text).hexdigest()[:16] in asset


HEADINGS = "return [...document.querySelectorAll('h1, h2, h3')].map(each => each.textContent)"


def by_text(selector: str, text: str) -> str:
    """An expression of the first element with a text."""
    elements = f"[...document.querySelectorAll({json.dumps(selector)})]"
    return f"{elements}.find(each => each.textContent.includes({json.dumps(text)}))"


def shown(window: Browser, served: Served, address: str, heading: str) -> None:
    """Open a page afresh, and wait until a heading is there."""
    window.open("about:blank")
    window.open(f"{served.stack.base_url}{address}")
    eventually(lambda: any(heading in text for text in window.run(HEADINGS)), heading)


def awaited(window: Browser, expression: str) -> str:
    """The expression of an element, once it is there."""
    eventually(lambda: bool(window.run(f"return Boolean({expression})")), expression)
    return expression


def click(window: Browser, selector: str, text: str) -> None:
    """Click the first element with a text, once it is there."""
    window.run(f"{awaited(window, by_text(selector, text))}.click()")


def complaints(window: Browser) -> list[str]:
    """Messages of the console, the library's name left out."""
    return [text for text in window.problems() if not text.endswith(f'"{NAME}"')]


BID = "/docs#tag/bidding/POST/api/v1/openrtb2/{sspId}/bid"
EVENT = "/docs#tag/server-events/POST/v3/s2s/event"
SHOWN = [
    ("/docs", "Snapbid"),
    (BID, "Submit a bid request"),
    (EVENT, "Send one event"),
    ("/docs#models/DepositEvent", "deposit"),
    ("/docs/attributes", "What we honour"),
]
ELSEWHERE = (
    "return performance.getEntriesByType('resource').map(each => each.name)"
    ".filter(name => !/^(data|blob):/.test(name) && !name.startsWith(location.origin + '/'))"
)

BROKEN = (
    "return [...document.querySelectorAll('td')].map(each => getComputedStyle(each).wordBreak)"
    ".filter(rule => rule !== 'normal')"
)


@pytest.fixture(scope="module")
def shared_window() -> Iterator[Browser]:
    with browser(1280, 800) as window:
        yield window


@pytest.fixture
def window(shared_window: Browser) -> Browser:
    """A window with nothing of other tests in its page and console, and their light scheme."""
    shared_window.open("about:blank")
    shared_window.prefer("light")
    shared_window.problems()
    return shared_window


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_pages_in_a_browser(served: Served, width: int, height: int) -> None:
    with browser(width, height) as window:
        for address, heading in SHOWN:
            shown(window, served, address, heading)
            wide = window.run("return document.documentElement.scrollWidth")
            assert wide <= window.run("return innerWidth"), f"{address} is wider than the window"
            assert window.run(BROKEN) == [], "a table's words are broken"
            assert window.run(ELSEWHERE) == []
            assert complaints(window) == []
            assert window.violations() == [], address


SAMPLES = {
    "Shell": "curl http",
    "Python": "requests.post(",
    "JavaScript": "fetch('",
    "Go": "http.NewRequest(",
}


def test_samples_are_shown_in_several_languages(served: Served, window: Browser) -> None:
    shown(window, served, "/docs", "Snapbid")
    for language, text in SAMPLES.items():
        click(window, "[role=tab]", language)
        awaited(window, by_text("pre", text))
    assert complaints(window) == []


HITS = "return [...document.querySelectorAll('[role=option]')].map(each => each.textContent)"


def searched(window: Browser, text: str, hit: str, *, pasted: bool = False) -> None:
    """Type into the search, which is open, until its first hit is this."""
    window.run("document.activeElement.select()")
    (window.paste if pasted else window.type)(text)
    eventually(lambda: hit in next(iter(window.run(HITS)), ""), f"{hit} for {text}")


def test_every_event_is_found_by_keyboard(served: Served, window: Browser) -> None:
    shown(window, served, "/docs", "Snapbid")
    window.press("Control", "k")
    eventually(lambda: window.run("return document.activeElement.type") == "search", "search")
    for name in EVENTS:
        searched(window, name, f" {name} ", pasted=True)
    searched(window, "deposit_failed", " deposit_failed ")
    window.press("ArrowDown")
    window.press("Enter")
    address = "#models/DepositFailedEvent"
    eventually(lambda: window.run("return location.hash") == address, "the event")
    assert complaints(window) == []


def test_fields_are_found_with_their_objects(served: Served, window: Browser) -> None:
    shown(window, served, "/docs", "Snapbid")
    window.press("Control", "k")
    eventually(lambda: window.run("return document.activeElement.type") == "search", "search")
    searched(window, "bidfloorcur", " Submit a bid request ")
    for name in ("Imp", "Deal"):
        assert any(f" {name} " in hit for hit in window.run(HITS))
    assert window.violations() == []


RECORD = """
    window.sent = [];
    const real = window.fetch;
    window.fetch = async (request, ...rest) => {
        const { method, url } = request;
        const headers = Object.fromEntries(request.headers);
        const sending = { method, url, headers, body: await request.clone().text() };
        sent.push(sending);
        const answer = await real(request, ...rest);
        sending.status = answer.status;
        return answer;
    };
"""
DIALOG = "document.querySelector('[role=dialog][aria-label=\"API Client\"]')"


def tried(
    window: Browser, served: Served, tag: str, method: str, path: str, credential: str = ""
) -> dict[str, Any]:
    """Send an operation's example from its form, by keyboard; returns what was sent."""
    heading = DOCUMENT["paths"][path][method]["summary"]
    shown(window, served, f"/docs#tag/{tag}/{method.upper()}{path}", heading)
    window.run(RECORD)
    button = by_text("button", f"Test Request({method} {path})")
    window.run(f"{awaited(window, button)}.focus()")
    window.press("Enter")
    awaited(window, DIALOG)
    if credential:
        click(window, "[role=dialog] button", "Authentication")
        field = f"{DIALOG}.querySelector('.scalar-password-input')"
        window.run(f"{awaited(window, field)}.focus()")
        window.paste(credential)
    send = by_text("[role=dialog] button", f"Send {method} request to")
    window.run(f"{awaited(window, send)}.focus()")
    window.press("Enter")
    eventually(lambda: window.run("return sent.at(-1)?.status") == 200, "an answer")
    sent: dict[str, Any] = window.run("return sent.at(-1)")
    return sent


def answered(window: Browser, text: str) -> None:
    """Wait until the form shows this in the answer's body."""
    section = f"{DIALOG}.querySelector('section[aria-label=Response]')"
    shown = f"return {section}?.textContent ?? ''"
    eventually(lambda: text in window.run(shown), f"{text} in the answer")


def test_requests_are_tried_as_tests(served: Served, window: Browser) -> None:
    """A bid has `test: 1`, an event the test mode; a notice counts nothing."""
    sent = tried(window, served, "bidding", "post", "/api/v1/openrtb2/{sspId}/bid")
    assert sent["url"] == f"{served.stack.base_url}/api/v1/openrtb2/acme/bid"
    assert json.loads(sent["body"])["test"] == 1
    answered(window, '"price"')
    sent = tried(window, served, "notifications", "get", "/rtb/win")
    assert sent["method"] == "HEAD"
    for path in ("/v3/s2s/event", "/v3/s2s/batch"):
        sent = tried(window, served, "server-events", "post", path, served.key)
        assert sent["headers"]["x-test-mode"] == "true"
        answered(window, "valid")
    tried(window, served, "reports", "get", "/api/v1/ssp/{sspId}/report", served.filled("$TOKEN"))
    answered(window, '"currency"')
    assert complaints(window) == []


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
