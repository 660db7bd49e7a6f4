"""Hostile HTTP over sockets, while a well-behaved client keeps being served.

In each test the worker survives, the bystander's next request is answered, no client's bytes become
another's request, memory is released, and no answer reveals internals.
"""

import contextlib
import gzip
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bystander import BODY, JSON, PATH, REQUEST, Bystander
from support.processes import eventually, workers_of
from support.stack import Stack
from support.wire import Wire, chunked, head

from snapbid.base.http import zstd

pytestmark = pytest.mark.usefixtures("bystander")

HEALTH = head("GET", "/healthz", {"host": "x"})
HEALTHY = b'{"status":"ok"}'
HALF_OPEN = 1_000
GROWTH_KB = (
    48 * 1024
)  # by which a process may grow: the size of a thousand connections and 4 MiB bodies


def exchange(port: int, *raw: bytes) -> bytes:
    """Send these bytes and then a GET of /healthz; returns all that comes back, until that is
    answered or the other side closes.
    """
    received = b""
    with (
        socket.create_connection(("127.0.0.1", port), 20) as connection,
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(b"".join(raw) + HEALTH)
        while HEALTHY not in received and (part := connection.recv(65_536)):
            received += part
    return received


def statuses(answers: bytes) -> list[int]:
    """The statuses of consecutive answers."""
    return [int(each[:3]) for each in answers.split(b"HTTP/1.1 ")[1:]]


def tells_nothing(server: Stack, answers: bytes) -> None:
    for secret in (b"Traceback", b".py", b".rs", b"panicked", server.environ["SNAPBID_HOME"]):
        assert (secret if isinstance(secret, bytes) else secret.encode()) not in answers


def resident_kb(server: Stack) -> int:
    """The private memory of the workers."""
    assert server.process
    total = 0
    for pid in workers_of(server.process.pid):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                total += int(line.split()[1])
    return total


@contextlib.contextmanager
def memory_comes_back(server: Stack) -> Iterator[None]:
    before = resident_kb(server)
    yield
    eventually(
        lambda: resident_kb(server) < before + GROWTH_KB,
        f"memory is back near {before} kB, is {resident_kb(server)} kB",
    )


def bid_head(**headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return head("POST", PATH, {"host": "x", **JSON, **named})


# -- request smuggling

TWICE = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" % PATH.encode()
INNER = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
SMUGGLED = {
    "two lengths": TWICE + b"content-length: 0\r\ncontent-length: %d\r\n\r\n" % len(INNER) + INNER,
    "a list of lengths": TWICE + b"content-length: 0, %d\r\n\r\n" % len(INNER) + INNER,
    "a length with a sign": TWICE + b"content-length: +%d\r\n\r\n" % len(INNER) + INNER,
    "a length in hexadecimal": TWICE + b"content-length: 0x10\r\n\r\n" + INNER,
    "a length of 40 digits": TWICE + b"content-length: " + b"9" * 40 + b"\r\n\r\n" + INNER,
    "a length over 64 bits": TWICE + b"content-length: 18446744073709551616\r\n\r\n" + INNER,
    "an unknown coding": TWICE + b"transfer-encoding: xchunked\r\n\r\n" + INNER,
    "chunked is not last": TWICE + b"transfer-encoding: chunked, gzip\r\n\r\n" + INNER,
    "a space before the colon": TWICE + b"content-length : %d\r\n\r\n" % len(INNER) + INNER,
    "a folded header": TWICE + b"x: a\r\n b\r\ncontent-length: %d\r\n\r\n" % len(INNER) + INNER,
    "a header with NUL": TWICE + b"x: a\0b\r\ncontent-length: %d\r\n\r\n" % len(INNER) + INNER,
    "a bare CR": TWICE + b"x: a\rcontent-length: %d\r\n\r\n" % len(INNER) + INNER,
    "a chunk over 64 bits": TWICE
    + b"transfer-encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n"
    + INNER,
    "a negative chunk": TWICE + b"transfer-encoding: chunked\r\n\r\n-1\r\n" + INNER,
    "a chunk without its end": TWICE
    + b"transfer-encoding: chunked\r\n\r\n5\r\nhelloX0\r\n\r\n"
    + INNER,
}


@pytest.mark.parametrize("how", SMUGGLED)
def test_no_request_hides_in_another(server: Stack, how: str) -> None:
    answers = exchange(server.port, SMUGGLED[how])
    tells_nothing(server, answers)
    assert [status // 100 for status in statuses(answers)] == [4], answers
    assert b"not_found" not in answers, "what was inside was served"


def test_a_length_beside_chunks(server: Stack) -> None:
    """RFC 9112, 6.3: the chunks decide where the body ends, not the length."""
    for length in ("0", "4", str(len(chunked(BODY)))):
        start = bid_head(content_length=length, transfer_encoding="chunked")
        answers = exchange(server.port, start, chunked(BODY))
        assert statuses(answers)[:1] in ([200], [400]), answers
        assert statuses(answers) in ([200, 200], [200], [400]), answers


# -- requests that are refused


@pytest.mark.parametrize(
    "raw",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
        b"GET / HTTP/2.0\r\nhost: x\r\n\r\n",
        b"GET /\r\n",
        b"\0" * 4096,
        b"\xff" * 70_000,
        b"PING\r\n*1\r\n$4\r\nPING\r\n",
        head("GET", "/healthz", {"host": "x", **{f"x-{n}": "y" for n in range(500)}}),
        head("GET", "/healthz", {"host": "x", "cookie": "y" * 600_000}),
        head("GET", "/healthz", {"host": "x", "y" * 300_000: "z"}),
        head("GET", "/healthz?" + "x" * 70_000, {"host": "x"}),
        head("GET", "/\0", {"host": "x"}),
        head("GET", "/a b", {"host": "x"}),
        head("GE\tT", "/healthz", {"host": "x"}),
    ],
    ids=lambda raw: str(raw[:24]),
)
def test_requests_refused_outright(server: Stack, raw: bytes) -> None:
    with memory_comes_back(server):
        answers = exchange(server.port, raw)
    tells_nothing(server, answers)
    assert HEALTHY not in answers, "the rest was taken for another request"
    assert [status // 100 for status in statuses(answers)] in ([], [4]), answers


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("http://elsewhere.example/healthz", "x"),
        ("/healthz", "evil.example:1"),
        ("/healthz", "\xff\xfe"),
        ("/healthz", "a" * 5000),
        ("/healthz", ""),
        ("/healthz?x=%00%ff%0d%0a", "x"),
        ("/%68ealthz", "x"),
    ],
)
def test_other_hosts_make_no_difference(server: Stack, target: str, host: str) -> None:
    """The host decides nothing, and no part of an answer is taken from it."""
    answers = exchange(server.port, head("GET", target, {"host": host}))
    assert HEALTHY in answers or statuses(answers)[:1] == [400], answers
    assert b"evil" not in answers
    assert b"elsewhere" not in answers


@pytest.mark.parametrize(
    "path",
    [
        "/..", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%5c..%5cetc", "/./healthz",
        "/healthz/", "/healthz/..", "/healthz%00", "/healthz%0d%0aset-cookie:%20a", "/HEALTHZ",
        "/v3/", "/v3/s2s/event/", "/v3/../metrics", "/v3/s2s/event%2f..", "/rtb/win/",
        "/rtb/../rtb/win", "/api/v1/ssp//report", "/api/v1/ssp/%2e%2e/report/",
        "/api/v1/openrtb2//bid",
        "/api/v1/openrtb2/%00/bid", "/api/v1/openrtb2/%0a/bid", "/" + "a/" * 15_000, "*", "/;",
    ],
    ids=lambda path: path[:30],
)  # fmt: skip
def test_tricks_with_paths(server: Stack, path: str) -> None:
    for method in ("GET", "POST"):
        answers = exchange(server.port, head(method, path, {"host": "x", "content-length": "0"}))
        tells_nothing(server, answers)
        assert b"set-cookie" not in answers
        first = statuses(answers)[0]
        assert 400 <= first < 500, answers


# -- bodies


def test_expectations(server: Stack) -> None:
    with Wire(server.port) as wire:
        wire.write(bid_head(content_length=str(len(BODY)), expect="100-continue"))
        assert wire.read().status == 100
        wire.write(BODY)
        assert wire.read().status == 200
    with Wire(server.port) as wire:
        wire.write(bid_head(content_length="999999999", expect="100-continue"))
        reply = wire.read()
        while reply.status == 100:  # a refused body is read up to a limit
            reply = wire.read()
        assert (reply.status, reply.headers["connection"]) == (413, "close")


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "BREW", "G" * 50_000])
def test_other_methods(server: Stack, method: str) -> None:
    """No tunnel, no echo of the request, and the connection goes on as HTTP."""
    target = "127.0.0.1:6379" if method == "CONNECT" else "/healthz"
    answers = exchange(server.port, head(method, target, {"host": "x", "x-secret": "echo"}))
    assert statuses(answers) == [404 if method == "CONNECT" else 405, 200], answers
    assert b"echo" not in answers


def test_bombs(server: Stack, key: str) -> None:
    bombs = {
        "zeros": gzip.compress(b" " * 50_000_000, 9),
        "members": gzip.compress(b" " * 16_000, 9) * 10_000,
        "twice": gzip.compress(gzip.compress(b" " * 50_000_000, 9)),
        "endless": zlib.compressobj(9, zlib.DEFLATED, 31).compress(b" " * 50_000_000),
        "zstd zeros": zstd.compress(b" " * 50_000_000),
        "zstd frames": zstd.compress(b" " * 16_000) * 10_000,
        "zstd twice": zstd.compress(zstd.compress(b" " * 50_000_000)),
        "zstd windows": b"\x28\xb5\x2f\xfd\x00\xf8" + b"\x02\x00\x10 " * 1_000,  # of 2 TiB
    }
    with memory_comes_back(server):
        for how, bomb in bombs.items():
            for path, more in ((PATH, {}), ("/v3/s2s/batch", {"x-api-key": key})):
                encoding = "zstd" if how.startswith("zstd") else "gzip"
                headers = {**JSON, "content-encoding": encoding, **more}
                with Wire(server.port) as wire:
                    reply = wire.ask("POST", path, headers, bomb)
                assert reply.status in (400, 413), (how, path, reply)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 250_000,
        b'{"id":' * 40_000,
        b'{"id":"a","imp":[{"id":"1","ext":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
        b'{"id":"a","imp":[' + b'{"id":"1"},' * 20_000 + b'{"id":"2"}]}',
        b'{"id":"a","imp":[{"id":"1","bidfloor":' + b"9" * 200_000 + b"}]}",
        b'{"id":"a","imp":[{"id":"1","bidfloor":1e' + b"9" * 200_000 + b"}]}",
        b'{"id":"a","imp":[{"id":"1","bidfloor":0.' + b"0" * 200_000 + b"1}]}",
        b'{"id":"a","imp":[{"id":"1"}],"x":"' + b"\\u0000" * 40_000 + b'"}',
        b'{"id":"a","imp":[{"id":"1"}],"' + b"x" * 200_000 + b'":1}',
        b"{" + b",".join(b'"k%d":0' % n for n in range(20_000)) + b"}",
        b'{"id":"\xff\xfe","imp":[{"id":"1"}]}',
        b'{"id":"\xed\xa0\x80","imp":[{"id":"1"}]}',
    ],
    ids=lambda body: str(body[:40]),
)
def test_bodies_that_are_expensive_to_parse(server: Stack, key: str, body: bytes) -> None:
    with memory_comes_back(server), Wire(server.port) as wire:
        for _ in range(3):
            bid = wire.ask("POST", PATH, JSON, body)
            assert bid.status in (204, 400), bid
            event = wire.ask("POST", "/v3/s2s/event", {**JSON, "x-api-key": key}, body)
            assert event.status == 400, event
            batch = wire.ask("POST", "/v3/s2s/batch", {**JSON, "x-api-key": key}, b"[" + body)
            assert batch.status == 400, batch
            for reply in (bid, event, batch):
                tells_nothing(server, reply.body)
                assert len(reply.body) < 100_000


# -- many connections, and slow ones


def test_a_thousand_half_open_connections(server: Stack, bystander: Bystander) -> None:
    bystander.may_be_shed = True  # recent half-sent bid requests count as waiting
    starts = (
        b"",
        b"P",
        HEALTH[:-2],
        REQUEST[:-1],
        bid_head(transfer_encoding="chunked") + b"ff\r\n",
    )
    with memory_comes_back(server), contextlib.ExitStack() as opened:
        for number in range(HALF_OPEN):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), 60))
            client.sendall(starts[number % len(starts)])
        with Wire(server.port) as wire:  # behind all of them

            def is_bid_on() -> bool:
                wire.write(REQUEST)
                return wire.read().status == 200

            eventually(lambda: all(is_bid_on() for _ in range(20)), "bids beside half-open ones")


def test_requests_byte_by_byte(server: Stack) -> None:
    with Wire(server.port) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in REQUEST:
            wire.write(bytes((byte,)))
        assert wire.read().status == 200


def test_unread_answers(server: Stack) -> None:
    """Unread answers must not pile up: pipelined requests wait in the client's buffers."""
    with memory_comes_back(server), socket.create_connection(("127.0.0.1", server.port)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(2)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(200):
                deaf.sendall(REQUEST * 200)


def test_reset_connections(server: Stack) -> None:
    linger = b"\1\0\0\0\0\0\0\0"  # close sends RST
    with memory_comes_back(server):
        for number in range(200):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.sendall(REQUEST[: 40 + number * 2] if number % 2 else REQUEST)
