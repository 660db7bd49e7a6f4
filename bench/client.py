"""A closed-loop HTTP/1.1 client: each connection sends its next request when it has its answer.

Made to keep a server busy from one core, not to measure latency under a given load: the times it
reports are those of a saturated server, where they follow from the number of connections. Both
times and connections are bounded, and only loopback addresses are connected to.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

import msgspec

MAX_CONNECTIONS: Final = 512
MAX_SECONDS: Final = 60.0
STALL_S: Final = 10.0  # without any answer
LOOPBACK: Final = "127.0.0.1"


class Outcome(msgspec.Struct):
    """What was answered: requests by status, seconds, latencies in seconds, sorted."""

    statuses: dict[int, int]
    seconds: float
    latencies: list[float]
    last: list[tuple[int, bytes]]  # status and body of each connection's last answer

    @property
    def requests(self) -> int:
        return sum(self.statuses.values())


class ClientError(RuntimeError):
    """The server closed a connection, or what it sent is no HTTP answer."""


def request(path: str, body: bytes) -> bytes:
    """A bid request as its bytes on the wire."""
    return (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"X-Openrtb-Version: 2.5\r\nContent-Length: %d\r\n\r\n%b"
    ) % (path.encode(), len(body), body)


def notice(path: str, auction_id: str, imp_id: str) -> bytes:
    """A notice as its bytes on the wire; ids of unreserved characters."""
    return b"GET %b?id=%b&impId=%b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % (
        path.encode(),
        auction_id.encode(),
        imp_id.encode(),
    )


class _Run:
    """What the connections of one run share."""

    def __init__(self, requests: Sequence[bytes], seconds: float | None, limit: int | None):
        self.requests = requests
        self.next = 0
        self.until = perf_counter() + seconds if seconds is not None else float("inf")
        self.limit = limit
        self.statuses: Counter[int] = Counter()
        self.latencies: list[float] = []
        self.error: Exception | None = None


class _Connection(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self._run = run
        self._buffer = b""
        self.last = (0, b"")
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send(perf_counter())

    def _send(self, now: float) -> None:
        run = self._run
        place = run.next
        if now >= run.until or (run.limit is not None and place >= run.limit):
            self._finish()
            return
        run.next = place + 1
        self._sent = now
        self._transport.write(run.requests[place % len(run.requests)])

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        head = data.find(b"\r\n\r\n")
        if head < 0:
            self._buffer = data
            return
        status = int(data[9:12])
        at = data.find(b"content-length: ", 0, head + 2)
        length = int(data[at + 16 : data.index(b"\r", at)]) if at >= 0 else 0
        if len(data) < head + 4 + length:
            self._buffer = data
            return
        self._buffer = b""
        now = perf_counter()
        run = self._run
        run.latencies.append(now - self._sent)
        run.statuses[status] += 1
        self.last = (status, data[head + 4 :])
        self._send(now)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self._run.error = error or ClientError("the server closed a connection")
            self.done.set_result(None)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        self._transport.close()


async def drive(
    port: int,
    requests: Sequence[bytes],
    *,
    connections: int,
    seconds: float | None = None,
    once: bool = False,
) -> Outcome:
    """Sends the requests in turns for `seconds`, or each of them once.

    Raises ClientError or OSError where the server does not answer.
    """
    assert 0 < connections <= MAX_CONNECTIONS
    assert once or (seconds is not None and 0 < seconds <= MAX_SECONDS)
    run = _Run(requests, None if once else seconds, len(requests) if once else None)
    loop = asyncio.get_running_loop()
    started = perf_counter()
    opened = [
        await loop.create_connection(lambda: _Connection(run), LOOPBACK, port)
        for _ in range(min(connections, len(requests)))
    ]
    protocols = [protocol for _, protocol in opened]
    await asyncio.wait(
        [protocol.done for protocol in protocols], timeout=(seconds or MAX_SECONDS) + STALL_S
    )
    took = perf_counter() - started
    for transport, protocol in opened:
        if not protocol.done.done():
            run.error = run.error or ClientError("no answer any more")
        transport.close()
    if run.error is not None:
        raise run.error
    return Outcome(dict(run.statuses), took, sorted(run.latencies), [one.last for one in protocols])
