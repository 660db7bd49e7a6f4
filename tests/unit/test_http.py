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

from snapbid.base import http
from snapbid.base.beat import BEAT_S
from snapbid.base.errors import (
    BadRequest,
    BodyTimeout,
    NotFound,
    Problem,
    TooLarge,
    UnsupportedMediaType,
)
from snapbid.base.http import (
    GZIP,
    ZSTD,
    BodyDeadline,
    Disconnected,
    Message,
    accepted_encoding,
    accepts_gzip,
    compress,
    inflate,
    read_json_body,
    zstd,
)

LIMIT = 1000
JSON = {b"content-type": b"application/json"}


class Client:
    """A client that sends a body in parts and then waits or disconnects."""

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
    client = Client(*parts, **how)
    return asyncio.run(read_whole(client, JSON | (headers or {})))


async def read_whole(
    client: "Client | SlowClient",
    headers: dict[bytes, bytes] = JSON,
    deadline: BodyDeadline | None = None,
) -> bytes:
    return await read_json_body(headers, client.receive, LIMIT, deadline or BodyDeadline())


def test_a_body_in_one_part_and_in_several() -> None:
    assert read(b"abc") == b"abc"
    assert read(b"a", b"", b"bc") == b"abc"
    assert read(b"") == b""
    assert read(b"abc", headers={b"content-length": b"3"}) == b"abc"


@pytest.mark.parametrize("length", [b"2", b"4", b"0"])
def test_bodies_of_the_wrong_length(length: bytes) -> None:
    with pytest.raises(BadRequest, match="cut short"):
        read(b"abc", headers={b"content-length": length})


@pytest.mark.parametrize("length", [b"x", b"", b"-3", "٣".encode(), b"9" * 5000])
def test_malformed_lengths_are_ignored(length: bytes) -> None:
    assert read(b"abc", headers={b"content-length": length}) == b"abc"


def test_client_disconnects() -> None:
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
    assert (b"accept-encoding", b"gzip, zstd") in tuple(caught.value.headers)


# -- what is left of a refused body


async def refuse(client: Client, headers: dict[bytes, bytes]) -> Problem:
    with pytest.raises(Problem) as caught:
        await read_whole(client, headers)
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


def test_reading_a_refused_body_is_bounded_in_size() -> None:
    client = Client(*[b"x" * 65_536] * 200)
    problem = asyncio.run(refuse(client, {}))
    assert not client.is_read
    assert closes(problem)


def test_reading_a_refused_body_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "DRAIN_S", 0.01)
    assert closes(asyncio.run(refuse(Client(b"x", ends=False), {})))
    problem = asyncio.run(http.refused(NotFound("x"), Client(b"x", ends=False).receive))
    assert closes(problem)


# -- gzip and zstd

ENCODINGS = (GZIP, ZSTD)
BEGIN = {GZIP: b"\x1f\x8b\x08\x00", ZSTD: b"\x28\xb5\x2f\xfd"}
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"


def pack(encoding: str, body: bytes) -> bytes:
    return gzip.compress(body, mtime=0) if encoding == GZIP else zstd.compress(body)


def unpack(encoding: str, body: bytes) -> bytes:
    return gzip.decompress(body) if encoding == GZIP else zstd.decompress(body)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(parts=st.lists(st.binary(max_size=100), min_size=1, max_size=8))
def test_any_members_or_frames(encoding: str, parts: list[bytes]) -> None:
    packed = b"".join(pack(encoding, part) for part in parts)
    assert inflate(packed, LIMIT, encoding) == b"".join(parts)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(body=st.binary(max_size=300))
def test_any_bytes_inflate_or_are_refused(encoding: str, body: bytes) -> None:
    packed = pack(encoding, body)
    for tried in (body, BEGIN[encoding] + body, packed[:-1], packed, packed[:4] + body):
        with contextlib.suppress(BadRequest, TooLarge):
            assert len(inflate(tried, LIMIT, encoding)) <= LIMIT


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(body=st.binary(max_size=40_000), times=st.integers(1, 1_000))
def test_compression_round_trips(encoding: str, body: bytes, times: int) -> None:
    for whole in (body, body[:100] * times):
        compressed = compress(whole, encoding)
        assert compressed is not None
        assert unpack(encoding, compressed) == whole


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_poorly_compressible_bodies_stay_plain(encoding: str) -> None:
    """And the next answer is compressed as if nothing had been begun."""
    noise = random.Random(1).randbytes(262_144)
    for body in (noise, base64.b64encode(noise), noise[:60_000]):
        assert compress(body, encoding) is None
        compressed = compress(noise[:40_000], encoding)
        assert compressed is not None
        assert unpack(encoding, compressed) == noise[:40_000]


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1, 1_000_000, 50_000_000])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_bodies_inflating_over_the_limit_are_refused(encoding: str, size: int) -> None:
    packed = pack(encoding, b"x" * size)
    if size == LIMIT:
        assert len(inflate(packed, LIMIT, encoding)) == LIMIT
        return
    with pytest.raises(TooLarge):
        inflate(packed, LIMIT, encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_members_share_the_limit(encoding: str) -> None:
    half = pack(encoding, b"x" * 500)
    assert len(inflate(half * 2, LIMIT, encoding)) == LIMIT
    with pytest.raises(TooLarge):
        inflate(half * 2 + pack(encoding, b"x"), LIMIT, encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_members_are_counted(encoding: str) -> None:
    empty = pack(encoding, b"")
    assert inflate(empty * 16, LIMIT, encoding) == b""
    with pytest.raises(BadRequest, match="more than 16 members"):
        inflate(empty * 17, LIMIT, encoding)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"", "cut short"),
        (pack(GZIP, b"abc")[:-1], "cut short"),
        (pack(GZIP, b"abc")[:5], "cut short"),
        (b"abc", "not gzip"),
        (zlib.compress(b"abc"), "not gzip"),
        (pack(ZSTD, b"abc"), "not gzip"),
        (pack(GZIP, b"abc") + b"x", "cut short|not gzip"),
        (pack(GZIP, b"abc")[:-8] + bytes(8), "not gzip"),
    ],
)
def test_malformed_gzip(body: bytes, match: str) -> None:
    with pytest.raises(BadRequest, match=match):
        inflate(body, LIMIT)


def of_window(log: int, body: bytes) -> bytes:
    """A frame of unstated size that needs a window of this many bits."""
    parameters: dict[int, int] = {zstd.CompressionParameter.window_log: log}
    compressor = zstd.ZstdCompressor(options=parameters)
    begun: bytes = compressor.compress(body, zstd.ZstdCompressor.FLUSH_BLOCK)
    end: bytes = compressor.flush()
    return begun + end


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"", "cut short"),
        (pack(ZSTD, b"abc")[:-1], "cut short"),
        (pack(ZSTD, b"abc")[:5], "cut short"),
        (b"abc", "not zstd|cut short"),
        (b"abcd", "not zstd"),
        (pack(GZIP, b"abc"), "not zstd"),
        (pack(ZSTD, b"abc") + b"abcd", "not zstd"),
        (of_window(24, b"abc"), "more than 8 MiB"),  # memory that nobody has to give (RFC 9659)
    ],
)
def test_malformed_zstd(body: bytes, match: str) -> None:
    with pytest.raises(BadRequest, match=match):
        inflate(body, LIMIT, ZSTD)


@pytest.mark.parametrize("body", [of_window(23, b"abc"), SKIPPABLE + pack(ZSTD, b"abc")])
def test_zstd_as_others_write_it(body: bytes) -> None:
    assert inflate(body, LIMIT, ZSTD) == b"abc"


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        (b"gzip", GZIP),
        (b"GZIP", GZIP),
        (b"x-gzip", GZIP),
        (b"br, gzip", GZIP),
        (b"br,gzip;q=0.5", GZIP),
        (b"gzip ; q=1.000", GZIP),
        (b"gzip;q=0", None),
        (b"gzip;q=0.0", None),
        (b"gzip; q=0.000, br", None),
        (b"gzip;q=nan", None),
        (b"", None),
        (b"identity", None),
        (b"br", None),
        (b"gzipx", None),
        (b"\xff", None),
        (b"zstd", ZSTD),
        (b"gzip, deflate, br, zstd", ZSTD),
        (b"zstd;q=0.9, gzip", GZIP),
        (b"zstd;q=0, gzip;q=0.1", GZIP),
        (b"zstd;q=0.2, gzip;q=0.1", ZSTD),
    ],
)
def test_accept_encoding(header: bytes, encoding: str | None) -> None:
    assert accepted_encoding(header) == encoding
    assert accepts_gzip(header) is (encoding == GZIP or b", gzip" in header or b"gzip, d" in header)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_compressed_body_is_read(encoding: str) -> None:
    headers = {**JSON, b"content-encoding": encoding.encode()}
    assert read(pack(encoding, b"{}"), headers=headers) == b"{}"


@pytest.mark.parametrize(
    ("length", "waited_s", "is_read"),
    [
        (b"2", http.LEFT_AFTER_S, False),
        (b"2", 0.0, True),
        (b"%d" % (http.LEFT_BYTES + 1), http.LEFT_AFTER_S, True),
        (None, http.LEFT_AFTER_S, True),
    ],
)
def test_short_complete_bodies_are_not_copied(
    length: bytes | None, waited_s: float, is_read: bool
) -> None:
    client = Client(b"{", b"}")
    headers = JSON | ({b"content-length": length} if length else {})
    asyncio.run(http.leave_body(headers, client.receive, waited_s))
    assert client.is_read is is_read


# -- bodies that do not come


class SlowClient:
    """A client that sends on demand."""

    def __init__(self) -> None:
        self.coming: asyncio.Future[Message]

    def receive(self) -> "asyncio.Future[Message]":
        self.coming = asyncio.get_running_loop().create_future()
        return self.coming

    def send(self, part: bytes) -> None:
        self.coming.set_result({"type": "http.request", "body": part, "more_body": True})


async def ticks(deadline: BodyDeadline, number: int) -> None:
    for _ in range(number):
        await deadline.tick()


@pytest.mark.parametrize("timeout_s", [0.01, 0.3, 1, 2.5, 2.6, 2.7, 5, 5.2, 7.8, 10, 30, 60, 3600])
def test_body_deadlines_use_the_process_clock(timeout_s: float) -> None:
    every_s, number = http.ticks(timeout_s)
    assert timeout_s - 1e-9 <= every_s * number < timeout_s + every_s
    assert number >= http.TICKS
    if timeout_s / http.TICKS > BEAT_S:
        assert every_s / BEAT_S == pytest.approx(round(every_s / BEAT_S))


@pytest.mark.parametrize("parts", [0, 1, 3])
async def test_a_body_has_one_deadline_for_all_of_its_parts(parts: int) -> None:
    deadline = BodyDeadline()

    client = SlowClient()
    reading = asyncio.ensure_future(read_whole(client, JSON, deadline))
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


async def test_a_part_that_comes_with_the_deadline_does_not_extend_it() -> None:
    deadline = BodyDeadline()

    client = SlowClient()
    reading = asyncio.ensure_future(read_whole(client, JSON, deadline))
    await asyncio.sleep(0)
    client.send(b"x")
    await ticks(deadline, deadline.ticks + 1)
    with pytest.raises(BodyTimeout):
        await reading


async def test_cancelling_a_request_propagates() -> None:
    reading = asyncio.ensure_future(read_whole(SlowClient()))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


def test_received_bodies_leave_no_references() -> None:
    deadline = BodyDeadline()
    assert asyncio.run(read_whole(Client(b"a", b"b"), deadline=deadline)) == b"ab"
    assert not deadline.current
