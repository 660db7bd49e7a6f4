"""The connections of a worker: none holds a place that others need.

Granian accepts so many connections at a time, the rest wait in the kernel's queue. It has one
time-out for an idle connection and for a request's head that does not come, and exchanges want that
one long. So the rest is done here, by what the kernel knows of each connection:

- A connection on which a request has not been answered within `ANSWER_S` is ended: its head has
  not come, or nobody reads the answer. (A body that does not come is `http.BodyDeadline`'s.)
- Where three quarters of all places are taken, connections are ended until there is room: first
  those that never had an answer, then those whose last one is the longest ago.
- What requests that go unanswered for `HELD_AFTER_S` have sent is kept in memory, at most a head of
  `MAX_HEAD_BYTES` and a body each. Where that is more than `MAX_HELD_BYTES` in all, those that have
  sent the most are ended.
- A worker that stops waits for what is under way, which includes a head of which a part has come:
  once its port is closed, connections without an answer are ended after `STOPPING_S`.
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

MOST: Final = 16_384  # connections of a worker at a time
EVERY_S: Final = 8 * BEAT_S
HURRIED_EVERY_S: Final = 0.1
ANSWER_S: Final = 20.0  # longer than any answer takes
STOPPING_S: Final = 5.0  # the same, for a worker that stops
YOUNG_S: Final = 1.0  # for a new connection to get its first answer
MAX_HEAD_BYTES: Final = 64 << 10  # a request's line and headers
MAX_HELD_BYTES: Final = 64 << 20
HELD_AFTER_S: Final = 1.0
LARGEST: Final = 4 << 20  # bytes of a request
SLICE: Final = 256  # sockets looked at before other tasks get a turn

_FOLDER: Final = "/proc/self/fd"
_ESTABLISHED: Final = (1, 8)  # TCP_ESTABLISHED, TCP_CLOSE_WAIT (net/tcp_states.h)
_LISTEN: Final = 10
_INFO: Final = struct.Struct("=B43xI4xI72xQ16xII")  # tcp_info: state, ms since the last data sent
# and received, bytes received, segments with data received and sent (linux/tcp.h)


class Connection(NamedTuple):
    """A client's connection. `quiet_s` is the time since its last answer, or since it was made."""

    fd: int
    peer: Any  # its address
    quiet_s: float
    asks: bool  # has sent something since then
    answers: int  # grows with each
    received: int  # bytes, in all


class ConnectionKeeper:
    """Ends the connections to a TCP port of this process that hold a place for nothing."""

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
        """Look until cancelled."""
        while True:
            is_crowded = await self.look() > self._enough
            hurries = is_crowded or self._is_stopping or not self._has_listened
            await (asyncio.sleep(HURRIED_EVERY_S) if hurries else beat(EVERY_S))

    async def look(self) -> int:
        """End what is due; return how many connections there were."""
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
        """End those that have sent the most, until what all of them have sent is bearable."""
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
    """This process's connections, which Granian's own thread opens and closes at any moment."""

    def __init__(self, port: int) -> None:
        self.listens = False  # set where the port itself is among what is looked at
        self._port = port

    def descriptors(self) -> Iterator[int]:
        return map(int, os.listdir(_FOLDER))

    def connection(self, fd: int) -> Connection | None:
        """What is known of a client's connection; None for any other file."""
        try:
            own = _socket_of(fd)
        except OSError:  # it is none, or gone
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
        """Shut a connection down, so that Granian closes it; False if it is gone."""
        with contextlib.suppress(OSError):
            copy = os.dup(connection.fd)  # which cannot become another connection meanwhile
            with _socket_of(copy) as own:
                if own.getpeername() == connection.peer:
                    own.shutdown(socket.SHUT_RDWR)
                    return True
        return False


def _socket_of(fd: int) -> socket.socket:
    """The socket that a file is. Raises OSError for another file.

    The family named is the one with the longer addresses, so that those of IPv4 fit as well.
    """
    return socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fd)


def prepare() -> None:
    """Allow this process and its children the files for `MOST` connections, if the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST
    if soft != resource.RLIM_INFINITY and soft < wanted:
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most() -> int:
    """How many connections a worker takes at a time: a part of the files that it may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft * 3 // 4)
