"""Bodies and headers of HTTP: media types, gzip, limits, and what is read of a refused body."""

import asyncio
import base64
import contextlib
import gzip
import random
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid import http
from snapbid.beat import BEAT_S
from snapbid.errors import (
    BadRequest,
    BodyTimeout,
    NotFound,
    Problem,
    TooLarge,
    UnsupportedMediaType,
)
from snapbid.http import Disconnected, Message, accepts_gzip, deflate, inflate, read_json_body

LIMIT = 1000
JSON = {b"content-type": b"application/json"}


class Client:
    """Sends a body in parts and then waits, or goes away."""

    def __init__(self, *parts: bytes, leaves: bool = False, ends: bool = True) -> None:
        self._messages: list[Message] = [
            {"type": "http.request", "body": part, "more_body": True} for part in parts
        ]
        if leaves:
            self._messages.append({"type": "http.disconnect"})
        elif ends:
            self._messages[-1]["more_body"] = False
        self.given = 0

    async def receive(self) -> Message:
        if self.given == len(self._messages):
            await asyncio.Event().wait()
        self.given += 1
        return self._messages[self.given - 1]

    @property
    def is_read(self) -> bool:
        return self.given == len(self._messages)


def read(*parts: bytes, headers: dict[bytes, bytes] | None = None, **how: Any) -> bytes:
    return asyncio.run(read_json_body(JSON | (headers or {}), Client(*parts, **how).receive, LIMIT))


def test_a_body_in_one_part_and_in_several() -> None:
    assert read(b"abc") == b"abc"
    assert read(b"a", b"", b"bc") == b"abc"
    assert read(b"") == b""
    assert read(b"abc", headers={b"content-length": b"3"}) == b"abc"


@pytest.mark.parametrize("length", [b"2", b"4", b"0"])
def test_a_body_of_another_length_than_announced(length: bytes) -> None:
    with pytest.raises(BadRequest, match="cut short"):
        read(b"abc", headers={b"content-length": length})


@pytest.mark.parametrize("length", [b"x", b"", b"-3", "٣".encode(), b"9" * 5000])
def test_a_length_that_is_none_is_not_looked_at(length: bytes) -> None:
    assert read(b"abc", headers={b"content-length": length}) == b"abc"


def test_a_client_that_goes_away() -> None:
    with pytest.raises(Disconnected):
        read(b"a", leaves=True)
    with pytest.raises(Disconnected):
        read(leaves=True)


def test_limits() -> None:
    assert len(read(b"x" * LIMIT)) == LIMIT
    assert len(read(b"x" * 999, b"x")) == LIMIT
    for parts in ([b"x" * 1001], [b"x" * 999, b"xx"], [b"x" * 999, b"xx", b"x"]):
        with pytest.raises(TooLarge, match="over 1000 bytes"):
            read(*parts)


@pytest.mark.parametrize(
    "value",
    [
        b"application/json",
        b"Application/JSON",
        b"application/json;charset=x",
        b" application/json ",
    ],
)
def test_media_types(value: bytes) -> None:
    assert read(b"x", headers={b"content-type": value}) == b"x"


@pytest.mark.parametrize("value", [b"", b"text/json", b"application/jsonx", b"application/json,a"])
def test_other_media_types(value: bytes) -> None:
    with pytest.raises(UnsupportedMediaType, match="Content-Type"):
        read(b"x", headers={b"content-type": value})


def test_other_encodings() -> None:
    with pytest.raises(UnsupportedMediaType, match="Content-Encoding") as caught:
        read(b"x", headers={b"content-encoding": b"br"})
    assert (b"accept-encoding", b"gzip") in tuple(caught.value.headers)


# -- what is left of a refused body


async def refuse(client: Client, headers: dict[bytes, bytes]) -> Problem:
    with pytest.raises(Problem) as caught:
        await read_json_body(headers, client.receive, LIMIT)
    return caught.value


def closes(problem: Problem) -> bool:
    return (b"connection", b"close") in tuple(problem.headers)


@pytest.mark.parametrize(
    ("headers", "parts"),
    [
        ({}, [b"a", b"b", b"c"]),
        ({}, [b"a"]),
        ({**JSON, b"content-encoding": b"br"}, [b"a", b"b"]),
        ({**JSON, b"content-length": b"2000"}, [b"x" * 1500, b"x" * 500]),
        (JSON, [b"x" * 1500, b"x" * 500, b"x"]),
        (JSON, [b"x" * 1500]),
    ],
)
def test_a_refused_body_is_read_to_its_end(
    headers: dict[bytes, bytes], parts: Sequence[bytes]
) -> None:
    client = Client(*parts)
    problem = asyncio.run(refuse(client, headers))
    assert client.is_read
    assert not closes(problem)


def test_a_refused_body_is_not_read_for_ever() -> None:
    client = Client(*[b"x" * 65_536] * 200)
    problem = asyncio.run(refuse(client, {}))
    assert not client.is_read
    assert closes(problem)


def test_a_refused_body_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "DRAIN_S", 0.01)
    assert closes(asyncio.run(refuse(Client(b"x", ends=False), {})))
    problem = asyncio.run(http.refused(NotFound("x"), Client(b"x", ends=False).receive))
    assert closes(problem)


# -- gzip


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=8))
def test_gzip_of_any_members(parts: list[bytes]) -> None:
    packed = b"".join(map(gzip.compress, parts))
    assert inflate(packed, LIMIT) == b"".join(parts)


@given(st.binary(max_size=300))
def test_any_bytes_inflate_or_are_refused(body: bytes) -> None:
    for tried in (body, b"\x1f\x8b\x08\x00" + body, gzip.compress(body)[:-1], gzip.compress(body)):
        with contextlib.suppress(BadRequest, TooLarge):
            assert len(inflate(tried, LIMIT)) <= LIMIT


@given(st.binary(max_size=40_000), st.integers(1, 1_000))
def test_deflate_is_read_back(body: bytes, times: int) -> None:
    deflated = deflate(body)
    assert deflated is not None
    assert gzip.decompress(deflated) == body
    repeated = deflate(body[:100] * times)
    assert repeated is not None
    assert gzip.decompress(repeated) == body[:100] * times


def test_what_hardly_gets_shorter_is_left_as_it_is() -> None:
    noise = random.Random(1).randbytes(262_144)
    assert deflate(noise) is None
    assert deflate(base64.b64encode(noise)) is None
    assert deflate(noise[:40_000]) is not None


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1, 1_000_000, 50_000_000])
def test_what_inflates_over_the_limit(size: int) -> None:
    packed = gzip.compress(b"x" * size)
    if size == LIMIT:
        assert len(inflate(packed, LIMIT)) == LIMIT
        return
    with pytest.raises(TooLarge):
        inflate(packed, LIMIT)


def test_members_share_the_limit() -> None:
    half = gzip.compress(b"x" * 500)
    assert len(inflate(half * 2, LIMIT)) == LIMIT
    with pytest.raises(TooLarge):
        inflate(half * 2 + gzip.compress(b"x"), LIMIT)


def test_members_are_counted() -> None:
    empty = gzip.compress(b"")
    assert inflate(empty * 16, LIMIT) == b""
    with pytest.raises(BadRequest, match="more than 16 members"):
        inflate(empty * 17, LIMIT)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"", "cut short"),
        (gzip.compress(b"abc", mtime=0)[:-1], "cut short"),
        (gzip.compress(b"abc", mtime=0)[:5], "cut short"),
        (b"abc", "not gzip"),
        (zlib.compress(b"abc"), "not gzip"),
        (gzip.compress(b"abc", mtime=0) + b"x", "cut short|not gzip"),
        (gzip.compress(b"abc", mtime=0)[:-8] + bytes(8), "not gzip"),
    ],
)
def test_what_is_no_gzip(body: bytes, match: str) -> None:
    with pytest.raises(BadRequest, match=match):
        inflate(body, LIMIT)


@pytest.mark.parametrize(
    ("header", "asked"),
    [
        (b"gzip", True),
        (b"GZIP", True),
        (b"x-gzip", True),
        (b"br, gzip", True),
        (b"br,gzip;q=0.5", True),
        (b"gzip ; q=1.000", True),
        (b"gzip;q=0", False),
        (b"gzip;q=0.0", False),
        (b"gzip; q=0.000, br", False),
        (b"", False),
        (b"identity", False),
        (b"br", False),
        (b"gzipx", False),
        (b"\xff", False),
    ],
)
def test_accept_encoding(header: bytes, asked: bool) -> None:
    assert accepts_gzip(header) is asked


@pytest.mark.parametrize(
    ("length", "waited_s", "is_read"),
    [
        (b"2", http.LEFT_AFTER_S, False),
        (b"2", 0.0, True),
        (b"%d" % (http.LEFT_BYTES + 1), http.LEFT_AFTER_S, True),
        (None, http.LEFT_AFTER_S, True),
    ],
)
def test_a_body_is_left_where_it_is_short_and_there(
    length: bytes | None, waited_s: float, is_read: bool
) -> None:
    client = Client(b"{", b"}")
    headers = JSON | ({b"content-length": length} if length else {})
    asyncio.run(http.leave_body(headers, client.receive, waited_s))
    assert client.is_read is is_read


# -- bodies that do not come


class SlowClient:
    """Sends what it is told to, when it is told to."""

    def __init__(self) -> None:
        self.coming: asyncio.Future[Message]

    def receive(self) -> "asyncio.Future[Message]":
        self.coming = asyncio.get_running_loop().create_future()
        return self.coming

    def send(self, part: bytes) -> None:
        self.coming.set_result({"type": "http.request", "body": part, "more_body": True})


async def ticks(deadline: http.BodyDeadline, number: int) -> None:
    for _ in range(number):
        await deadline.tick()


@pytest.mark.parametrize("timeout_s", [0.01, 0.3, 1, 2.5, 2.6, 2.7, 5, 5.2, 7.8, 10, 30, 60, 3600])
def test_a_body_has_its_time_in_ticks_of_the_process(timeout_s: float) -> None:
    every_s, number = http.ticks(timeout_s)
    assert timeout_s - 1e-9 <= every_s * number < timeout_s + every_s
    assert number >= http.TICKS
    if timeout_s / http.TICKS > BEAT_S:
        assert every_s / BEAT_S == pytest.approx(round(every_s / BEAT_S))


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_a_body_has_one_deadline_for_all_of_its_parts(
    parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = http.BodyDeadline()
    monkeypatch.setattr(http, "BODY_DEADLINE", deadline)

    async def run() -> None:
        client = SlowClient()
        reading = asyncio.ensure_future(read_json_body(JSON, client.receive, LIMIT))
        ticks_left = deadline.ticks
        for _ in range(parts):
            await asyncio.sleep(0)
            await ticks(deadline, 3)
            ticks_left -= 3
            client.send(b"x")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await ticks(deadline, ticks_left)
        await asyncio.sleep(0)
        assert not reading.done(), "it has all of the time"
        await deadline.tick()
        with pytest.raises(BodyTimeout):
            await reading

    asyncio.run(run())


def test_a_part_that_comes_with_the_deadline_does_not_extend_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deadline = http.BodyDeadline()
    monkeypatch.setattr(http, "BODY_DEADLINE", deadline)

    async def run() -> None:
        client = SlowClient()
        reading = asyncio.ensure_future(read_json_body(JSON, client.receive, LIMIT))
        await asyncio.sleep(0)
        client.send(b"x")
        await ticks(deadline, deadline.ticks + 1)
        with pytest.raises(BodyTimeout):
            await reading

    asyncio.run(run())


def test_who_cancels_a_request_sees_it_cancelled() -> None:
    async def run() -> None:
        reading = asyncio.ensure_future(read_json_body(JSON, SlowClient().receive, LIMIT))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(run())


def test_nothing_is_kept_of_bodies_that_came() -> None:
    before = len(http.BODY_DEADLINE.current)
    assert read(b"a", b"b") == b"ab"
    assert len(http.BODY_DEADLINE.current) == before
