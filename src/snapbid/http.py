"""HTTP for the rooms: request bodies, checked and bounded, and answers ready to send."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from snapbid.errors import BadRequest, Problem, TooLarge, UnsupportedMediaType

Scope: TypeAlias = Mapping[str, Any]
Message: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = dict[bytes, bytes]

JSON: Final = b"application/json"
MAX_GZIP_MEMBERS: Final = 16
DRAIN_BYTES: Final = 8 << 20  # of the body of a refused request: what may be sent, and more
DRAIN_S: Final = 1.0
LEFT_BYTES: Final = 4096  # of a body, as much as the server reads with the head
LEFT_AFTER_S: Final = 0.005  # then a body is there, even if it was sent after the head


class Disconnected(Exception):
    """The client went away before its body was there."""


class Answer(msgspec.Struct, frozen=True):
    """A whole answer: the message that starts it (sent again and again where it is constant)."""

    start: Message
    body: bytes


def answer(
    status: int,
    body: bytes = b"",
    content_type: bytes = JSON,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Answer:
    """An answer with the headers that every answer has."""
    own: list[tuple[bytes, bytes]] = []
    if status != 204:
        own = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    return Answer(
        {"type": "http.response.start", "status": status, "headers": [*own, *headers]}, body
    )


def json_body(body: bytes) -> Answer:
    """The answer 200 with a document that is JSON already; `answer`, quicker."""
    return Answer(_start(len(body)), body)


@lru_cache(4096)
def _start(length: int) -> Message:
    return answer(200, bytes(length)).start


def json_answer(status: int, document: object, *headers: tuple[bytes, bytes]) -> Answer:
    """An answer with a document as JSON."""
    return answer(status, msgspec.json.encode(document), headers=headers)


def problem_answer(problem: Problem) -> Answer:
    """The error body of documents 1 and 2: `{"error": code, "detail": text}`."""
    document = {"error": problem.code, "detail": problem.detail}
    return json_answer(problem.status, document, *problem.headers)


async def read_json_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    """The body of a JSON request, inflated, at most `limit` bytes.

    Raises UnsupportedMediaType, TooLarge and BadRequest (RFC 9110), in this order of checks, and
    Disconnected.
    """
    length = _length(headers.get(b"content-length"))
    try:
        gzipped = _is_gzip(headers.get(b"content-type"), headers.get(b"content-encoding"))
        if length is not None and length > limit:
            raise _too_large(limit)
    except Problem as problem:
        raise await refused(problem, receive) from None
    message = await receive()
    body: bytes = message.get("body", b"")
    if len(body) != length:  # else it is whole, and to be told so would cost another turn
        if message.get("more_body") or message["type"] == "http.disconnect":
            body = await _read_rest(message, receive, limit)
        elif len(body) > limit:
            raise _too_large(limit)
        if length is not None and length != len(body):
            raise BadRequest("the body was cut short")
    return inflate(body, limit) if gzipped else body


@lru_cache(4096)
def _length(header: bytes | None) -> int | None:
    return int(header) if header and len(header) < 20 and header.isdigit() else None


async def _read_rest(message: Message, receive: Receive, limit: int) -> bytes:
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
        message = await receive()


async def refused(problem: Problem, receive: Receive) -> Problem:
    """The problem, to be raised, of a request whose body is not read, or not to its end.

    What is left of the body is read, within bounds: a server that answers before has to close the
    connection, and the client's next request on it is lost. Beyond the bounds it says that it does.
    """
    if not await drain(receive):
        problem.headers = (*problem.headers, (b"connection", b"close"))
    return problem


async def leave_body(headers: Headers, receive: Receive, waited_s: float) -> None:
    """Leaves the body of a request that is answered without it and has waited for so long.

    A short one that is there already the server drops by itself, and for a third less in all. Of
    one that is not it would close the connection, so that is drained.
    """
    length = _length(headers.get(b"content-length"))
    if waited_s < LEFT_AFTER_S or length is None or length > LEFT_BYTES:
        await drain(receive)


async def drain(receive: Receive) -> bool:
    """Reads what is left of a body, within bounds; whether that was all."""
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


def inflate(body: bytes, limit: int) -> bytes:
    """A gzip body (RFC 1952, several members too), never more than `limit` bytes of it."""
    parts: list[bytes] = []
    room = limit
    for _ in range(MAX_GZIP_MEMBERS):
        inflater = zlib.decompressobj(31)
        try:
            part = inflater.decompress(body, room + 1)
        except zlib.error:
            raise BadRequest("the body is not gzip") from None
        room -= len(part)
        if room < 0:
            raise _too_large(limit)
        if not inflater.eof:
            raise BadRequest("the gzip body was cut short")
        parts.append(part)
        body = inflater.unused_data
        if not body:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise BadRequest(f"the gzip body has more than {MAX_GZIP_MEMBERS} members")


def deflate(body: bytes) -> bytes:
    """The body as gzip, quickly."""
    deflater = zlib.compressobj(1, zlib.DEFLATED, 31)
    return deflater.compress(body) + deflater.flush()


@lru_cache(256)
def accepts_gzip(header: bytes) -> bool:
    """Whether an `Accept-Encoding` asks for gzip (RFC 9110, 12.5.3)."""
    for item in header.lower().split(b","):
        name, _, parameter = item.partition(b";")
        if name.strip() in (b"gzip", b"x-gzip"):
            weight = parameter.replace(b" ", b"").removeprefix(b"q=")
            return weight.strip(b"0.") != b"" or not weight
    return False


@lru_cache(256)
def _is_gzip(content_type: bytes | None, encoding: bytes | None) -> bool:
    """Whether a JSON body is gzip; identity is not. Raises for anything else."""
    if content_type is None or content_type.partition(b";")[0].strip().lower() != JSON:
        raise UnsupportedMediaType("Content-Type: must be application/json")
    name = encoding.strip().lower() if encoding else b""
    if name in (b"gzip", b"x-gzip"):
        return True
    if name in (b"identity", b""):
        return False
    raise UnsupportedMediaType(
        "Content-Encoding: must be gzip or absent", ((b"accept-encoding", b"gzip"),)
    )


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is over {limit} bytes")
