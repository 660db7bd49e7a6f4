"""Which connections a worker ends, on real sockets of this process."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from snapbid.metrics import Metrics
from snapbid.server import connections
from snapbid.server.connections import ConnectionKeeper


class Pair(NamedTuple):
    """Both ends of a connection."""

    client: socket.socket
    server: socket.socket

    def ask(self) -> "Pair":
        """Send a part of a request."""
        self.client.sendall(b"?")
        assert self.server.recv(1) == b"?"
        later()
        return self

    def answer(self) -> "Pair":
        self.server.sendall(b"!")
        assert self.client.recv(1) == b"!"
        later()
        return self

    def is_ended(self) -> bool:
        return self.client.recv(1, socket.MSG_DONTWAIT) == b"" if self._is_readable() else False

    def _is_readable(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.client.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
            return True
        return False


def later() -> None:
    """Wait for the kernel's next tick, of at most 10 ms."""
    time.sleep(0.02)


class Port:
    """A listening socket on loopback."""

    def __init__(self, host: str, stack: contextlib.ExitStack) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._stack = stack
        self._socket = stack.enter_context(socket.create_server((host, 0), family=family))
        self.number: int = self._socket.getsockname()[1]

    def connect(self, sent: bytes = b"") -> Pair:
        client = socket.create_connection(self._socket.getsockname()[:2])
        client.sendall(sent)
        pair = Pair(client, self._socket.accept()[0])
        for end in pair:
            self._stack.enter_context(end)
        if not sent:
            later()
        return pair


@pytest.fixture(params=["127.0.0.1", "::1"])
def listen(request: pytest.FixtureRequest) -> Iterator[Callable[[], Port]]:
    with contextlib.ExitStack() as stack:
        try:
            Port(request.param, stack)
        except OSError:
            pytest.skip(f"no {request.param} here")
        yield lambda: Port(request.param, stack)


def looks(keeper: ConnectionKeeper) -> int:
    return asyncio.run(keeper.look())


def test_unanswered_requests_time_out_and_idle_connections_do_not(
    listen: Callable[[], Port], metrics: Metrics
) -> None:
    port = listen()
    keeper = ConnectionKeeper(port.number, metrics, most=1000, answer_s=0.0)
    silent, idle = port.connect(), port.connect().ask().answer()
    half, again = port.connect().ask(), port.connect().ask().answer().ask()
    assert looks(keeper) == 4
    assert not half.is_ended(), "its time begins when it is first seen"
    half.ask()  # and goes on with each byte
    assert looks(keeper) == 4
    assert half.is_ended()
    assert again.is_ended()
    assert not silent.is_ended()
    assert not idle.is_ended()
    assert looks(keeper) == 2


def test_a_request_that_arrives_with_its_connection(
    listen: Callable[[], Port], metrics: Metrics
) -> None:
    """Within a tick of the kernel's clock, so that its times are the same."""
    port = listen()
    keeper = ConnectionKeeper(port.number, metrics, most=1000, answer_s=0.0)
    pairs = [port.connect(b"?") for _ in range(20)]
    later()
    assert looks(keeper) == 20
    assert looks(keeper) == 20
    assert all(pair.is_ended() for pair in pairs)


def test_an_answer_restarts_the_timeout(listen: Callable[[], Port], metrics: Metrics) -> None:
    """A client that has sent a part of its next request whenever somebody looks."""
    port = listen()
    keeper = ConnectionKeeper(port.number, metrics, most=1000, answer_s=0.0)
    pair = port.connect()
    for _ in range(3):
        pair.ask()
        assert looks(keeper) == 1
        pair.answer()
    assert not pair.is_ended()


def test_the_least_needed_connections_are_closed_first(
    listen: Callable[[], Port], metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "YOUNG_S", 0.0)
    port = listen()
    keeper = ConnectionKeeper(port.number, metrics, most=4)
    idle = port.connect().ask().answer()
    silent, half = port.connect(), port.connect().ask()
    latest = [port.connect().ask().answer() for _ in range(3)]
    assert looks(keeper) == 6
    assert [pair.is_ended() for pair in (idle, silent, half)] == [True, True, True]
    assert not any(pair.is_ended() for pair in latest)
    assert looks(keeper) == 3


def test_a_new_connection_has_time_for_its_first_request(
    listen: Callable[[], Port], metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "YOUNG_S", 3600.0)
    port = listen()
    keeper = ConnectionKeeper(port.number, metrics, most=3)
    idle = port.connect().ask().answer()
    silent = [port.connect() for _ in range(2)]
    assert looks(keeper) == 3
    assert idle.is_ended()
    assert not any(pair.is_ended() for pair in silent)


def test_other_sockets_are_left_alone(listen: Callable[[], Port], metrics: Metrics) -> None:
    port, other = listen(), listen()
    keeper = ConnectionKeeper(port.number, metrics, most=0)
    theirs, mine = other.connect().ask(), port.connect().ask()
    assert looks(keeper) == 1
    assert mine.is_ended()
    assert not theirs.is_ended()
