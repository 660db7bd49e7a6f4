"""The wire protocol over a connection: commands in one write, their replies in one call.

redis-py connects and authenticates. After that its streams are bypassed: with them, each reply
wakes two tasks and each read starts a timer, at ten times the cost.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, InvalidResponse, ResponseError

from snapbid.redisclient._wire import pack_command

_PARTIAL: Final = object()


class ClosedIdleError(ConnectionError):
    """Redis has closed an idle connection (its setting `timeout`)."""

    def __init__(self) -> None:
        super().__init__("Redis has closed the connection")


class Wire(asyncio.Protocol):
    """Takes over an idle connection of redis-py, which is still closed through redis-py.

    `answered` is called with the replies to all commands of a `send`; a reply may be a
    ResponseError. The next `send` may follow from then on. Any exception in `answered` ends the
    connection; `ended` raises the reason for the end.
    """

    def __init__(
        self, connection: AbstractConnection, answered: Callable[[list[Any]], None]
    ) -> None:
        self._answered = answered
        self._reader = hiredis.Reader(InvalidResponse, ResponseError, notEnoughData=_PARTIAL)
        self._replies: list[Any] = []
        self._expected = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert connection._writer is not None
        self._transport = connection._writer.transport
        self._transport.set_protocol(self)

    def send(self, *commands: tuple[Any, ...]) -> None:
        """Send commands, once all replies to earlier ones have arrived.

        If the connection is closing, `ended` is set, and its waiters resume in a later iteration.
        """
        if self._transport.is_closing():
            self.end(ClosedIdleError())
            return
        self._expected = len(commands)
        self._replies = []
        self._transport.write(b"".join(map(pack_command, commands)))

    def end(self, error: Exception) -> None:
        """Abort the connection with an error."""
        if not self.ended.done():
            self.ended.set_exception(error)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _PARTIAL:
                if not isinstance(reply, hiredis.PushNotification):
                    self._replies.append(reply)
                    if len(self._replies) == self._expected:
                        self._answered(self._replies)
        except Exception as error:
            self.end(error)

    def connection_lost(self, error: Exception | None) -> None:
        if error is None and len(self._replies) == self._expected:
            error = ClosedIdleError()
        self.end(error or ConnectionError("Redis has closed the connection"))
