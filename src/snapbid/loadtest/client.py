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

from snapbid.base.reasons import reason

GIVE_UP_S: Final = 10.0  # how long to wait for an answer beyond a call's timeout
PAUSE_S: Final = 1.0  # between the halves of a slow request
REOPEN_S: Final = 0.1  # pause after a failed connection attempt
MAX_HEAD: Final = 65_536
SHOWN: Final = 40  # bytes of what is not an answer
HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length: "
_CLOSES: Final = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_STAYS: Final = re.compile(rb"\r\nconnection:[ \t]*keep-alive", re.IGNORECASE)
_HEX: Final = re.compile(rb"[0-9A-Fa-f]{1,16}")


class CallListener(Protocol):
    """Receives one notification at the end of each call; `now` is a perf_counter time (s)."""

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
    0 if a connection was free. `problem`: why it was dropped or lost; "" if not known.
    """

    __slots__ = ("context", "due", "listener", "manner", "problem", "waited_s", "wire")

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
        self.problem = ""


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
        except ValueError as error:
            if self.call is not None:
                self.call.problem = f"{error}"
            self.transport.abort()
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
    skipped. Raises ValueError for anything but a single HTTP/1.x answer.
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
        length = data[length_at : data.find(b"\r", length_at)]
        found = _sized(data, head + len(HEAD_END), length)
    else:
        found = _body(data, head, status, ended)
    if found is None:
        return None
    body, end = found
    if end < len(data):
        raise ValueError(f"bytes after the end of the answer: {data[end : end + SHOWN]!r}")
    return status, body, _closes(data, head)


def _closes(data: bytes, head: int) -> bool:
    """Return whether the server closes the connection after the answer (RFC 9112, 9.3)."""
    if data.startswith(b"HTTP/1.0") and _STAYS.search(data, 0, head) is None:
        return True
    return _CLOSES.search(data, 0, head) is not None


def _body(data: bytes, head: int, status: int, ended: bool) -> tuple[bytes, int] | None:
    """Return the body of an answer, chunked or not, and its end; None while it is incomplete.

    A body without a length ends with the connection (RFC 9112, 6.3).
    """
    headers: dict[bytes, bytes] = {}
    for line in data[:head].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip().lower()
    start = head + len(HEAD_END)
    if headers.get(b"transfer-encoding") == b"chunked":
        return _chunked(data, start)
    if (length := headers.get(b"content-length")) is not None:
        return _sized(data, start, length)
    if status in (204, 304):
        return b"", start
    return (data[start:], len(data)) if ended else None


def _sized(data: bytes, start: int, length: bytes) -> tuple[bytes, int] | None:
    if not length.isdigit():
        raise ValueError(f"not HTTP/1.x: {length[:SHOWN]!r} is not a Content-Length")
    end = start + int(length)
    return (data[start:end], end) if len(data) >= end else None


def _chunked(data: bytes, start: int) -> tuple[bytes, int] | None:
    body = b""
    while (line_end := data.find(b"\r\n", start)) >= 0:
        stated = data[start:line_end].partition(b";")[0].strip()
        if not _HEX.fullmatch(stated):
            raise ValueError(f"not HTTP/1.x: {stated[:SHOWN]!r} is not the size of a chunk")
        size = int(stated, 16)
        if size == 0:  # an empty line follows, perhaps after trailers
            end = data.find(HEAD_END, line_end)
            return (body, end + len(HEAD_END)) if end >= 0 else None
        start = line_end + 2 + size + 2
        if len(data) < start:
            return None
        body += data[line_end + 2 : start - 2]
    return None


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
        self._problem = ""  # why the last attempt to connect failed; "" if it did not

    async def open(self) -> None:
        """Open all connections. Raises OSError if the target does not accept them in time."""
        for _ in range(self._size):
            await self._connect()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        limit_s = self._patience_s + GIVE_UP_S
        try:
            async with asyncio.timeout(limit_s):
                await loop.create_connection(lambda: ClientConnection(self), self._host, self._port)
        except TimeoutError:
            raise OSError(f"accepts no connection within {limit_s:g} s") from None

    def opened(self, connection: ClientConnection) -> None:
        self._all.add(connection)
        self.release(connection, perf_counter())
        self._problem = ""

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
            self._drop(call, now)
        self._idle.append(connection)

    def _next_waiting(self, now: float) -> Call:
        call = self._waiting.popleft()
        call.waited_s = now - call.due
        return call

    def _drop(self, call: Call, now: float) -> None:
        call.problem = self._problem
        call.listener.dropped(call, now)

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
            except OSError as error:
                self._problem = reason(error, f"http://{self._host}:{self._port}")
                await asyncio.sleep(REOPEN_S)

    def sweep(self, now: float) -> None:
        """Drop calls that have waited too long, and give up on overdue answers."""
        waiting = self._waiting
        while waiting and now - waiting[0].due > self._patience_s:
            self._drop(self._next_waiting(now), now)
        for connection in list(self._all):
            current = connection.call
            if current is not None and now - current.due > self._patience_s + GIVE_UP_S:
                connection.transport.abort()
