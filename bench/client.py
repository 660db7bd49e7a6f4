"""HTTP/1.1 clients that keep a server busy from one core.

`drive` is a closed loop: each connection sends its next request when it has its answer, so the
server is saturated and the latency follows from the number of connections. `schedule` is an open
loop: requests leave on schedule, however slow the answers are, and latency counts from the
scheduled time, even if no connection was free. Times, rates and connections are limited, and the
clients connect only to loopback addresses.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import count, cycle
from time import perf_counter
from typing import Any, Final, Protocol

import msgspec
import uvloop

from snapbid.loadtest.pacer import Pacer
from workload.serving import LOOPBACK

MAX_CONNECTIONS: Final = 512
MAX_SECONDS: Final = 60.0
MAX_RATE: Final = 100_000.0
STALL_S: Final = 10.0  # without any answer
TICK_S: Final = 0.0002
HEAD_START_S: Final = 0.01  # before the first request of a schedule
AUCTION_ID: Final = re.compile(rb'(?<=\{"id":")[0-9a-f]{24}(?=[0-9a-f]{8}")')
LENGTH: Final = b"ength: "  # of content-length, or Content-Length
NUMBERS: Final = count(1)  # of auctions
Each = Callable[[bytes, int, bytes, float], None]  # of a request: status, body, latency (s)
QUANTILES: Final = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}


class Outcome(msgspec.Struct):
    """The answers: counts by status, the duration in seconds, and sorted latencies in seconds.

    `lags`, filled in by `schedule` only, tell how late requests left although a connection was
    free. Latencies and lags exclude requests within `settle_s`.
    """

    statuses: dict[int, int]
    seconds: float
    latencies: list[float]
    last: list[tuple[int, bytes]]  # status and body of each connection's last answer
    lags: list[float] = []

    @property
    def requests(self) -> int:
        return sum(self.statuses.values())

    def quantiles_ms(self) -> dict[str, float]:
        """The quantiles of the latencies, in ms."""
        return {name: quantile(self.latencies, at) * 1e3 for name, at in QUANTILES.items()}


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of ascending values lies; 0 if there are none."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


class ClientError(RuntimeError):
    """The server closed a connection, stopped answering, or sent something that is not HTTP."""


def request(path: str, body: bytes) -> bytes:
    """Build the bytes of a bid request."""
    return (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"X-Openrtb-Version: 2.5\r\nContent-Length: %d\r\n\r\n%b"
    ) % (path.encode(), len(body), body)


def as_new_auctions(requests: Sequence[bytes]) -> Iterator[bytes]:
    """Cycle through the requests, giving each a new auction id every time.

    An exchange does not repeat auctions, and a bid that replaces another one costs Redis more. The
    last 8 digits of an id are kept, so that the request can be recognised.
    """
    parts = [AUCTION_ID.split(request, 1) for request in requests]
    for before, *after in cycle(parts):
        yield b"%b%024x%b" % (before, next(NUMBERS), after[0]) if after else before


def notice(path: str, auction_id: str, imp_id: str) -> bytes:
    """Build the bytes of a notice; the ids must not need escaping."""
    return b"GET %b?id=%b&impId=%b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % (
        path.encode(),
        auction_id.encode(),
        imp_id.encode(),
    )


class _Plan(Protocol):
    """Decides when a connection sends, and from which time on latencies count."""

    counts_from: float

    def begin(self, now: float) -> None: ...

    def is_free(self, connection: "_Connection", now: float) -> None:
        """Handle a connection that is new, or has received its answer."""
        ...

    def is_gone(self, connection: "_Connection") -> None:
        """Handle a connection that the server closed while no answer was due."""
        ...


class _Connection(asyncio.Protocol):
    """Sends one request at a time, and records its answer and its latency."""

    def __init__(self, plan: _Plan, outcome: Outcome, each: Each | None) -> None:
        self._plan = plan
        self._outcome = outcome
        self._each = each
        self._since: float | None = None  # None while no answer is due
        self._buffer = b""
        self.last = (0, b"")
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def send(self, request: bytes, since: float) -> None:
        self._since = since
        self._sent = request
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._since is None:  # such as a 408 from the server, before it closes
            self._transport.close()
            return
        if self._buffer:
            data = self._buffer + data
        head = data.find(b"\r\n\r\n")
        if head < 0:
            self._buffer = data
            return
        status = int(data[9:12])
        at = data.find(LENGTH, 0, head + 2)
        length = int(data[at + len(LENGTH) : data.index(b"\r", at)]) if at >= 0 else 0
        if len(data) < head + 4 + length:
            self._buffer = data
            return
        self._buffer = b""
        now = perf_counter()
        outcome = self._outcome
        latency = now - self._since
        if self._since >= self._plan.counts_from:
            outcome.latencies.append(latency)
        self._since = None
        outcome.statuses[status] = outcome.statuses.get(status, 0) + 1
        self.last = (status, data[head + 4 :])
        if self._each is not None:
            self._each(self._sent, *self.last, latency)
        self._plan.is_free(self, now)

    def connection_lost(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if self._since is None:
            self.done.set_result(None)
            self._plan.is_gone(self)
        else:
            self.done.set_exception(error or ClientError("the server closed a connection"))

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        self._transport.close()


class _Closed:
    """Sends the next request once a connection has its answer, up to a time or a count."""

    def __init__(self, requests: Iterator[bytes], seconds: float, limit: float) -> None:
        self.counts_from = 0.0
        self._requests = requests
        self._sent = 0
        self._seconds = seconds
        self._limit = limit

    def begin(self, now: float) -> None:
        self._until = now + self._seconds

    def is_free(self, connection: _Connection, now: float) -> None:
        if now >= self._until or self._sent >= self._limit:
            connection.finish()
            return
        self._sent += 1
        connection.send(next(self._requests), now)

    def is_gone(self, connection: _Connection) -> None:
        """Do nothing: connections are idle only at the end."""


class _Open:
    """Sends request n at `start + n / rate`, or as soon after that as a connection is free."""

    def __init__(self, requests: Iterator[bytes], rate: float, count: int, settle_s: float) -> None:
        self._requests = requests
        self._rate = rate
        self._count = count
        self._settle_s = settle_s
        self._next = 0
        self._start = self.counts_from = float("inf")
        self.lags: list[float] = []
        self._idle: list[_Connection] = []

    def begin(self, now: float) -> None:
        self._start = now + HEAD_START_S
        self.counts_from = self._start + self._settle_s

    def is_free(self, connection: _Connection, now: float) -> None:
        if self._next == self._count:
            connection.finish()
        elif (due := self._due()) <= now:
            self._send(connection, due)
        else:
            self._idle.append(connection)

    def is_gone(self, connection: _Connection) -> None:
        self._idle.remove(connection)

    def tick(self, now: float) -> float:
        """Send due requests over free connections; close connections that are no longer needed."""
        while self._idle and self._next < self._count and (due := self._due()) <= now:
            if due >= self.counts_from:
                self.lags.append(now - due)
            self._send(self._idle.pop(), due)
        if self._next == self._count:
            while self._idle:
                self._idle.pop().finish()
        return now + TICK_S

    def _due(self) -> float:
        return self._start + self._next / self._rate

    def _send(self, connection: _Connection, due: float) -> None:
        connection.send(next(self._requests), due)
        self._next += 1


async def drive(
    port: int,
    requests: Sequence[bytes],
    *,
    connections: int,
    seconds: float | None = None,
    once: bool = False,
    each: Each | None = None,
) -> Outcome:
    """Send requests in a closed loop: as new auctions for `seconds`, or each `once`, unchanged.

    `each` is called with every answer. Raises ClientError or OSError if the server does not answer.
    """
    assert once or (seconds is not None and 0 < seconds <= MAX_SECONDS)
    if once or seconds is None:
        seconds = MAX_SECONDS
        plan = _Closed(iter(requests), float("inf"), len(requests))
    else:
        plan = _Closed(as_new_auctions(requests), seconds, float("inf"))
    opened = min(connections, len(requests))
    return await _carry_out(port, plan, opened, seconds, each)


async def schedule(
    port: int,
    requests: Sequence[bytes],
    *,
    connections: int,
    rate: float,
    seconds: float,
    settle_s: float = 0.0,
    each: Each | None = None,
) -> Outcome:
    """Send `rate` requests a second for `seconds`, cycling through them with new auction ids.

    Latencies count from `settle_s` on, since a server is slow on connections that it has just
    accepted. `each` is called with every answer. Raises ClientError or OSError if the server does
    not answer.
    """
    assert 0 < seconds <= MAX_SECONDS
    assert 0 < rate <= MAX_RATE
    assert 0 <= settle_s < seconds
    plan = _Open(as_new_auctions(requests), rate, max(1, round(rate * seconds)), settle_s)
    pacer = Pacer(plan.tick)
    pacer.start()
    try:
        outcome = await _carry_out(port, plan, connections, seconds, each)
    finally:
        pacer.close()
    outcome.lags = sorted(plan.lags)
    return outcome


async def _carry_out(
    port: int, plan: _Plan, connections: int, seconds: float, each: Each | None
) -> Outcome:
    assert 0 < connections <= MAX_CONNECTIONS
    loop = asyncio.get_running_loop()
    outcome = Outcome({}, 0.0, [], [])
    opened = [
        (await loop.create_connection(lambda: _Connection(plan, outcome, each), LOOPBACK, port))[1]
        for _ in range(connections)
    ]
    started = perf_counter()
    plan.begin(started)
    for connection in opened:
        plan.is_free(connection, started)
    try:
        waiting = asyncio.gather(*(connection.done for connection in opened))
        await asyncio.wait_for(waiting, seconds + STALL_S)
    except TimeoutError:
        raise ClientError("the server stopped answering") from None
    finally:
        for connection in opened:
            connection.finish()
    outcome.seconds = perf_counter() - started
    outcome.latencies.sort()
    outcome.last = [connection.last for connection in opened]
    return outcome


def run(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Run `drive` or `schedule` on a new event loop, and return its outcome."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
