"""The bid endpoint over sockets, as exchanges and worse clients speak to it."""

import asyncio
import contextlib
import gzip
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.answers import check_bid_response, check_reply
from support.corpus import public_corpus
from support.stack import Stack
from support.wire import Wire, chunked, head

from snapbid.embedded import demo

PATH = "/api/v1/openrtb2/acme/bid"
JSON = {"content-type": "application/json"}
GOOD: dict[str, Any] = {
    "id": "auction 1",
    "imp": [{"id": "1", "banner": {"w": 300, "h": 250}, "bidfloor": 0}],
    "site": {"domain": "example.com", "page": "https://example.com/"},
    "device": {
        "ua": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        "ip": "203.0.113.7",
        "geo": {"country": "USA"},
    },
    "at": 1,
}
BODY = json.dumps(GOOD).encode()
NO_MEDIA = b'{"id":"1","imp":[{"id":"1"}]}'


@pytest.fixture(scope="module")
def server(module_database: str, module_stack: Callable[..., Stack]) -> Stack:
    asyncio.run(demo.seed(module_database))
    return module_stack()


@pytest.fixture
def wire(server: Stack) -> Iterator[Wire]:
    with Wire(server.port) as connection:
        yield connection


def still_serves(wire: Wire) -> None:
    assert wire.ask("POST", PATH, JSON, BODY).status == 200


def without_tmax(document: dict[str, Any]) -> dict[str, Any]:
    """On a busy machine an exchange's 50 ms would make a test of time of any other."""
    return {name: value for name, value in document.items() if name != "tmax"}


def test_the_connectivity_request_is_bid_on(server: Stack, wire: Wire) -> None:
    reply = wire.ask("POST", PATH, JSON, BODY)
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    (bid,) = check_bid_response(reply.json(), "auction 1", {"1"}, server.base_url)
    assert bid["nurl"] == f"{server.base_url}/rtb/win?id=auction%201&impId=1"


def test_the_public_corpus_is_answered(server: Stack, wire: Wire) -> None:
    corpus = public_corpus()
    if not corpus:
        pytest.skip("there is no public corpus: set SNAPBID_CORPUS to its directory")
    statuses = set()
    for name, document in corpus.items():
        body = json.dumps(without_tmax(document)).encode()
        reply = wire.ask("POST", PATH, JSON, body)
        try:
            check_reply(reply, body, server.base_url)
        except AssertionError as error:
            raise AssertionError(name) from error
        statuses.add(reply.status)
    assert statuses >= {200, 204}


# -- bodies as they arrive


def test_chunked_bodies(wire: Wire) -> None:
    start = head("POST", PATH, {"host": "x", "transfer-encoding": "chunked", **JSON})
    for parts in ([BODY], [BODY[:9], BODY[9:]], [BODY[n : n + 1] for n in range(len(BODY))]):
        wire.write(start, chunked(*parts))
        assert wire.read().status == 200
    wire.write(start, chunked())
    assert wire.read().status == 400
    still_serves(wire)


def test_a_body_that_comes_in_pieces(wire: Wire) -> None:
    wire.write(head("POST", PATH, {"host": "x", "content-length": len(BODY), **JSON}))
    for place in range(0, len(BODY), 50):
        wire.write(BODY[place : place + 50])
    assert wire.read().status == 200
    still_serves(wire)


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_client_disconnects_within_its_body(server: Stack, wire: Wire, framing: str) -> None:
    with Wire(server.port) as going:
        if framing == "length":
            going.write(head("POST", PATH, {"host": "x", "content-length": 500, **JSON}))
            going.write(BODY[:99])
        else:
            going.write(head("POST", PATH, {"host": "x", "transfer-encoding": "chunked", **JSON}))
            going.write(b"63\r\n" + BODY[:99] + b"\r\n")
        going.half_close()
        with contextlib.suppress(EOFError):  # the HTTP server may close without an answer
            assert going.read().status == 400
    still_serves(wire)
    assert "Traceback" not in server.output


def test_over_long_bodies(server: Stack) -> None:
    long = b" " * 262_145
    for headers, body in (
        ({"content-length": str(len(long))}, long),
        ({"transfer-encoding": "chunked"}, chunked(*[b" " * 1000] * 300)),
    ):
        with Wire(server.port) as wire:
            with contextlib.suppress(ConnectionError):  # it need not be read to its end
                wire.write(head("POST", PATH, {"host": "x", **JSON, **headers}), body)
            reply = wire.read()
            assert (reply.status, reply.json()["error"]) == (413, "too_large")
    with Wire(server.port) as wire:
        still_serves(wire)


def test_an_announced_length_is_refused_before_the_body(server: Stack) -> None:
    with Wire(server.port) as wire:
        wire.write(head("POST", PATH, {"host": "x", "content-length": 10**9, **JSON}))
        reply = wire.read()
        assert (reply.status, reply.headers["connection"]) == (413, "close")
        assert wire.at_end()


def test_keep_alive_after_each_refusal(wire: Wire) -> None:
    for status, method, path, headers, body in (
        (405, "PUT", PATH, JSON, BODY),
        (405, "GET", PATH, {}, b""),
        (405, "OPTIONS", PATH, {}, b""),
        (404, "POST", PATH.replace("acme", "nobody"), JSON, BODY),
        (404, "POST", "/none", JSON, BODY),
        (415, "POST", PATH, {"content-type": "text/plain"}, BODY),
        (200, "POST", PATH, {}, BODY),
        (400, "POST", PATH, {}, b"{"),
        (415, "POST", PATH, {**JSON, "content-encoding": "br"}, BODY),
        (413, "POST", PATH, JSON, b" " * 262_145),
        (400, "POST", PATH, JSON, b"{"),
        (400, "POST", PATH, {**JSON, "content-encoding": "gzip"}, BODY),
        (204, "POST", PATH, JSON, NO_MEDIA),
    ):
        for _ in range(2):
            assert wire.ask(method, path, headers, body).status == status
            still_serves(wire)


def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    bodies = [json.dumps({**GOOD, "id": str(number)}).encode() for number in range(20)]
    for body in bodies:
        wire.write(head("POST", PATH, {"host": "x", "content-length": len(body), **JSON}), body)
    assert [wire.read().json()["id"] for _ in bodies] == [str(number) for number in range(20)]


# -- methods and paths


@pytest.mark.parametrize("path", [PATH, "/healthz", "/readyz", "/nothing", "/metrics"])
def test_head_has_no_body(wire: Wire, path: str) -> None:
    assert wire.ask("HEAD", path).status == wire.ask("GET", path).status
    still_serves(wire)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods(wire: Wire, method: str) -> None:
    reply = wire.ask(method, PATH)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    if method != "HEAD":
        assert reply.json()["error"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (PATH + "?x=1", 200),
        (PATH + "?", 200),
        (PATH.replace("acme", "%61cme"), 200),  # the same path (RFC 3986, 6.2.2.2)
        (PATH + "/", 404),
        ("/" + PATH, 404),
        (PATH.replace("/bid", "//bid"), 404),
        (PATH.replace("acme", ".."), 404),
        (PATH.replace("acme", "nova/../acme"), 404),
        (PATH.replace("acme", "acme%2F"), 404),
        (PATH.replace("acme", "acme%00"), 404),
        (PATH.replace("acme", "%ff%fe"), 404),
        (PATH.replace("acme", "%"), 404),
        (PATH.replace("acme", "%zz"), 404),
        (PATH.replace("acme", "ACME"), 404),
        (PATH.replace("acme", "x" * 8000), 404),
        ("/api" + PATH[4:].replace("/", "%2F"), 200),  # ASGI paths are decoded
        ("/..%2f..%2fetc/passwd", 404),
        ("/metrics", 404),
    ],
    ids=lambda value: str(value)[:50],
)
def test_paths(wire: Wire, path: str, status: int) -> None:
    reply = wire.ask("POST", path, JSON, BODY)
    assert reply.status == status
    if status == 404:
        assert reply.json()["error"] in ("not_found", "unknown_ssp")
    still_serves(wire)


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
        b"POST  HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        head("POST", PATH, {"host": "x", "content-length": "-1"}),
        head("POST", PATH, {"host": "x", "content-length": "x"}),
        head("POST", PATH, {"host": "x", "transfer-encoding": "chunked", **JSON}) + b"zz\r\n",
        head("GET", "/healthz", {"host": "x", "x": "y" * 1_000_000}),
        head("GET", "/" + "x" * 100_000, {"host": "x"}),
    ],
    ids=lambda raw: str(raw[:30]),
)
def test_malformed_http_closes_the_connection(server: Stack, raw: bytes) -> None:
    with Wire(server.port) as wire, contextlib.suppress(EOFError, ConnectionError):
        wire.write(raw)
        wire.half_close()
        assert 400 <= wire.read().status < 500
    with Wire(server.port) as wire:
        still_serves(wire)


# -- content types and encodings


def test_gzipped_requests(wire: Wire) -> None:
    headers = {**JSON, "content-encoding": "gzip"}
    packed = gzip.compress(BODY)
    assert wire.ask("POST", PATH, headers, packed).status == 200
    assert wire.ask("POST", PATH, headers, packed[:-4]).status == 400
    assert wire.ask("POST", PATH, headers, gzip.compress(b" " * 50_000_000)).status == 413
    still_serves(wire)


def test_gzipped_responses(wire: Wire) -> None:
    imps = [{**GOOD["imp"][0], "id": str(number)} for number in range(10)]
    body = json.dumps({**GOOD, "imp": imps}).encode()
    plain = wire.ask("POST", PATH, JSON, body)
    packed = wire.ask("POST", PATH, {**JSON, "accept-encoding": "br, gzip"}, body)
    assert len(plain.body) > 1024
    assert packed.headers["content-encoding"] == "gzip"
    unpacked = json.loads(gzip.decompress(packed.body))
    assert len(unpacked["seatbid"][0]["bid"]) == len(plain.json()["seatbid"][0]["bid"])
    empty = wire.ask(
        "POST", PATH, {**JSON, "accept-encoding": "gzip"}, b'{"id":"1","imp":[{"id":1}]}'
    )
    assert (empty.status, empty.body, "content-encoding" in empty.headers) == (204, b"", False)


def test_no_answer_reveals_internals(server: Stack, wire: Wire) -> None:
    for path, body in ((PATH, b"{"), ("/nothing", b""), (PATH.replace("acme", "x"), b"")):
        reply = wire.ask("POST", path, JSON, body)
        text = reply.body.decode() + str(reply.headers)
        for secret in ("Traceback", ".py", os.sep + "home", server.environ["SNAPBID_HOME"]):
            assert secret not in text
