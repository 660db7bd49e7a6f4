"""`snapbid up` under load, whose children are killed in turn, and finally itself."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support import books
from support.books import Books, agreed, set_up
from support.machine import is_quiet, temporary_home
from support.processes import children_of, eventually, workers_of
from support.stack import Stack
from support.trading import Trading

from snapbid.embedded import Postgres, Redis
from snapbid.warehouse.migrate import migrate

SEED = int(os.environ.get("BOOKS_SEED") or random.SystemRandom().randrange(10**9))
CHILDREN = ("redis-server", "postgres", "snapbid drain", "snapbid serve")


@pytest.fixture
def home(initialise: Callable[[Path], None]) -> Iterator[tuple[Path, str, str]]:
    """A home, the DSN of its warehouse with the campaigns of the books, and its Redis' URL."""
    with temporary_home() as home:
        initialise(home.path)
        server = Postgres(home)
        server.start()
        asyncio.run(migrate(server.dsn))
        asyncio.run(set_up(server.dsn))
        server.stop()
        home.close()
        yield home.path, server.dsn, Redis(home).url


def child(instance: Stack, part: str) -> int | None:
    assert instance.process
    children = children_of(instance.process.pid)
    return next((pid for pid, command in children.items() if part in command), None)


def kill(instance: Stack, part: str) -> int:
    """Kill a child; returns its pid."""
    pid = child(instance, part)
    assert pid is not None, f"{part} is none of {children_of(instance.process.pid)}"  # type: ignore[union-attr]
    os.kill(pid, signal.SIGKILL)
    return pid


def flows(instance: Stack, own: Books, since: int) -> bool:
    return own.statuses["bid", 200] > since + 20 and instance.get("/readyz")[0] == 200


def test_nothing_is_lost_whichever_process_is_killed(home: tuple[Path, str, str]) -> None:
    print(f"BOOKS_SEED={SEED}")
    path, dsn, redis_url = home
    environ = {"SNAPBID_BASE_URL": books.BASE_URL, "SNAPBID_TMAX_MS": "1000"}
    instance = Stack({"SNAPBID_HOME": str(path), "SNAPBID_WORKERS": "2", **environ}, "up")
    with contextlib.closing(instance):
        instance.start()
        own = Books(random.Random(SEED), refused_may_count=True)
        trading = Trading(own, instance.port)
        trading.start()
        try:
            for part in CHILDREN:
                since, before = own.statuses["bid", 200], kill(instance, part)
                eventually(
                    lambda part=part, before=before: child(instance, part) not in (None, before),  # type: ignore[misc]
                    f"{part} is started again",
                )
                eventually(lambda since=since: flows(instance, own, since), "bids flow")  # type: ignore[misc]
            server = child(instance, "snapbid serve")
            assert server is not None
            for worker in workers_of(server):
                os.kill(worker, signal.SIGKILL)
            instance.stop(signal.SIGKILL)
            since = own.statuses["bid", 200]
            instance.start()
            eventually(lambda: flows(instance, own, since), "bids flow")
        finally:
            print(instance.output)
            trading.finish()
        assert not own.wrong, own.wrong[:5]
        contradictions = asyncio.run(agreed(own, dsn, is_quiet=partial(is_quiet, redis_url, path)))
        assert not contradictions, contradictions
        assert instance.stop() == 0
