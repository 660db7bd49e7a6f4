"""Keep-alive HTTP/1.1 connections for load: prebuilt bytes out, status and body back.

A call takes the connection that has been idle longest; where none is, it waits, and is dropped when
its patience ends. A call without an answer in time keeps its connection until the answer comes or
is given up, since what the server did is known only then.
"""

import asyncio
from collections import deque
from time import perf_counter
from typing import Any, Final, Protocol

GIVE_UP_S: Final = 10.0  # on an answer, beyond a call's patience
REOPEN_S: Final = 0.1  # after a connection that could not be made
MAX_HEAD: Final = 65_536
HEAD_END: Final = b"\r\n\r\n"


class Waits(Protocol):
    """Who made a call; told exactly once how it ended, at a moment of perf_counter."""

    def answered(self, call: "Call", status: int, body: bytes, now: float) -> None: ...

    def dropped(self, call: "Call", now: float) -> None:
        """It was never sent: no connection was free in time."""

    def lost(self, call: "Call", now: float) -> None:
        """It was sent and not answered: the connection ended, or was given up."""


class Call:
    """A request: its bytes, its scheduled moment, who waits for the answer and what for."""

    __slots__ = ("by", "due", "what", "wire")

    def __init__(self, wire: bytes, due: float, by: Waits, what: Any) -> None:
        self.wire = wire
        self.due = due
        self.by = by
        self.what = what


class Connection(asyncio.Protocol):
    """One connection of a client; carries one call at a time."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._buffer = b""
        self.call: Call | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._write = transport.write
        self._client.opened(self)

    def send(self, call: Call) -> None:
        self.call = call
        self._write(call.wire)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        try:
            parsed = _parse(data)
        except ValueError:
            self.transport.abort()  # it is no HTTP
            return
        if parsed is None:
            self._buffer = data
            return
        self._buffer = b""
        call, self.call = self.call, None
        if call is None:
            self.transport.abort()  # an answer to nothing: what comes next cannot be told apart
            return
        now = perf_counter()
        status, body, last = parsed
        call.by.answered(call, status, body, now)
        if last:
            self.transport.close()
        else:
            self._client.release(self, now)

    def connection_lost(self, error: Exception | None) -> None:
        call, self.call = self.call, None
        if call is not None:
            call.by.lost(call, perf_counter())
        self._client.ended(self)


def _parse(data: bytes) -> tuple[int, bytes, bool] | None:
    """Status, body and whether the connection ends; None while the answer is not whole.

    Raises ValueError for what is no HTTP/1.1 answer.
    """
    head = data.find(HEAD_END)
    if head < 0:
        if len(data) > MAX_HEAD:
            raise ValueError("no head")
        return None
    status = int(data[9:12])
    at = data.find(b"content-length: ", 0, head)
    if at >= 0:
        last = head + 4 + int(data[at + 16 : data.find(b"\r", at)])
        body = data[head + 4 : last] if len(data) >= last else None
    else:
        body = _body(data, head)
    return None if body is None else (status, body, b"close" in data[:head])


def _body(data: bytes, head: int) -> bytes | None:
    """The body of an answer in another form than the usual one; None while it is not whole."""
    headers: dict[bytes, bytes] = {}
    for line in data[:head].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip().lower()
    rest = data[head + 4 :]
    if headers.get(b"transfer-encoding") == b"chunked":
        return _chunked(rest)
    size = int(headers.get(b"content-length", 0))
    return rest[:size] if len(rest) >= size else None


def _chunked(rest: bytes) -> bytes | None:
    body = b""
    while True:
        line, found, rest = rest.partition(b"\r\n")
        if not found:
            return None
        size = int(line.partition(b";")[0], 16)
        if len(rest) < size + 2:
            return None
        if size == 0:
            return body
        body, rest = body + rest[:size], rest[size + 2 :]


class Client:
    """So many connections to one address; `patience_s` is how long a call waits for one."""

    def __init__(self, host: str, port: int, size: int, patience_s: float) -> None:
        self._host = host
        self._port = port
        self._size = size
        self._patience_s = patience_s
        self._idle: deque[Connection] = deque()
        self._waiting: deque[Call] = deque()
        self._all: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._closing = False
        self.reopened = 0

    async def open(self) -> None:
        """Raises OSError where nothing listens."""
        for _ in range(self._size):
            await self._connect()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: Connection(self), self._host, self._port)

    def opened(self, connection: Connection) -> None:
        self._all.add(connection)
        self.release(connection, perf_counter())

    def close(self) -> None:
        self._closing = True
        for task in self._opening:
            task.cancel()
        for connection in self._all:
            connection.transport.abort()

    @property
    def busy(self) -> int:
        """Calls that wait for a connection or for an answer."""
        return len(self._waiting) + sum(each.call is not None for each in self._all)

    def submit(self, call: Call) -> None:
        idle = self._idle
        while idle:
            connection = idle.popleft()
            if not connection.transport.is_closing():
                connection.send(call)
                return
        self._waiting.append(call)

    def release(self, connection: Connection, now: float) -> None:
        """The connection is free for the next call that still waits."""
        waiting = self._waiting
        while waiting:
            call = waiting.popleft()
            if now - call.due <= self._patience_s:
                connection.send(call)
                return
            call.by.dropped(call, now)
        self._idle.append(connection)

    def ended(self, connection: Connection) -> None:
        """The connection is gone; another one takes its place."""
        self._all.discard(connection)
        if self._closing:
            return
        self.reopened += 1
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
        """Drop what has waited too long, give up what will not be answered any more."""
        waiting = self._waiting
        while waiting and now - waiting[0].due > self._patience_s:
            call = waiting.popleft()
            call.by.dropped(call, now)
        for connection in list(self._all):
            pending = connection.call
            if pending is not None and now - pending.due > self._patience_s + GIVE_UP_S:
                connection.transport.abort()
