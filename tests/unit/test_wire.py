"""What the wire needs of redis-py beyond its interface, and how replies reach it."""

import asyncio
from typing import Any

from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError

from snapbid.redisclient.trips import Wire


async def test_the_transport_of_a_redis_py_connection_can_be_taken_over() -> None:
    """`_writer` is private: should a release rename it, this fails before anything else does."""
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            if b"PING" in data:
                writer.write(b"+PONG\r\n-ERR no\r\n")
            else:
                writer.write(b"+OK\r\n" * data.count(b"*"))
        writer.close()
        await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = Connection(host="127.0.0.1", port=port)
    await connection.connect()  # type: ignore[no-untyped-call]
    assert isinstance(connection._writer, asyncio.StreamWriter)
    assert isinstance(connection._writer.transport, asyncio.Transport)
    replies: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
    wire = Wire(connection, replies.set_result)
    wire.send(("PING",), ("PING",))
    first, second = await replies
    assert first == b"PONG"
    assert "no" in str(second)
    wire.end(ConnectionError("it is over"))
    assert isinstance(wire.ended.exception(), ConnectionError)
    await connection.disconnect(nowait=True)
    await closed.wait()
    server.close()
    await server.wait_closed()
