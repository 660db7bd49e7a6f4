"""The machine to break, and the supervisor that keeps it running."""

import abc
import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from unittest.mock import patch
from urllib.parse import quote

import redis

from snapbid.embedded import Home, Postgres, supervise
from snapbid.ledger.bids.records import DIGEST_SIZE
from support import books, sending
from support.machine import Machine
from support.program_clock import ProgramClock
from support.proxy import FaultProxy
from support.soak.disk import Disk, mounted
from support.stack import JWT_SECRET, Stack, execute

T = TypeVar("T")
LOOK_S: Final = 0.05
CALL_S: Final = 120.0
DISKS: Final = {"redis": 160, "postgres": 448}  # MB
PG_SOCKET: Final = ".s.PGSQL.5432"
MAX_CONNECTIONS: Final = 30
HOLD_S: Final = 3600  # so that no win is notified after its hold, whatever was unavailable


class Wire(threading.Thread):
    """A thread with an event loop, for the proxies and the traffic."""

    def __init__(self) -> None:
        super().__init__(name="wire", daemon=True)
        self._loop = asyncio.new_event_loop()
        self.start()

    def run(self) -> None:
        self._loop.run_forever()

    def call(self, work: Coroutine[Any, Any, T], patience_s: float = CALL_S) -> T:
        """Run a coroutine; returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(patience_s)

    def do(self, work: Callable[[], T]) -> T:
        """As `call`, for a function that changes objects of the loop."""

        async def run() -> T:
            return work()

        return self.call(run())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.join()
        self._loop.close()


class Kept:
    """A program as `supervise.Restarter` expects it."""

    def __init__(self, name: str, program: Stack) -> None:
        self.name = name
        self._program = program

    def start(self) -> None:
        self._program.launch()

    def poll(self) -> int | None:
        return self._program.process.poll() if self._program.process else None

    def stop(self) -> None:
        """Clean up after a process that has ended."""
        if self._program.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._program.process.pid, signal.SIGKILL)


class Supervisor(threading.Thread):
    """Restarts what has ended, with the keepers and pauses of `snapbid up`.

    The thread lives until `close`, since the processes that it started end with it.
    """

    def __init__(self, members: Iterable[supervise.Service]) -> None:
        super().__init__(name="supervisor", daemon=True)
        self._keepers = [supervise.Restarter(member) for member in members]
        self._enough, self._over = threading.Event(), threading.Event()
        self._done = threading.Event()
        self.said: list[str] = []
        self.start()

    def run(self) -> None:
        with patch.object(supervise, "say", self.said.append):
            while not self._enough.wait(LOOK_S):
                for keeper in self._keepers:
                    keeper.tend(time.monotonic())
        self._done.set()
        self._over.wait()

    def retire(self) -> None:
        """Stop restarting."""
        self._enough.set()
        self._done.wait(CALL_S)

    def close(self) -> None:
        self._over.set()
        self.join()


class Capped(NamedTuple):
    """Of all users."""

    impressions: int
    held: frozenset[bytes]  # digests of the bids


class Stage(abc.ABC):
    """What the traffic is played to; `key` is that of a product for events."""

    supervisor: Supervisor
    key = ""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @property
    @abc.abstractmethod
    def port(self) -> int:
        """Of a server; not always the same one, where there are several."""

    @property
    @abc.abstractmethod
    def dsn(self) -> str: ...

    @property
    @abc.abstractmethod
    def redis_url(self) -> str: ...

    @property
    @abc.abstractmethod
    def served(self) -> list[Stack]:
        """The servers."""

    @property
    @abc.abstractmethod
    def drains(self) -> list[Stack]: ...

    @property
    @abc.abstractmethod
    def auctions(self) -> list[Path]:
        """The directories of the auction logs."""

    @abc.abstractmethod
    def capped(self) -> Capped:
        """What counts for caps in the ledger. Raises RedisError."""

    def stop_serving(self) -> None:
        """Stop the servers for good; their auction logs are complete then."""
        self.supervisor.retire()
        for served in self.served:
            if served.process is not None and served.process.poll() is None:
                served.stop()


class MachineStage(Stage):
    """A running machine, with its connections (`links`) and its stores' disks by name."""

    def __init__(
        self, machine: Machine, wire: Wire, links: dict[str, FaultProxy], disks: dict[str, Disk]
    ) -> None:
        super().__init__(wire)
        self.machine = machine
        self.links = links
        self.disks = disks
        self.clock: ProgramClock

    @property
    def port(self) -> int:
        return self.machine.served.port

    @property
    def dsn(self) -> str:
        return self.machine.postgres.dsn

    @property
    def redis_url(self) -> str:
        return self.machine.redis.url

    @property
    def served(self) -> list[Stack]:
        return [self.machine.served]

    @property
    def drains(self) -> list[Stack]:
        return [self.machine.drain]

    @property
    def auctions(self) -> list[Path]:
        return [self.machine.home.path / "auctions"]

    def capped(self) -> Capped:
        return capped_in(redis.Redis.from_url(self.redis_url))


def capped_in(*clients: redis.Redis) -> Capped:
    """What counts for caps in some stores; the clients are closed."""

    def members(client: redis.Redis, keys: str) -> Iterator[bytes]:
        for key in client.scan_iter(f"{{sb*}}:{keys}:*", count=1000):
            found: Any = client.zrange(key, 0, -1)
            yield from found

    impressions, held = 0, set[bytes]()
    for client in clients:
        with contextlib.closing(client):
            impressions += sum(1 for _ in members(client, "fc"))
            held.update(member[:DIGEST_SIZE] for member in members(client, "fe"))
    return Capped(impressions, frozenset(held))


@contextlib.contextmanager
def template() -> Iterator[Path]:
    """The data of an initialised PostgreSQL, for `opened`."""
    folder = Path(tempfile.mkdtemp(prefix="snapbid-template-"))
    try:
        with Home(folder) as home:
            server = Postgres(home)
            server.start()
            setting = f"alter system set max_connections = {MAX_CONNECTIONS}"
            asyncio.run(execute(server.dsn, setting))
            server.stop()
            yield server.data
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def opened(made: Path, *campaigns: tuple[str, str]) -> Iterator[MachineStage]:
    """A serving stage on a copy of the `template`, with additional campaigns."""
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="snapbid-soak-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        disks = {}
        for name, size in DISKS.items():
            disk = stack.enter_context(mounted(folder / name, size))
            if disk is not None:
                disks[name] = disk
        subprocess.run(["cp", "-a", f"{made}/.", folder / "postgres"], check=True)
        home = stack.enter_context(Home(folder))
        clock = ProgramClock(folder / "clock")
        stack.callback(clock.close)
        stack.enter_context(patch.dict(os.environ, clock.environ))
        machine = Machine(
            home,
            SNAPBID_BASE_URL=books.BASE_URL,
            SNAPBID_TMAX_MS="1000",
            SNAPBID_HOLD_S=str(HOLD_S),
            SNAPBID_AUCTION_LOG=str(folder / "auctions"),
            SNAPBID_AUCTION_LOG_S="2",
        )
        stack.callback(machine.close)
        asyncio.run(books.set_up(machine.postgres.dsn, *campaigns))
        wire = Wire()
        stack.callback(wire.close)
        stage = MachineStage(machine, wire, {}, disks)
        stage.clock = clock
        stage.key = sending.issue(machine.postgres.dsn, "casino", "igaming", rate=1_000_000)
        machine.start(_linked(stage, stack, "workers"), _linked(stage, stack, "drain"))
        sending.await_key(stage.port, stage.key)
        programs = (Kept("drain", machine.drain), Kept("serve", machine.served))
        stage.supervisor = Supervisor((machine.redis, machine.postgres, *programs))
        stack.callback(stage.supervisor.close)
        stack.callback(machine.close)
        stack.callback(stage.supervisor.retire)
        yield stage


def _linked(stage: MachineStage, stack: contextlib.ExitStack, who: str) -> dict[str, str]:
    """Proxies between a program and both stores, and the settings to use them."""
    machine = stage.machine
    upstreams = {"Redis": machine.redis.socket, "PostgreSQL": machine.postgres.sockets / PG_SOCKET}
    for store, upstream in upstreams.items():
        stage.links[f"{who} to {store}"] = linked(stage.wire, stack, upstream)
    return {
        "SNAPBID_REDIS_URL": stage.links[f"{who} to Redis"].redis_url,
        "SNAPBID_DATABASE_URL": dsn_by(stage.links[f"{who} to PostgreSQL"], machine.postgres),
    }


def linked(wire: Wire, stack: contextlib.ExitStack, upstream: Path) -> FaultProxy:
    """A proxy before a store's socket."""
    proxy = FaultProxy(upstream)
    wire.call(proxy.__aenter__())
    stack.callback(lambda: wire.call(proxy.__aexit__(None, None, None)))
    return proxy


def dsn_by(proxy: FaultProxy, postgres: Postgres) -> str:
    """The warehouse's, by a proxy before its socket."""
    return postgres.dsn.replace(quote(str(postgres.sockets)), quote(str(proxy.socket.parent)))


SECRET: Final = JWT_SECRET.encode()
