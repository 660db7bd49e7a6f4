"""The proxy that other tests break wires with."""

import asyncio
import contextlib
import gc
import socket
from pathlib import Path

import pytest
from support.proxy import FaultProxy


@pytest.mark.parametrize("turns", range(5))
async def test_what_it_accepts_while_it_stops_listening_is_closed(
    turns: int, tmp_path: Path
) -> None:
    async with FaultProxy(tmp_path / "redis.sock") as proxy:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(proxy.socket))
            for _ in range(turns):  # of the event loop: in one of them, it is accepted
                await asyncio.sleep(0)
            await proxy.refuse()
            client.setblocking(False)
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionResetError):  # if it was not accepted before
                    assert not await asyncio.get_running_loop().sock_recv(client, 1)
    gc.collect()  # warns of what is open


@pytest.mark.parametrize("turns", range(6))
async def test_what_it_accepts_while_it_ends_is_closed(turns: int, tmp_path: Path) -> None:
    async with FaultProxy(tmp_path / "upstream" / "redis.sock") as proxy:
        (tmp_path / "upstream").mkdir()
        server = await asyncio.start_unix_server(_keep, tmp_path / "upstream" / "redis.sock")
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(proxy.socket))
        for _ in range(turns):
            await asyncio.sleep(0)
    server.close()
    with client:
        client.setblocking(False)
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionResetError):  # if it was not accepted before
                assert not await asyncio.get_running_loop().sock_recv(client, 1)
    gc.collect()  # warns of what is open


async def _keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()
