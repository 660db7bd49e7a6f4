"""End connections that occupy a slot of a worker without using it.

Granian accepts a limited number of connections at a time; others wait in the kernel's queue. It has
a single timeout for idle connections and incomplete request heads, which has to be long, since SSPs
keep idle connections. So this module also ends connections, judging by the kernel's figures on each
of them:

- A connection whose request has not been answered within `ANSWER_S` is ended: its head is
  incomplete, or the client does not read the answer. (`http.BodyDeadline` ends incomplete bodies.)
- Once more than three quarters of all slots are in use, surplus connections are ended: first those
  older than `YOUNG_S` that never had an answer, then those whose last answer is the oldest.
- Requests that go unanswered for `HELD_AFTER_S` hold memory, each at most a head of
  `MAX_HEAD_BYTES` and a body. If together they hold more than `MAX_HELD_BYTES`, the connections
  that have sent the most are ended.
- A stopping worker waits for requests in flight, even incomplete heads: once its port is closed,
  connections without an answer are ended after `STOPPING_S`.
"""

import asyncio
import contextlib
import os
import resource
import socket
import struct
from collections.abc import Iterator
from time import monotonic
from typing import Any, Final, NamedTuple

from snapbid.base.beat import BEAT_S, beat
from snapbid.metrics import Counters, Metrics

MOST: Final = 16_384  # connections to a worker at a time
EVERY_S: Final = 8 * BEAT_S
HURRIED_EVERY_S: Final = 0.1
ANSWER_S: Final = 20.0  # longer than any answer takes
STOPPING_S: Final = 5.0  # the same, while the worker stops
YOUNG_S: Final = 1.0  # for a new connection to get its first answer
MAX_HEAD_BYTES: Final = 64 << 10  # a request's line and headers
MAX_HELD_BYTES: Final = 64 << 20
HELD_AFTER_S: Final = 1.0
LARGEST: Final = 4 << 20  # bytes counted of one request, at most
SLICE: Final = 256  # sockets inspected before other tasks run

_FOLDER: Final = "/proc/self/fd"
_ESTABLISHED: Final = (1, 8)  # TCP_ESTABLISHED, TCP_CLOSE_WAIT (net/tcp_states.h)
_LISTEN: Final = 10
_INFO: Final = struct.Struct("=B43xI4xI72xQ16xII")  # tcp_info: state, ms since the last data sent
# and received, bytes received, segments with data received and sent (linux/tcp.h)


class Connection(NamedTuple):
    """A client's connection, with the kernel's figures on it."""

    fd: int
    peer: Any  # the client's address
    quiet_s: float  # since its last answer, or since its start if it had none
    asks: bool  # whether it has sent something since then
    answers: int  # data segments sent: grows with each answer
    received: int  # bytes in total


class ConnectionKeeper:
    """Ends unused connections to a TCP port of this process."""

    def __init__(
        self, port: int, metrics: Metrics, *, most: int, answer_s: float = ANSWER_S
    ) -> None:
        self._sockets = _Sockets(port)
        self._ended = Counters(metrics, "snapbid_connections_ended_total", "reason")
        self._enough = most * 3 // 4
        self._answer_s = answer_s
        self._asking: dict[tuple[int, Any, int], float] = {}
        self._has_listened = self._is_stopping = False

    async def keep(self) -> None:
        """Call `look` periodically until cancelled, to end unused connections."""
        while True:
            is_crowded = await self.look() > self._enough
            hurries = is_crowded or self._is_stopping or not self._has_listened
            await (asyncio.sleep(HURRIED_EVERY_S) if hurries else beat(EVERY_S))

    async def look(self) -> int:
        """End connections that are stuck or surplus; return how many were open before that."""
        now, before, self._asking = monotonic(), self._asking, {}
        connections, holding = [], []
        answer_s = STOPPING_S if self._is_stopping else self._answer_s
        self._sockets.listens = False
        for number, fd in enumerate(self._sockets.descriptors(), 1):
            if number % SLICE == 0:
                await asyncio.sleep(0)
            connection = self._sockets.connection(fd)
            if connection is None:
                continue
            connections.append(connection)
            if connection.asks or (self._is_stopping and not connection.answers):
                request = (fd, connection.peer, connection.answers)
                since = self._asking[request] = before.get(request, now)
                if now - since > answer_s:
                    self._end(connection, "unanswered")
                elif now - since > HELD_AFTER_S:
                    holding.append(connection)
        self._end_largest(holding)
        self._has_listened |= self._sockets.listens or bool(connections)
        self._is_stopping = self._has_listened and not self._sockets.listens
        surplus = len(connections) - self._enough
        if surplus > 0:
            connections.sort(key=_usefulness)
            for connection in connections[:surplus]:
                self._end(connection, "crowded")
        return len(connections)

    def _end_largest(self, holding: list[Connection]) -> None:
        """Close connections that hold most, until the rest hold at most `MAX_HELD_BYTES`."""
        held = sum(map(_held, holding))
        for connection in sorted(holding, key=_held, reverse=True):
            if held <= MAX_HELD_BYTES:
                break
            held -= _held(connection)
            self._end(connection, "held")

    def _end(self, connection: Connection, reason: str) -> None:
        if self._sockets.end(connection):
            self._ended.inc(reason)


def _held(connection: Connection) -> int:
    return min(connection.received, LARGEST)


def _usefulness(connection: Connection) -> tuple[bool, float]:
    may_be_answered = connection.answers > 0 or connection.quiet_s < YOUNG_S
    return may_be_answered, -connection.quiet_s


class _Sockets:
    """The sockets of this process, which a thread of Granian may open and close at any time."""

    def __init__(self, port: int) -> None:
        self.listens = False  # set when an inspected socket is the listening port
        self._port = port

    def descriptors(self) -> Iterator[int]:
        return map(int, os.listdir(_FOLDER))

    def connection(self, fd: int) -> Connection | None:
        """Return the connection behind a file descriptor; None for any other file."""
        try:
            own = _socket_of(fd)
        except OSError:  # not a socket, or gone
            return None
        try:
            return self._known(own)
        except OSError:
            return None
        finally:
            own.detach()

    def _known(self, own: socket.socket) -> Connection | None:
        info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        state, sent_ms, received_ms, received, questions, answers = _INFO.unpack(info)
        if own.getsockname()[1] != self._port:
            return None
        self.listens |= state == _LISTEN
        if state not in _ESTABLISHED:
            return None
        asks = received_ms < sent_ms or (questions > 0 and answers == 0)
        return Connection(own.fileno(), own.getpeername(), sent_ms / 1000, asks, answers, received)

    def end(self, connection: Connection) -> bool:
        """Shut a connection down, so that Granian closes it; return False if already closed."""
        with contextlib.suppress(OSError):
            copy = os.dup(connection.fd)  # unlike the copy, the original may be reused meanwhile
            with _socket_of(copy) as own:
                if own.getpeername() == connection.peer:
                    own.shutdown(socket.SHUT_RDWR)
                    return True
        return False


def _socket_of(fd: int) -> socket.socket:
    """Return the socket of a file descriptor. Raises OSError if the file is not a socket.

    It is opened as AF_INET6, so that addresses of both IPv4 and IPv6 fit.
    """
    return socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fd)


def prepare() -> None:
    """Raise the limit on open files to allow `MOST` connections, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST
    if soft != resource.RLIM_INFINITY and soft < wanted:
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most() -> int:
    """Return the number of connections that a worker may accept, given its limit on open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft * 3 // 4)
