"""Keep-alive HTTP/1.1 connections that send prebuilt bytes and return status and body.

A call is sent over the connection that has been idle longest. If none is idle, the call waits, and
is dropped unless a connection becomes free in time. A call that was sent keeps its connection, even
if overdue, until the answer arrives or is given up on, since only then is the outcome known.
"""

import asyncio
import re
from collections import deque
from enum import Enum
from time import perf_counter
from typing import Any, Final, Protocol

GIVE_UP_S: Final = 10.0  # how long to wait for an answer beyond a call's timeout
PAUSE_S: Final = 1.0  # between the halves of a slow request
REOPEN_S: Final = 0.1  # pause after a failed connection attempt
MAX_HEAD: Final = 65_536
HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length: "
_CLOSES: Final = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)


class CallListener(Protocol):
    """Receives one notification per call, when it ends; `now` is a perf_counter time (s)."""

    def answered(self, call: "Call", status: int, body: bytes, now: float) -> None: ...

    def dropped(self, call: "Call", now: float) -> None:
        """Handle a call that was never sent: no connection was free in time."""

    def lost(self, call: "Call", now: float) -> None:
        """Handle a call that was sent but not answered before its connection ended."""


class Manner(Enum):
    """A manner of sending a request: at once, in halves with a pause, or only the first half."""

    WHOLE = 0
    SLOW = 1
    CUT = 2


class Call:
    """A request, the listener to notify when it ends, and that listener's own `context`.

    `due` is the scheduled time (perf_counter) of the request, or of its second half once the first
    half is sent. `waited_s` is the time from `due` until the call got a connection or was dropped;
    0 if a connection was free.
    """

    __slots__ = ("context", "due", "listener", "manner", "waited_s", "wire")

    def __init__(
        self,
        wire: bytes,
        due: float,
        listener: CallListener,
        context: Any,
        manner: Manner = Manner.WHOLE,
    ) -> None:
        self.wire = wire
        self.due = due
        self.listener = listener
        self.context = context
        self.manner = manner
        self.waited_s = 0.0


class ClientConnection(asyncio.Protocol):
    """A client's connection, which carries one call at a time."""

    def __init__(self, client: "LoadClient") -> None:
        self._client = client
        self._buffer = b""
        self.call: Call | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._write = transport.write
        self._client.opened(self)

    def send(self, call: Call) -> None:
        self.call = call
        if call.manner is Manner.WHOLE:
            self._write(call.wire)
        else:
            self._send_half(call)

    def _send_half(self, call: Call) -> None:
        wire = call.wire
        middle = (wire.index(HEAD_END) + len(HEAD_END) + len(wire)) // 2  # of the body
        self._write(wire[:middle])
        if call.manner is Manner.CUT:
            self.transport.close()
        else:
            call.due += PAUSE_S
            asyncio.get_running_loop().call_later(PAUSE_S, self._send_rest, call, wire[middle:])

    def _send_rest(self, call: Call, rest: bytes) -> None:
        if self.call is call:  # otherwise it was answered, or the connection has ended
            self._write(rest)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        try:
            parsed = _parse(data)
        except ValueError:
            self.transport.abort()  # not HTTP
            return
        if parsed is None:
            self._buffer = data
            return
        self._buffer = b""
        if self.call is None:
            self.transport.abort()  # an unsolicited answer: later ones could not be matched
            return
        status, body, closes = parsed
        now = self._end_call(status, body)
        if closes:
            self.transport.close()
        else:
            self._client.release(self, now)

    def _end_call(self, status: int, body: bytes) -> float:
        call, self.call = self.call, None
        assert call is not None
        now = perf_counter()
        call.listener.answered(call, status, body, now)
        return now

    def eof_received(self) -> None:
        """Treat the end of the connection as the end of an answer without a length."""
        if self.call is not None and (parsed := _parse(self._buffer, ended=True)) is not None:
            status, body, _ = parsed
            self._end_call(status, body)

    def connection_lost(self, error: Exception | None) -> None:
        call, self.call = self.call, None
        if call is not None:
            call.listener.lost(call, perf_counter())
        self._client.ended(self)


def _parse(data: bytes, ended: bool = False) -> tuple[int, bytes, bool] | None:
    """Return status, body and whether the connection closes; None while the answer is incomplete.

    `ended`: whether the server has ended its side of the connection. Interim answers (1xx) are
    skipped. Raises ValueError for anything but HTTP/1.x.
    """
    head = data.find(HEAD_END)
    if head < 0:
        if len(data) > MAX_HEAD:
            raise ValueError("the response is not HTTP/1.x")
        return None
    if not data.startswith(b"HTTP/1."):
        raise ValueError("the response is not HTTP/1.x")
    status = int(data[9:12])
    if status < 200:
        return _parse(data[head + 4 :], ended)
    length_at = data.find(_LENGTH, 0, head)
    if length_at >= 0:
        length_at += len(_LENGTH)
        end = head + 4 + int(data[length_at : data.find(b"\r", length_at)])
        body = data[head + 4 : end] if len(data) >= end else None
    else:
        body = _body(data, head, status, ended)
    return None if body is None else (status, body, _CLOSES.search(data, 0, head) is not None)


def _body(data: bytes, head: int, status: int, ended: bool) -> bytes | None:
    """Return the body of an answer, chunked or not; None while it is incomplete.

    A body without a length ends with the connection (RFC 9112, 6.3).
    """
    headers: dict[bytes, bytes] = {}
    for line in data[:head].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip().lower()
    rest = data[head + 4 :]
    if headers.get(b"transfer-encoding") == b"chunked":
        return _chunked(rest)
    length = headers.get(b"content-length")
    if length is None:
        return b"" if status in (204, 304) else rest if ended else None
    size = int(length)
    return rest[:size] if len(rest) >= size else None


def _chunked(rest: bytes) -> bytes | None:
    body = b""
    while True:
        line, separator, rest = rest.partition(b"\r\n")
        if not separator:
            return None
        size = int(line.partition(b";")[0], 16)
        if len(rest) < size + 2:
            return None
        if size == 0:
            return body
        body, rest = body + rest[:size], rest[size + 2 :]


class LoadClient:
    """A pool of `size` connections to one address; calls wait up to `patience_s` for a free one."""

    def __init__(self, host: str, port: int, size: int, patience_s: float) -> None:
        self._host = host
        self._port = port
        self._size = size
        self._patience_s = patience_s
        self._idle: deque[ClientConnection] = deque()
        self._waiting: deque[Call] = deque()
        self._all: set[ClientConnection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._closing = False

    async def open(self) -> None:
        """Open all connections. Raises OSError if the target does not accept them."""
        for _ in range(self._size):
            await self._connect()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: ClientConnection(self), self._host, self._port)

    def opened(self, connection: ClientConnection) -> None:
        self._all.add(connection)
        self.release(connection, perf_counter())

    def close(self) -> None:
        self._closing = True
        for task in self._opening:
            task.cancel()
        for connection in self._all:
            connection.transport.abort()

    def submit(self, call: Call) -> None:
        idle = self._idle
        while idle:
            connection = idle.popleft()
            if not connection.transport.is_closing():
                connection.send(call)
                return
        self._waiting.append(call)

    def release(self, connection: ClientConnection, now: float) -> None:
        """Give a connection that has become free to the next waiting call."""
        while self._waiting:
            call = self._next_waiting(now)
            if call.waited_s <= self._patience_s:
                connection.send(call)
                return
            call.listener.dropped(call, now)
        self._idle.append(connection)

    def _next_waiting(self, now: float) -> Call:
        call = self._waiting.popleft()
        call.waited_s = now - call.due
        return call

    def ended(self, connection: ClientConnection) -> None:
        """Replace a connection that has ended."""
        self._all.discard(connection)
        if self._closing:
            return
        task = asyncio.get_running_loop().create_task(self._reopen())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _reopen(self) -> None:
        while not self._closing:
            try:
                await self._connect()
                return
            except OSError:
                await asyncio.sleep(REOPEN_S)

    def sweep(self, now: float) -> None:
        """Drop calls that have waited too long, and give up on overdue answers."""
        waiting = self._waiting
        while waiting and now - waiting[0].due > self._patience_s:
            call = self._next_waiting(now)
            call.listener.dropped(call, now)
        for connection in list(self._all):
            current = connection.call
            if current is not None and now - current.due > self._patience_s + GIVE_UP_S:
                connection.transport.abort()
