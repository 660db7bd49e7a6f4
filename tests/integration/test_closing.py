"""What connects to Redis ends when it is closed, whatever it is doing at that moment."""

import asyncio
from pathlib import Path

import pytest
import uvloop
from redis.exceptions import ConnectionError

from snapbid.ledger.bids.ledger import Ledger
from snapbid.queues.queue import EventQueue
from snapbid.redisclient.connection import Connections, connector
from snapbid.redisclient.trips import Wire


@pytest.mark.parametrize("turns", range(9))
async def test_the_queue_closes_while_it_connects(redis_url: str, turns: int) -> None:
    queue = EventQueue(Connections(redis_url))
    await queue.open()
    await closes_after(turns, queue)


@pytest.mark.parametrize("turns", range(9))
async def test_the_ledger_closes_while_it_connects(
    redis_url: str, tmp_path: Path, turns: int
) -> None:
    ledger = Ledger(redis_url, tmp_path / "spool", shards=1, ttl_s=60, spool_max_bytes=1_000)
    await ledger.open()
    await closes_after(turns, ledger)


def test_sending_on_a_closing_connection_ends_it(redis_url: str) -> None:
    """uvloop, unlike asyncio, raises where something is written to a transport that is closing."""

    async def send_late() -> None:
        connection = connector(redis_url)()
        await connection.connect()  # type: ignore[no-untyped-call]
        wire = Wire(connection, lambda replies: None)
        wire._transport.abort()
        await asyncio.sleep(0)
        wire.send(("PING",))
        with pytest.raises(ConnectionError):
            await wire.ended
        await connection.disconnect(nowait=True)

    uvloop.run(send_late())


async def closes_after(turns: int, resource: EventQueue | Ledger) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await resource.close()
