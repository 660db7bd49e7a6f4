"""Tests of the benchmarks' clients: their counts, and that a schedule waits for no answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import islice

import pytest

from bench import together_run
from bench.client import ClientError, as_new_auctions, drive, notice, quantile, schedule
from bench.processes import BenchError

WIRE = notice("/rtb/win", "auction", "1")
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
FULL = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
STALL_S = 0.3

Answer = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[int]:
    """Serve on a free port, where `answer` answers the n-th request; yield the port."""
    number = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                number += 1
                await answer(number - 1, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def by_turns(number: int, writer: asyncio.StreamWriter) -> None:
    writer.write(FULL if number % 2 else EMPTY)


async def test_each_request_once() -> None:
    async with serving(by_turns) as port:
        outcome = await drive(port, [WIRE] * 11, connections=4, once=True)
    assert outcome.statuses == {204: 6, 200: 5}
    assert outcome.requests == len(outcome.latencies) == 11


async def test_an_answer_in_pieces() -> None:
    async def drip(number: int, writer: asyncio.StreamWriter) -> None:
        for place in range(len(FULL)):
            writer.write(FULL[place : place + 1])
            await writer.drain()
            await asyncio.sleep(0)

    async with serving(drip) as port:
        outcome = await drive(port, [WIRE] * 3, connections=1, once=True)
    assert outcome.statuses == {200: 3}
    assert outcome.last == [(200, b"hello")]


async def test_a_lost_connection_ends_the_run() -> None:
    async def leave(number: int, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with serving(leave) as port:
        with pytest.raises(ClientError):
            await drive(port, [WIRE], connections=1, once=True)


async def test_a_schedule_sends_everything_and_measures_a_stall() -> None:
    """Latency counts from the scheduled time, even for requests that a stall held back."""

    async def stall_once(number: int, writer: asyncio.StreamWriter) -> None:
        if number == 0:
            await asyncio.sleep(STALL_S)
        writer.write(EMPTY)

    async with serving(stall_once) as port:
        outcome = await schedule(port, [WIRE], connections=1, rate=100, seconds=0.5)
    assert outcome.statuses == {204: 50}
    for place, latency in enumerate(reversed(outcome.latencies[-20:])):
        assert latency >= STALL_S - place / 100 - 0.001
    assert quantile(outcome.latencies, 0.99) >= STALL_S - 0.02
    assert outcome.seconds >= 0.49


async def test_the_start_of_a_schedule_is_not_measured() -> None:
    async def stall_at_first(number: int, writer: asyncio.StreamWriter) -> None:
        if number == 0:
            await asyncio.sleep(STALL_S)
        writer.write(EMPTY)

    async with serving(stall_at_first) as port:
        outcome = await schedule(port, [WIRE], connections=1, rate=100, seconds=0.5, settle_s=0.25)
    assert outcome.statuses == {204: 50}
    assert len(outcome.latencies) == 25


async def test_a_schedule_uses_all_connections() -> None:
    """While one connection waits for its answer, the others carry the due requests."""
    released = asyncio.Event()

    async def keep_the_first(number: int, writer: asyncio.StreamWriter) -> None:
        if number == 0:
            await released.wait()
        if number == 19:
            released.set()
        writer.write(EMPTY)

    async with serving(keep_the_first) as port:
        outcome = await schedule(port, [WIRE], connections=2, rate=200, seconds=0.1)
    assert outcome.statuses == {204: 20}
    assert len(outcome.last) == 2


async def test_a_schedule_goes_on_without_an_idle_connection() -> None:
    """The server times out idle connections before it answers the one that sent a request."""
    opened: list[asyncio.StreamWriter] = []
    closed, answered = asyncio.Semaphore(0), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            for other in opened:
                if other is not writer:
                    other.write(b"HTTP/1.1 408 Timeout\r\ncontent-length: 0\r\n\r\n")
                    await closed.acquire()
            answered.set()
            await reader.read()
        writer.close()
        closed.release()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        second_is_far = schedule(port, [WIRE], connections=3, rate=0.05, seconds=40)
        run = asyncio.create_task(second_is_far)
        await answered.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not run.done()
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        await closed.acquire()
        for writer in opened:
            with suppress(ConnectionError):
                await writer.wait_closed()


async def test_each_answer_comes_with_its_latency() -> None:
    answers: list[tuple[bytes, int, bytes, float]] = []
    async with serving(by_turns) as port:
        work = drive(
            port, [WIRE] * 4, connections=2, once=True, each=lambda *own: answers.append(own)
        )
        outcome = await work
    assert sorted(latency for *_, latency in answers) == outcome.latencies


@pytest.mark.parametrize("every", [2, 100])
async def test_bids_beside_batches_are_answers_and_not_refusals(every: int) -> None:
    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(EMPTY if number % every == 0 else FULL)

    async with serving(answer) as port:
        turn = together_run._together(port, [WIRE], [], senders=0, rate=1_000, seconds=0.2)
        if every == 2:
            with pytest.raises(BenchError, match="204: 100"):
                await turn
        else:
            assert (await turn)["late"] == 0.01


def test_no_auction_is_sent_twice() -> None:
    auction, other = (b'POST {"id":"%032x","imp":[{"id":"1"}]}' % number for number in (1, 2))
    sent = list(islice(as_new_auctions([auction, WIRE, other]), 6))
    ids = [json.loads(wire.removeprefix(b"POST "))["id"] for wire in sent if wire != WIRE]
    assert len({*ids}) == 4
    assert [len(wire) for wire in sent] == [len(wire) for wire in (auction, WIRE, other)] * 2
