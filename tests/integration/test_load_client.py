"""The load generator's client, given the bytes of answers as servers and proxies write them."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from snapbid.loadtest.client import Call, LoadClient

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
