"""The load generator's client, given the bytes of answers as servers and proxies write them."""

import asyncio
import contextlib
import socket
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from snapbid.loadtest.client import Call, ClientConnection, LoadClient

REQUEST = b"POST / HTTP/1.1\r\nhost: bidder\r\ncontent-length: 2\r\n\r\n{}"
ANSWERS = {
    "as ours": (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", 200, b"{}"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "names in upper case": (b"HTTP/1.1 200 OK\r\nContent-Length:2\r\n\r\n{}", 200, b"{}"),
    "in chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n",
        200,
        b"{}",
    ),
    "in chunks, with trailers": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx: y\r\n\r\n",
        200,
        b"{}",
    ),
    "of 1.0, kept open": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}",
        200,
        b"{}",
    ),
    "another header ends like the length's": (
        b"HTTP/1.1 200 OK\r\nx-content-length: 9\r\ncontent-length: 2\r\n\r\n{}",
        200,
        b"{}",
    ),
    "after an interim one": (
        b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        200,
        b"{}",
    ),
    "a header that only mentions a close": (
        b"HTTP/1.1 200 OK\r\nx-advice: disclose\r\ncontent-length: 2\r\n\r\n{}",
        200,
        b"{}",
    ),
    "a length that is no number": (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", None, None),
    "a length below 0": (b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}", None, None),
    "a chunk of a length below 0": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-4\r\n",
        None,
        None,
    ),
    "another protocol": (b"SPDY/9.9 200 OK\r\ncontent-length: 2\r\n\r\n{}", None, None),
}


class Outcome:
    """Receives one answer, or None for a call that was lost."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[tuple[int, bytes] | None] = asyncio.Future()

    def answered(self, call: Call, status: int, body: bytes, now: float) -> None:
        self.answer.set_result((status, body))

    def lost(self, call: Call, now: float) -> None:
        self.answer.set_result(None)

    def dropped(self, call: Call, now: float) -> None:
        raise AssertionError("a connection was free")


async def ask(answer: bytes, parts: int, closes: bool = False) -> tuple[Any, int]:
    """Send two requests, whose answers come in parts; return the first's, and connections used."""
    served = list[asyncio.Task[None] | None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readexactly(len(REQUEST))
                step = -(-len(answer) // parts)
                for at in range(0, len(answer), step):
                    writer.write(answer[at : at + step])
                    await writer.drain()
                    await asyncio.sleep(0)
                if closes:
                    break
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = LoadClient("127.0.0.1", server.sockets[0].getsockname()[1], 1, 30.0)
        await client.open()
        now = asyncio.get_running_loop().time()
        outcomes = [Outcome(), Outcome()]
        for outcome in outcomes:
            client.submit(Call(REQUEST, now + 1e9, outcome, None))
            await outcome.answer
        client.close()
        await asyncio.gather(*filter(None, served))
    first, second = (outcome.answer.result() for outcome in outcomes)
    assert first == second
    return first, len(served)


@pytest.mark.parametrize("parts", [1, 3, 40])
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_read_as_written(name: str, parts: int) -> None:
    answer, status, body = ANSWERS[name]
    found, used = await ask(answer, parts)
    if status is None:
        assert found is None
    else:
        assert (found, used) == ((status, body), 1)


@pytest.mark.parametrize("parts", [1, 3, 40])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_body_without_a_length_ends_with_the_connection(version: bytes, parts: int) -> None:
    answer = b"HTTP/%b 200 OK\r\nConnection: close\r\n\r\n{}" % version
    assert await ask(answer, parts, closes=True) == ((200, b"{}"), 2)


async def test_an_answer_of_1_0_ends_the_connection() -> None:
    answer = b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    assert await ask(answer, 1) == ((200, b"{}"), 2)


ONCE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
CHUNKED = ANSWERS["in chunks"][0]


@pytest.mark.parametrize(
    ("answer", "rest"),
    [
        (ONCE, ONCE),
        (ONCE, b"}"),
        (CHUNKED, b"\r\n"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b'{"x":1}'),
    ],
)
def test_what_follows_an_answer_makes_it_none(answer: bytes, rest: bytes) -> None:
    """It would be taken for the answer to a later request."""
    listener, transport = Mock(), Mock()
    connection = ClientConnection(Mock())
    connection.connection_made(transport)
    call = Call(REQUEST, 0.0, listener, None)
    connection.send(call)
    connection.data_received(answer + rest)
    connection.connection_lost(None)
    assert transport.abort.called
    assert listener.lost.called
    assert not listener.answered.called
    assert call.problem == f"bytes after the end of the answer: {rest[:40]!r}"


async def test_a_dropped_call_says_why_no_connection_was_open() -> None:
    def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.close()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = LoadClient("127.0.0.1", port, 1, patience_s=0.0)
    await client.open()
    problem = ""
    while not problem:
        await asyncio.sleep(0.01)
        call = Call(REQUEST, 0.0, Mock(), None)
        client.submit(call)
        client.sweep(1.0)
        problem = call.problem
    client.close()
    assert problem == f"nothing listens at 127.0.0.1:{port}"


async def test_a_target_that_accepts_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapbid.loadtest.client.GIVE_UP_S", 0.25)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        client = LoadClient("127.0.0.1", full.getsockname()[1], 9, patience_s=0.0)
        with pytest.raises(OSError, match=r"^accepts no connection within 0\.25 s$"):
            await client.open()
        client.close()


async def test_a_body_shorter_than_its_length_is_lost() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}"
    assert await ask(answer, 1, closes=True) == (None, 2)


async def test_a_call_knows_how_long_it_waited_for_a_connection() -> None:
    client = LoadClient("127.0.0.1", 0, 1, patience_s=5.0)
    sent = list[Call]()
    connection: Any = SimpleNamespace(send=sent.append, transport=Mock(is_closing=lambda: False))
    calls = [Call(REQUEST, due, Mock(), None) for due in (1.0, 2.0, 3.0)]
    client.release(connection, 0.0)
    for call in calls:
        client.submit(call)
    client.release(connection, 4.5)
    client.sweep(9.0)
    assert sent == calls[:2]
    assert [call.waited_s for call in calls] == [0.0, 2.5, 6.0]
    assert [call.listener.dropped.called for call in calls] == [False, False, True]  # type: ignore


async def test_a_connection_that_the_server_closes_is_replaced() -> None:
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 2\r\n\r\n{}"
    assert await ask(answer, 1, closes=True) == ((200, b"{}"), 2)
