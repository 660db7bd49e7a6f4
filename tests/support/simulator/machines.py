"""Machines, and the workers and the drain that run on them."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from redis.exceptions import RedisError

from snapbid.base.settings import StoreSettings
from snapbid.drain.adopt import adopt
from snapbid.drain.counters import ShardCounters
from snapbid.drain.drain import Drain
from snapbid.drain.events import EventDrain
from snapbid.drain.run import COUNTERS, EVENTS
from snapbid.drain.run import Process as DrainProcess
from snapbid.ledger.bids.ledger import SpoolFullError
from snapbid.ledger.bids.records import WIN, BidVerdict
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.ledger.budgets.limits import Limits
from snapbid.metrics import Metrics
from snapbid.queues.queues import EventQueues
from snapbid.redisclient.connection import Connections
from snapbid.reference import history
from snapbid.reference.geo import GeoDatabase
from snapbid.warehouse.unavailable import UNAVAILABLE
from support.simulator import system
from support.simulator.allocators import Allocator
from support.simulator.entries import Campaign, Record
from support.simulator.loop import Process, VirtualLoop
from support.simulator.network import Network
from support.simulator.nodes import NodeStore
from support.simulator.servers import Servers
from support.simulator.snapshot import Catalog, limits_of
from support.simulator.ticks import TickingLedger
from support.simulator.topology import Cluster, Node

SPOOL_BYTES: Final = 1 << 20
ADOPT_AGAIN_S: Final = 1.0
FIRST_LOOK_S: Final = 0.5  # the largest error of a first look at Redis' clock: half of STALL_S
PROBE_S: Final = 0.5  # between bids for money that is to come
NOTICED_S: Final = 1.0  # until every worker has noticed that a clock was set


@cache
def _references() -> tuple[GeoDatabase, history.History]:
    """What events are enriched from."""
    return GeoDatabase(), history.load()


class Settings(NamedTuple):
    """What a worker starts with."""

    ttl_s: int
    hold_s: int


class Machine:
    """`ahead_s`: of the true time, by its own clock."""

    def __init__(self, name: str, folder: Path, settings: Settings, ahead_s: float) -> None:
        self.name = name
        self.folder = folder
        self.settings = settings
        self.ahead_s = ahead_s
        self.disk_is_full = False
        self.disk_freed_at = -1.0
        self.is_gone = False


class Worker:
    """One worker's ledger, in a process of its own."""

    def __init__(self, world: "World", machine: Machine, name: str) -> None:
        self.name = name
        self.machine = machine
        self.settings = machine.settings
        self.process = world.process(name, machine)
        self.ledger: TickingLedger | None = None
        self.queue: EventQueues | None = None
        self.catalog = world.catalog
        self.is_stopping = False
        self._world = world
        self.process.run(self._open())

    async def _open(self) -> None:
        world, machine = self._world, self.machine
        self.ledger = TickingLedger(
            world.redis_url,
            machine.folder / "spool",
            shards=world.shards,
            ttl_s=self.settings.ttl_s,
            spool_max_bytes=SPOOL_BYTES,
            hold_s=self.settings.hold_s,
        )
        self.ledger.belong_to(self.catalog.warehouse, self.catalog.ledger)
        await self.ledger.open()
        if world.has_events:
            self.queue = EventQueues(world.redis_url, shards=world.shards)
            await self.queue.open()

    def take_up(self, catalog: Catalog) -> None:
        """Use this catalog for bids from now on."""
        self.catalog = catalog
        if self.ledger is not None:
            self.ledger.belong_to(catalog.warehouse, catalog.ledger)

    @property
    def takes_requests(self) -> bool:
        return self.process.alive and self.ledger is not None and not self.is_stopping

    @property
    def has_reached(self) -> bool:
        """Whether it is connected to every shard."""
        ledger = self.ledger
        return self.process.alive and ledger is not None and all(c.is_known for c in ledger._clocks)

    def limits_of(self, campaign: Campaign) -> Limits | None:
        """The limits of a campaign of the catalog."""
        world = self._world
        number = self.catalog.campaigns[campaign.name]
        return limits_of(campaign, number, world.shards, world.start_s)

    async def bid(self, records: list[Record], within_s: float) -> list[bool] | None:
        """Which of the bids were kept; None: it is not known in time, the answer is 204."""
        assert self.ledger is not None
        numbers, first = self.catalog.campaigns, records[0]
        bids = [
            (
                record.pair[1].encode(),
                numbers[record.campaign.name],
                record.price,
                self.limits_of(record.campaign),
            )
            for record in records
        ]
        ssp = self.catalog.ssps[first.ssp.descriptor]
        waiting = self.ledger.remember(first.pair[0].encode(), ssp, bids, first.user, within_s)
        verdicts = "" if waiting is None else await waiting
        return [verdict == BidVerdict.KEPT for verdict in verdicts] if verdicts else None

    def skew_s(self, auction: bytes) -> tuple[float, bool]:
        """The skew of its time to that of Redis, which it follows while connected.

        True with it where it has not reached Redis yet: its times are corrected once it has, or
        another process of its machine, and are as exact as that one's first look at Redis' clock.
        """
        assert self.ledger is not None
        world, clock = self._world, self.ledger._clocks[self.ledger.shard_of(auction)]
        own_s = clock.now_ms(world.loop.time()) / 1000
        if clock.is_known:
            return abs(own_s - world.wall_s(world.redis_ahead_s)), False
        return abs(own_s - world.machine_s(self.machine)) + FIRST_LOOK_S, True

    async def notify(self, kind: int, auction: bytes, imp: bytes, reason: int) -> str:
        """The verdict where the answer is 200; "" where it is 503."""
        assert self.ledger is not None
        try:
            return await self.ledger.settle(kind, auction, imp, reason)
        except SpoolFullError:
            return ""

    async def post(self, received_ms: int, product: str, events: list[tuple[str, bytes]]) -> bool:
        """Whether the answer is 202; else it is 503."""
        return self.queue is not None and await self.queue.put(received_ms, product, events)

    async def has_money(self, price: int, limits: Limits) -> bool | None:
        """Whether the only shard would keep a bid of this price now; None: Redis is unavailable."""
        assert self.ledger is not None
        bid = (b"1", limits.campaign, price, limits)
        for _ in range(2):  # its first connection may have ended with an earlier run of Redis
            verdicts = await self.ledger.look(b"probe", [bid], "", 5.0)
            if verdicts:
                return verdicts[0] == "k"
        return None

    async def used(self, campaign: int) -> int | None:
        """Of a budget in all, over all shards (nano-USD); None where Redis is unavailable."""
        assert self.ledger is not None
        for _ in range(2):  # as above
            with contextlib.suppress(RedisError, OSError):
                states = await self.ledger.budgets.states([campaign])
                return states[campaign].used
        return None

    async def spend(self, bids: int, price: int, limits: Limits, within_s: float) -> bool:
        """Whether as many are kept and won in one shard in that time; allocators bring the money.

        An SSP may hold no more than half of it where others have asked.
        """
        assert self.ledger is not None
        until = self._world.loop.time() + within_s
        for number in range(bids):
            bid = (b"%d" % number, limits.campaign, price, limits)
            while True:
                waiting = self.ledger.remember(b"probe", 1, [bid], "", 1.0)
                if waiting is not None and await waiting == BidVerdict.KEPT:
                    await self.ledger.settle(WIN, b"probe", bid[0])
                    break
                if self._world.loop.time() > until:
                    return False
                await asyncio.sleep(PROBE_S)
        return True

    def stop(self) -> "asyncio.Task[None]":
        """As SIGTERM does: answer what waits, then close; the process ends then."""
        self.is_stopping = True
        return self.process.run(self._close())

    async def _close(self) -> None:
        while self.ledger is None:
            await asyncio.sleep(0.001)
        await self.ledger.close()
        if self.queue is not None:
            await self.queue.close()


class World:
    """One run's machines on one virtual clock; `start_s` is the true time (epoch s) at its start.

    The clock of Redis' machine is `redis_ahead_s` ahead. `has_events`: partners send some.
    `primaries`: of a cluster, 0 for one plain Redis.
    """

    def __init__(
        self,
        servers: Servers,
        seed: str,
        shards: int,
        start_s: float,
        has_events: bool,
        primaries: int = 0,
    ) -> None:
        self.servers = servers
        self.shards = shards
        self.has_events = has_events
        self.redis_ahead_s = 0.0
        self.catalog = Catalog("", {}, {})  # as published last
        self.campaigns: dict[str, Campaign] = {}  # all that there ever were, by name
        self.machines: dict[str, Machine] = {}
        self.trace: list[tuple[object, ...]] = []
        self.surprises: list[str] = []
        self.is_over = False
        self.rng = random.Random(f"{seed} world")
        self.loop = VirtualLoop(self.rng.random)
        self.network = Network(self.loop, seed, self.note)
        self.loop.network = self.network
        self.cluster: Cluster | None = None
        self.redis_url = servers.redis.url
        self.nodes: dict[Node, NodeStore] = {}
        if primaries:
            self.cluster = cluster = Cluster(
                servers.redis, primaries, random.Random(f"{seed} nodes"), self.loop.time
            )
            self.nodes = {node: NodeStore(cluster, node) for node in cluster.nodes}
            self.redis_url = cluster.url
        for node, store in self.nodes.items():
            self.network.add(node.path, store)
        self.network.add(servers.redis.path, servers.redis)
        self.network.add(servers.postgres.path, servers.postgres)
        self.start_s = start_s
        self._processes: list[Process] = []
        self._numbers = 0
        self._set: list[tuple[float, float]] = []  # when a clock was set, and its error before

    def note(self, *what: object) -> None:
        """One more line of the trace by which two runs are compared."""
        self.trace.append((round(self.loop.time(), 9), *what))

    def wall_s(self, ahead_s: float = 0.0) -> float:
        return self.start_s + self.loop.time() + ahead_s

    def machine_s(self, machine: Machine) -> float:
        return self.wall_s(machine.ahead_s)

    def walls(self) -> tuple[float, float]:
        """The earliest and the latest of what any clock shows, or has shown a moment ago."""
        aheads = [machine.ahead_s for machine in self.machines.values() if not machine.is_gone]
        aheads.append(self.redis_ahead_s)
        aheads += [ahead_s for at, ahead_s in self._set if at > self.loop.time() - NOTICED_S]
        return self.wall_s(min(aheads)), self.wall_s(max(aheads))

    def set_clock(self, whose: str, by: float) -> None:
        """Of a machine, of Redis' machine, or of all."""
        now = self.loop.time()
        for name, machine in self.machines.items():
            if whose in (name, "all"):
                self._set.append((now, machine.ahead_s))
                machine.ahead_s += by
        if whose in ("redis", "all"):
            self._set.append((now, self.redis_ahead_s))
            self.redis_ahead_s += by

    def machine(self, name: str, folder: Path, settings: Settings, ahead_s: float = 0.0) -> Machine:
        machine = self.machines[name] = Machine(name, folder / name, settings, ahead_s)
        machine.folder.mkdir()
        return machine

    def process(self, name: str, machine: Machine) -> Process:
        self._numbers += 1
        process = Process(f"{name}.{self._numbers}", machine.name, self.loop)
        self._processes.append(process)
        return process

    def drain(self, machine: Machine) -> tuple[Process, asyncio.Event]:
        """A drain's process, and the event that stops it."""
        process = self.process("drain", machine)
        stopping = asyncio.Event()
        metrics = Metrics(machine.folder / f"{process.name}.metrics")

        async def run() -> None:
            stores = Connections(self.redis_url)
            redis = stores.client()
            numbers = range(self.shards)
            shards = [ShardCounters(redis, number, stores.replicate) for number in numbers]
            clock = partial(self.machine_s, machine)
            budgets = Budgets(redis, self.shards, clock)
            drain, dsn = Drain(shards, budgets, metrics, clock), self.servers.postgres.dsn
            async with asyncio.TaskGroup() as group:
                group.create_task(DrainProcess(COUNTERS, drain, dsn, stopping, {}).run())
                if self.has_events:
                    carried = EventDrain(redis, metrics, *_references(), clock, shards=self.shards)
                    group.create_task(DrainProcess(EVENTS, carried, dsn, stopping, {}).outlast())
            await redis.aclose()

        self._run_to_end(process, run())
        return process, stopping

    def allocator(self, machine: Machine) -> Process:
        """That of a machine, where there are several shards."""
        process = self.process(f"{machine.name}-allocator", machine)
        work = process.call(Allocator, self.redis_url, self, machine.folder)
        self._run_to_end(process, work.work())
        return process

    def adopt(self, machine: Machine, done: Callable[[int], None]) -> None:
        """`snapbid ledger adopt`, again until it has worked; `done` is told of how many shards."""
        process = self.process("adopt", machine)
        settings = StoreSettings(
            base_url="",
            home=machine.folder,
            redis_url=self.redis_url,
            database_url=self.servers.postgres.dsn,
            ledger_shards=self.shards,
        )

        async def run() -> None:
            while True:
                try:
                    adopted = await adopt(settings)
                except (*UNAVAILABLE, RedisError):
                    await asyncio.sleep(ADOPT_AGAIN_S)
                else:
                    return done(adopted.shards)

        self._run_to_end(process, run())

    def _run_to_end(self, process: Process, work: Coroutine[Any, Any, None]) -> None:
        task = process.run(work)
        task.add_done_callback(lambda _: self.loop.call_soon(process.kill, context=Context()))

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """The system is the simulator's until this is left; every process has ended then."""
        servers = self.servers
        if self.has_events:
            _references()  # as long as files are the system's
        servers.redis.wall_ns = lambda: round(self.wall_s(self.redis_ahead_s) * 1e9)
        servers.redis.begin()
        servers.postgres.is_up = True
        servers.postgres.load(servers.empty)
        with contextlib.ExitStack() as stack:
            stack.enter_context(system.random_numbers(self.rng))
            stack.enter_context(system.clocks(self))
            stack.enter_context(system.files(self))
            stack.enter_context(system.versions())
            stack.enter_context(system.logs(self))
            stack.callback(self._end)
            yield

    def _end(self) -> None:
        for process in self._processes:
            if process.alive:
                process.kill()
        self.is_over = True
        self.servers.redis.wall_ns = lambda: 0  # which knows this world
        self._processes.clear()
        self.machines.clear()
        self.loop.close()
