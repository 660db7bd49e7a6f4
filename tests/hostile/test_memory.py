"""What clients can make a worker keep in memory."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.bystander import Bystander
from support.processes import eventually, workers_of
from support.stack import Stack
from support.wire import Wire

from snapbid.embedded import demo
from snapbid.server.connections import MAX_HEAD_BYTES, MAX_HELD_BYTES

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
UNFINISHED = 600
HEAD = 395_000


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * UNFINISHED)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident(server: Stack) -> int:
    """Bytes of the worker."""
    assert server.process
    (worker,) = workers_of(server.process.pid)
    return int(Path(f"/proc/{worker}/statm").read_text().split()[1]) * PAGE


def padded(size: int) -> bytes:
    """A head of so many bytes, whose end is missing."""
    line = b"x: " + b"a" * 7_995 + b"\r\n"
    start = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
    lines = start + line * ((size - len(start)) // len(line))
    return lines + b"y: " + b"a" * (size - len(lines) - 3)


def test_heads_up_to_a_limit(server: Stack) -> None:
    for size, statuses in ((MAX_HEAD_BYTES - 2_000, {200}), (2 * MAX_HEAD_BYTES, {431, 0})):
        with Wire(server.port) as wire:
            status = 0
            with contextlib.suppress(OSError, EOFError):
                wire.write(padded(size), b"\r\n\r\n")
                status = wire.read("GET").status
            assert status in statuses


@pytest.mark.usefixtures("many_files")
def test_heads_that_do_not_end(server: Stack, bystander: Bystander) -> None:
    before = resident(server)
    with contextlib.ExitStack() as opened:
        for _ in range(UNFINISHED):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.setblocking(False)
            with contextlib.suppress(OSError):
                client.send(padded(HEAD))
        bystander.is_served()
        assert resident(server) - before < UNFINISHED * 2 * MAX_HEAD_BYTES + 32 * MIB


@pytest.mark.usefixtures("many_files")
def test_what_is_sent_in_all_is_bounded(start_stack: Callable[..., Stack], database: str) -> None:
    """Heads that do not end, from more clients than there is memory for."""
    asyncio.run(demo.seed(database))
    server = start_stack()
    size = MAX_HEAD_BYTES - 5_000
    clients = MAX_HELD_BYTES // size + 100

    def ended() -> int:
        lines = server.get("/metrics", ops=True)[1].decode().splitlines()
        held = [line for line in lines if 'connections_ended_total{reason="held"' in line]
        return sum(int(float(line.rpartition(" ")[2])) for line in held)

    with contextlib.ExitStack() as opened:
        for _ in range(clients):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), 60))
            with contextlib.suppress(ConnectionError):
                client.sendall(padded(size))
        eventually(lambda: ended() >= 50, "the end of some")
        assert ended() < clients // 2
