"""What clients can make a worker keep in memory."""

import asyncio
import contextlib
import gzip
import json
import os
import resource
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support import sending
from support.bystander import Bystander
from support.processes import eventually, workers_of
from support.remembered import opened, remember, remembering, until
from support.sending import BATCH, event
from support.stack import Stack
from support.wire import Wire, head

from snapbid.embedded import Redis, demo, memory
from snapbid.ledger.bids.records import WIN
from snapbid.server.connections import MAX_HEAD_BYTES, MAX_HELD_BYTES

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
UNFINISHED = 600
HEAD = 395_000
BATCH_EVENTS = 600
WAITING = 50


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * UNFINISHED)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident(server: Stack) -> int:
    """The resident memory of the worker, in bytes."""
    assert server.process
    (worker,) = workers_of(server.process.pid)
    return int(Path(f"/proc/{worker}/statm").read_text().split()[1]) * PAGE


def padded(size: int) -> bytes:
    """An unfinished head of this many bytes."""
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
def test_endless_heads(server: Stack, bystander: Bystander) -> None:
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
def test_total_input_is_bounded(start_stack: Callable[..., Stack], database: str) -> None:
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


def test_batches_that_wait_for_one_of_their_product(
    server: Stack, key: str, module_database: str
) -> None:
    """Of a kilobyte each, and of four megabytes inflated; another product's does not wait."""
    other = sending.issue(module_database, "other")
    sending.await_key(server.port, other)
    many = [event("login", f"u-{number}", own=[1] * 1_700) for number in range(BATCH_EVENTS)]
    blanks = b"[%b%b]" % (b" " * 4_000_000, json.dumps(event("login")).encode())
    before = resident(server)
    with contextlib.ExitStack() as opened:

        def sent(key: str, body: bytes) -> Wire:
            fields = {"host": "x", "content-type": "application/json", "content-encoding": "gzip",
                      "x-api-key": key, "content-length": len(body)}  # fmt: skip
            wire = opened.enter_context(Wire(server.port))
            wire.write(head("POST", BATCH, fields), body)
            return wire

        dear = sent(key, gzip.compress(json.dumps(many).encode()))
        packed = gzip.compress(blanks)
        waiting = [sent(key, packed) for _ in range(WAITING)]
        good = gzip.compress(json.dumps([event("login")]).encode())
        assert sent(other, good).read().status == 202
        assert not select.select([wire.socket for wire in (dear, *waiting)], [], [], 0)[0]
        assert resident(server) - before < WAITING * len(blanks) // 3
        assert dear.read().status == 202
        for wire in waiting:
            with contextlib.suppress(EOFError):  # ended after 20 s: this machine is busy
                assert wire.read().status == 202


async def test_nearly_full_redis(own_redis: Redis, tmp_path: Path) -> None:
    """It takes no bids, so that what bids are owed still has room."""
    async with opened(own_redis.url, tmp_path) as ledger:
        client = redis.Redis.from_url(own_redis.url)
        config: dict[str, Any] = client.config_get("maxmemory*")  # type: ignore[assignment]
        assert config["maxmemory-policy"] == "noeviction"
        assert int(config["maxmemory"]) == memory.usable() // 2

        assert await remember(ledger, b"a", (b"1", 1, 7))
        client.eval("redis.call('SET', 'others', string.rep('x', ARGV[1]))", 0, 32 * MIB)
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", int(used / 0.97))
        await until(lambda: remembering(ledger, b"b", (b"1", 1, 7)) is None)
        assert ledger.connected
        assert await ledger.settle(WIN, b"a", b"1") == "c"
        client.config_set("maxmemory", config["maxmemory"])
        await until(lambda: remembering(ledger, b"c", (b"1", 1, 7)) is not None)
        client.close()
