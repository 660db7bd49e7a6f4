"""A flood of what is cheap to send: bids, and questions whether a worker is well, overtake it.

What is fair is seen in the order of the answers: how many of the flood's there are between a
request and its answer.
"""

import asyncio
import os
import signal
import time
from pathlib import Path
from statistics import median

import pytest
from support.bystander import REQUEST
from support.flood import Flood
from support.processes import workers_of
from support.remembered import opened
from support.stack import Stack
from support.wire import Wire, head

from snapbid.ledger.commit import NOTICE_S
from snapbid.ledger.records import WIN

LANES = 1_500
UNKNOWN_NOTICE = "/rtb/win?id=nobodys-%d&impId=1"
UNKNOWN_PATH = "/nowhere/%d"
HEALTH = head("GET", "/healthz", {"host": "x"})
READY = head("GET", "/readyz", {"host": "x"})


def overtaken(flood: Flood, port: int, request: bytes) -> float:
    """How many of the flood are answered while one request waits for its answer."""
    behind = []
    with Wire(port) as wire:
        for _ in range(15):
            before = flood.answers
            wire.write(request)
            assert wire.read().status == 200
            behind.append(flood.answers - before)
    return median(behind)


@pytest.mark.parametrize("target", [UNKNOWN_NOTICE, UNKNOWN_PATH], ids=["notices", "paths"])
def test_a_flood_is_overtaken(server: Stack, target: str) -> None:
    with Flood(server.port, target, LANES) as flood:
        for request in (REQUEST, HEALTH, READY):
            assert overtaken(flood, server.port, request) < LANES / 3


def spooled(server: Stack) -> float:
    lines = server.get("/metrics", ops=True)[1].decode().splitlines()
    values = [line.rpartition(" ")[2] for line in lines if 'outcome="spooled"' in line]
    assert values
    return sum(map(float, values))


def test_nothing_is_spooled_because_a_worker_was_busy(server: Stack) -> None:
    """Redis is well, and answers what the worker has no time to read."""
    assert server.process
    (worker,) = workers_of(server.process.pid)
    with Flood(server.port, UNKNOWN_NOTICE, 200) as flood:
        for _ in range(5):
            os.kill(worker, signal.SIGSTOP)
            time.sleep(0.4)  # longer than a notice waits for Redis
            os.kill(worker, signal.SIGCONT)
            flood.has_come(400)
    assert spooled(server) == 0
    home = Path(server.environ["SNAPBID_HOME"])
    assert not list(home.rglob("*.spool"))


async def test_what_waited_while_the_process_was_busy(fresh_redis: str, tmp_path: Path) -> None:
    """For the round trip before: its own begins only then."""
    async with opened(fresh_redis, tmp_path) as ledger:
        sent = asyncio.create_task(ledger.settle(WIN, b"sent", b"1"))
        while not ledger._shards[0].is_busy:
            await asyncio.sleep(0)
        waiting = [asyncio.create_task(ledger.settle(WIN, b"%d" % n, b"1")) for n in range(9)]
        await asyncio.sleep(0)
        time.sleep(2 * NOTICE_S)
        assert set(await asyncio.gather(sent, *waiting)) == {"u"}
    assert not list(tmp_path.rglob("*.spool"))
