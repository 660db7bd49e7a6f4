"""The wire to Redis of a shard: commands in one write, their replies in one call.

redis-py makes the connection and logs in. From then on its streams are left out: a reply would wake
one task and that another, and each read would start a timer, at ten times the cost of this.
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
    """Redis has closed a connection that waited for no reply, as its `timeout` has it."""

    def __init__(self) -> None:
        super().__init__("Redis has closed the connection")


class Wire(asyncio.Protocol):
    """Takes over a connection that waits for nothing; close that as ever.

    `answered` is called with the replies to all commands of a `send`, the next of which may follow
    then; a reply may be a ResponseError. What it raises ends the connection, and `ended` says how a
    connection has ended.
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
        """Sends commands, all replies to earlier ones being there.

        Where the connection is closing already, its end is told in a later turn of the loop.
        """
        if self._transport.is_closing():
            self.end(ClosedIdleError())
            return
        self._expected = len(commands)
        self._replies = []
        self._transport.write(b"".join(map(pack_command, commands)))

    def end(self, error: Exception) -> None:
        """Gives the connection up."""
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
