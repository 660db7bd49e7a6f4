"""HTTP helpers: read, check and limit request bodies, and build answers."""

import asyncio
import base64
import sys
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import lru_cache
from math import ceil
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec

from snapbid.base.beat import BEAT_S, beat
from snapbid.base.errors import BadRequest, BodyTimeout, Problem, TooLarge, UnsupportedMediaType

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

Scope: TypeAlias = Mapping[str, Any]
Message: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
HeaderList: TypeAlias = list[tuple[bytes, bytes]]  # of a scope
Headers: TypeAlias = dict[bytes, bytes]

JSON: Final = b"application/json"
GZIP: Final = "gzip"
ZSTD: Final = "zstd"
MAX_MEMBERS: Final = 16  # gzip members or zstd frames in a body
MAX_WINDOW_LOG: Final = 23  # zstd: 8 MiB, which every decoder must support (RFC 9659)
DRAIN_BYTES: Final = 8 << 20  # limit on draining the body of a refused request
DRAIN_S: Final = 1.0
MAX_COMPRESSED: Final = 48 << 10  # bytes of a compressed answer; takes some 2 ms
COMPRESSED_AT_ONCE: Final = 16 << 10  # bytes
ENDED_AT_ONCE: Final = 50  # overdue requests ended in one loop iteration
TICKS: Final = 10
LEFT_BYTES: Final = 4096  # the server reads a body up to this length along with the head
LEFT_AFTER_S: Final = 0.005  # by then the body has arrived, even if sent after the head


class Disconnected(Exception):
    """The client disconnected before the whole body had arrived."""


class AwaitedMessages(dict[Awaitable[Message], None]):
    """The body messages still awaited by requests that began in the same tick (`BodyDeadline`).

    `late`: whether the deadline of these requests has passed.
    """

    late = False


def ticks(timeout_s: float) -> tuple[float, int]:
    """Return the tick interval (s) and the number of ticks that a body may take.

    The ticks, about ten, take at least `timeout_s` in total. An interval longer than a beat is a
    whole number of beats, so that ticks do not wake an idle process between beats.
    """
    every_s = timeout_s / TICKS
    if every_s > BEAT_S:
        every_s = BEAT_S * (every_s // BEAT_S)
    return every_s, ceil(timeout_s / every_s)


class BodyDeadline:
    """A deadline that ends requests whose bodies do not arrive within `ticks` ticks.

    Requests are grouped by the tick in which they began, so a request needs no timer and does not
    read the clock. All requests of a worker share one `BodyDeadline`.
    """

    def __init__(self) -> None:
        self.ticks = TICKS
        self.current = AwaitedMessages()
        self._earlier: deque[AwaitedMessages] = deque()

    async def keep(self, timeout_s: float) -> None:
        """End overdue requests until cancelled; a body has at least `timeout_s` to arrive."""
        every_s, self.ticks = ticks(timeout_s)
        while True:
            await beat(every_s)
            await self.tick()

    async def tick(self) -> None:
        """End overdue requests a few at a time, letting other requests run in between."""
        self._earlier.append(self.current)
        self.current = AwaitedMessages()
        if len(self._earlier) > self.ticks:
            overdue = self._earlier.popleft()
            overdue.late = True
            for number, message in enumerate(list(overdue), 1):
                cast("asyncio.Future[Message]", message).cancel()  # Granian's are futures, too
                if number % ENDED_AT_ONCE == 0:
                    await asyncio.sleep(0)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A complete answer as two ASGI messages, which several answers may share."""

    start: Message
    end: Message

    @property
    def body(self) -> bytes:
        body: bytes = self.end["body"]
        return body


def body_message(body: bytes) -> Message:
    """Return the ASGI message with a whole body."""
    return {"type": "http.response.body", "body": body}


NO_BODY: Final = body_message(b"")


Handler: TypeAlias = Callable[[Scope, Receive], Coroutine[Any, Any, Answer]]
RequestHandler: TypeAlias = Callable[[HeaderList, Receive], Awaitable[Answer]]


def answer(
    status: int,
    body: bytes = b"",
    content_type: bytes = JSON,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Answer:
    """Build an answer, with Content-Type and Content-Length unless the status is 204."""
    own: list[tuple[bytes, bytes]] = []
    if status != 204:
        own = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    start = {"type": "http.response.start", "status": status, "headers": [*own, *headers]}
    return Answer(start, body_message(body))


NO_CONTENT: Final = answer(204)


def json_answer(status: int, document: object, *headers: tuple[bytes, bytes]) -> Answer:
    """Build an answer with a JSON document as its body."""
    return answer(status, msgspec.json.encode(document), headers=headers)


def problem_answer(problem: Problem) -> Answer:
    """Build the answer to an error, except in the event API: `{"error": code, "detail": text}`."""
    document = {"error": problem.code, "detail": problem.detail}
    return json_answer(problem.status, document, *problem.headers)


class SentBody(NamedTuple):
    """A body as sent; `encoding`: its content encoding, None if it is not encoded."""

    body: bytes
    encoding: str | None

    def inflated(self, limit: int) -> bytes:
        """Inflate the body, up to `limit` bytes. Raises TooLarge or BadRequest."""
        return self.body if self.encoding is None else inflate(self.body, limit, self.encoding)


async def read_json_body(
    headers: Headers, receive: Receive, limit: int, deadline: BodyDeadline
) -> bytes:
    """Read and inflate the body of a JSON request, up to `limit` bytes.

    Raises the same errors as `read_sent_body` and `SentBody.inflated`.
    """
    return (await read_sent_body(headers, receive, limit, deadline)).inflated(limit)


async def read_sent_body(
    headers: Headers, receive: Receive, limit: int, deadline: BodyDeadline
) -> SentBody:
    """Read the body of a JSON request, up to `limit` bytes as sent.

    Raises UnsupportedMediaType, TooLarge and BadRequest (RFC 9110), checked in this order, and
    Disconnected or BodyTimeout if the body does not arrive.
    """
    length = _length(headers.get(b"content-length"))
    try:
        check_type(headers.get(b"content-type"))
        encoding = encoding_of(headers.get(b"content-encoding"))
        if length is not None and length > limit:
            raise _too_large(limit)
    except Problem as problem:
        raise await refused(problem, receive) from None
    return SentBody(await read_body(receive, length, limit, deadline.current), encoding)


async def read_body(
    receive: Receive, length: int | None, limit: int, awaited: AwaitedMessages
) -> bytes:
    """Read a body, up to `limit` bytes; `length` is its Content-Length, None if absent.

    Raises TooLarge, BadRequest if the body is cut short, and Disconnected or BodyTimeout if it does
    not arrive.
    """
    coming = receive()
    awaited[coming] = None
    try:
        message = await coming
        del awaited[coming]  # an entry left by an error is dropped with its tick
        if len(message.get("body", b"")) == length:  # saves waiting for the final message
            return cast(bytes, message["body"])
        return await read_rest(message, receive, length, limit, awaited)
    except asyncio.CancelledError:
        if awaited.late:
            raise BodyTimeout from None
        raise


async def read_rest(
    message: Message, receive: Receive, length: int | None, limit: int, awaited: AwaitedMessages
) -> bytes:
    """Read the rest of a body after its first message; see `read_body`."""
    body: bytes = message.get("body", b"")
    try:
        if message.get("more_body") or message["type"] == "http.disconnect":
            body = await _read_parts(message, receive, limit, awaited)
        elif len(body) > limit:
            raise _too_large(limit)
    except asyncio.CancelledError:
        if awaited.late:
            raise BodyTimeout from None
        raise
    if length is not None and length != len(body):
        raise BadRequest("the body was cut short")
    return body


@lru_cache(4096)
def _length(header: bytes | None) -> int | None:
    return int(header) if header and len(header) < 20 and header.isdigit() else None


async def _read_parts(
    message: Message, receive: Receive, limit: int, awaited: AwaitedMessages
) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise Disconnected
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            problem = _too_large(limit)
            raise await refused(problem, receive) if message.get("more_body") else problem
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
        if awaited.late:
            raise BodyTimeout
        coming = receive()
        awaited[coming] = None
        message = await coming
        del awaited[coming]


async def refused(problem: Problem, receive: Receive) -> Problem:
    """Drain the rest of a refused request's body, and return the problem to raise.

    Without draining, the server would have to close the connection and lose the client's next
    request on it. If the body is too long to drain, the answer gets the header `Connection: close`.
    """
    if not await drain(receive):
        problem.headers = (*problem.headers, (b"connection", b"close"))
    return problem


async def leave_body(headers: Headers, receive: Receive, waited_s: float) -> None:
    """Skip the body of a request whose answer does not depend on it.

    `waited_s`: how long the request has queued. A short body that has already arrived is left to
    the server, which drops it: the request then costs a third less. Any other body is drained here;
    otherwise the server would close the connection.
    """
    length = _length(headers.get(b"content-length"))
    if waited_s < LEFT_AFTER_S or length is None or length > LEFT_BYTES:
        await drain(receive)


async def drain(receive: Receive) -> bool:
    """Read and discard the rest of a body; return False if it is too long or too slow."""
    return await asyncio.create_task(_drain(receive))  # asyncio.timeout needs a task


async def _drain(receive: Receive) -> bool:
    size = 0
    try:
        async with asyncio.timeout(DRAIN_S):
            while size <= DRAIN_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    return True
    except TimeoutError:
        pass
    return False


def basic_password(credentials: bytes) -> bytes:
    """Return the password in `Basic` credentials (RFC 7617); b"" if they are malformed."""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def inflate(body: bytes, limit: int, encoding: str = GZIP) -> bytes:
    """Inflate a body of gzip members (RFC 1952) or zstd frames (RFC 8878), up to `limit` bytes.

    Raises TooLarge or BadRequest.
    """
    parts: list[bytes] = []
    remaining = limit
    for _ in range(MAX_MEMBERS):
        inflater = _INFLATERS[encoding]()
        try:
            part = inflater.decompress(body, remaining + 1)
        except (zlib.error, zstd.ZstdError):
            raise BadRequest(f"the body is not {encoding}{_BEYOND[encoding]}") from None
        remaining -= len(part)
        if remaining < 0:
            raise _too_large(limit)
        if not inflater.eof:
            raise BadRequest(f"the {encoding} body was cut short")
        parts.append(part)
        body = inflater.unused_data
        if not body:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise BadRequest(f"the {encoding} body has more than {MAX_MEMBERS} members or frames")


_BEYOND: Final = {GZIP: "", ZSTD: ", or has a window of more than 8 MiB"}
_INFLATERS: Final[dict[str, Callable[[], Any]]] = {
    GZIP: lambda: zlib.decompressobj(31),
    ZSTD: lambda: zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    ),
}
_idle: list[zstd.ZstdCompressor] = []  # reused: creating one takes longer than compressing


def compress(body: bytes, encoding: str = GZIP) -> bytes | None:
    """Compress a body at the fastest level; None if that would take too long.

    The time grows with the size of the output, so compression stops at MAX_COMPRESSED bytes: gzip
    compresses 256 KiB of repetitive markup in half a millisecond, and 256 KiB of base64 in eight.
    """
    if encoding == GZIP:
        return _compress(body, zlib.compressobj(1, zlib.DEFLATED, 31))
    compressor = _idle.pop() if _idle else zstd.ZstdCompressor(level=1)
    compressed = _compress(body, compressor)
    if compressed is not None:  # else its frame has not ended
        _idle.append(compressor)
    return compressed


def _compress(body: bytes, compressor: Any) -> bytes | None:
    parts: list[bytes] = []
    size = 0
    for start in range(0, len(body), COMPRESSED_AT_ONCE):
        part = compressor.compress(body[start : start + COMPRESSED_AT_ONCE])
        size += len(part)
        if size > MAX_COMPRESSED:
            return None
        parts.append(part)
    parts.append(compressor.flush())
    return b"".join(parts) if size + len(parts[-1]) <= MAX_COMPRESSED else None


@lru_cache(256)
def accepted_encoding(header: bytes) -> str | None:
    """Return the encoding that an `Accept-Encoding` header prefers: zstd, gzip or None.

    In a tie, zstd is preferred.
    """
    weights = _weights(header)
    return max(weights, key=lambda encoding: (weights[encoding], encoding), default=None)


@lru_cache(256)
def accepts_gzip(header: bytes) -> bool:
    """Return whether an `Accept-Encoding` header accepts gzip."""
    return GZIP in _weights(header)


def not_modified(headers: tuple[tuple[bytes, bytes], ...]) -> Answer:
    """Build the 304 answer for a client that already has the current representation."""
    start = {"type": "http.response.start", "status": 304, "headers": [*headers]}
    return Answer(start, NO_BODY)


def has_current(headers: HeaderList, tag: bytes) -> bool:
    """Return whether `If-None-Match` lists this ETag, or is `*` (RFC 9110, 13.1.2)."""
    given = b",".join(value for name, value in headers if name == b"if-none-match")
    return not {tag, b"*"}.isdisjoint(
        each.strip().removeprefix(b"W/") for each in given.split(b",")
    )


def _weights(header: bytes) -> dict[str, float]:
    """Parse an `Accept-Encoding`: the weights of accepted encodings (RFC 9110, 12.5.3).

    `*` stands for gzip or, if gzip is listed, for zstd.
    """
    weights: dict[str, float] = {}
    for item in header.lower().split(b","):
        name, _, parameter = item.partition(b";")
        if encoding := _ACCEPTED.get(name.strip()):
            try:
                weight = float(parameter.replace(b" ", b"").removeprefix(b"q=") or 1)
            except ValueError:
                weight = 1.0
            weights.setdefault(encoding, weight)
    if _ANY in weights:
        weights.setdefault(ZSTD if GZIP in weights else GZIP, weights.pop(_ANY))
    return {encoding: weight for encoding, weight in weights.items() if weight > 0}


@lru_cache(256)
def check_type(content_type: bytes | None) -> None:
    """Raise UnsupportedMediaType for anything but JSON."""
    if content_type is None or content_type.partition(b";")[0].strip().lower() != JSON:
        raise UnsupportedMediaType("Content-Type: must be application/json")


@lru_cache(256)
def encoding_of(header: bytes | None) -> str | None:
    """Parse a `Content-Encoding`; None for no encoding. Raises UnsupportedMediaType."""
    name = header.strip().lower() if header else b""
    if name in (b"identity", b""):
        return None
    if encoding := _NAMES.get(name):
        return encoding
    raise UnsupportedMediaType(
        "Content-Encoding: must be gzip, zstd or absent", ((b"accept-encoding", b"gzip, zstd"),)
    )


_NAMES: Final = {b"gzip": GZIP, b"x-gzip": GZIP, b"zstd": ZSTD}
_ANY: Final = "*"
_ACCEPTED: Final = _NAMES | {b"*": _ANY}


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is over {limit} bytes")
