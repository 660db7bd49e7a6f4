"""The machines of a run, what they run, and everything that breaks them and their stores."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from snapbid.base.redis_keys import ShardKeys
from support.simulator import events, snapshot
from support.simulator.books import Books
from support.simulator.clicks import ClickBooks
from support.simulator.entries import KEPT_S, Figures
from support.simulator.escrow import Escrow
from support.simulator.loop import Process
from support.simulator.machines import Machine, Settings, Worker, World
from support.simulator.network import Wire
from support.simulator.script import Script
from support.simulator.servers import Servers
from support.simulator.snapshot import campaign_of, campaigns

FIRST_COPY: Final = 1  # the number of a copy where a script says none
STANDBY: Final = 0  # the number of a standby's
FOLLOW_S, FOLLOWED_S, ROUND_S = (
    0.001,
    3.0,
    0.1,
)  # between its batches, until it is given up, a round
STOP_S: Final = 10.0  # after which a process that was told to stop is killed
PUBLISH_S: Final = (0.02, 0.2)  # until a worker has taken up a catalog
LOOK_S: Final = 0.25  # between looks whether the catalog has changed
CHANGING: Final = ("campaign", "replace", "replace_data", "restore")  # steps that change it
RETURNED_S: Final = 1.0  # between looks of an operator whether a former ledger is there again
REPLAYED_S: Final = 2.0  # until a spool is empty, once Redis is reached


class Stage:
    """`folder` is for the machines' files."""

    def __init__(self, script: Script, servers: Servers, folder: Path) -> None:
        self.script = script
        self.settings = settings = script.first.args
        self.world = World(
            servers,
            script.seed,
            int(settings["shards"]),
            float(settings["wall"]),
            has_events=bool(settings.get("events", 0)),
            primaries=int(settings.get("primaries", 0)),
        )
        self.books = Books()
        self.events = events.EventBooks(self.books.wrong)
        self.clicks = ClickBooks(servers.postgres)
        self.campaigns = dict(
            enumerate(campaigns(self.world.shards, int(settings["budget"])), start=1)
        )
        self.world.campaigns = {campaign.name: campaign for campaign in self.campaigns.values()}
        self._escrow = Escrow(servers.redis, self.world) if self.world.shards > 1 else None
        self._servers = servers
        self._folder = folder
        self._workers: dict[str, Worker] = {}
        self._allocators: dict[str, Process] = {}  # by machine
        self._drain: tuple[Process, asyncio.Event] | None = None
        self._has_drain = bool(settings["drain"])
        self._has_left = False
        self._saved: dict[tuple[str, int], tuple[float, Any]] = {}  # by store and number
        self._busy: set[str] = set()  # stores that are being restarted
        self._is_adopting = False
        self._is_foreign = False  # the ledger may be another warehouse's

    def _begin(self) -> None:
        """Everything starts."""
        settings, world = self.settings, self.world
        own = Settings(int(settings["ttl"]), int(settings["hold"]))
        names = str(settings["workers"]).split(",")
        self._publish()
        for name in sorted({name[0] for name in names}):
            world.machine(name, self._folder, own)
        self._drains_on = world.machine("d", self._folder, own)
        for name in names:
            self._launch(name)
        for name in sorted({name[0] for name in names}):
            self._launch_allocator(name)
        self._launch("drain")
        if self._escrow is not None:
            self._keep_watching(self._escrow)
        if any(step.do in CHANGING for step in self.script.steps):
            self._keep_publishing()
            self._keep_returning()

    def figures(self) -> Figures:
        """What the warehouse has counted."""
        return snapshot.counted(self._servers.postgres)

    def _later(self, seconds: float, action: Callable[..., None], *args: object) -> None:
        self.world.loop.call_later(seconds, action, *args)

    # -- the catalog -------------------------------------------------------------------------

    def _keep_publishing(self) -> None:
        if self._servers.postgres.is_up:
            self._publish()
        self._later(LOOK_S, self._keep_publishing)

    def _keep_returning(self) -> None:
        """Make a ledger that the warehouse had before its own again."""
        servers = self._servers
        if servers.redis.is_up and servers.postgres.is_up and not self._is_adopting:
            keys = [ShardKeys(number).epoch for number in range(self.world.shards)]
            there: Any = servers.redis.client.mget(keys)
            epochs = [epoch.decode() for epoch in there if epoch is not None]
            if not self._is_foreign and snapshot.has_former(servers.postgres, epochs):
                self._is_adopting = True
                self.world.adopt(self._drains_on, self._returned)
        self._later(RETURNED_S, self._keep_returning)

    def _returned(self, _: int) -> None:
        self._is_adopting = False

    def _keep_watching(self, escrow: Escrow) -> None:
        if not self._is_foreign:  # whose numbers stand for other campaigns
            self.books.wrong += escrow.exceeded()
            self._later(LOOK_S, self._keep_watching, escrow)

    def _publish(self) -> None:
        """Let the workers know of what has changed in the warehouse."""
        catalog = snapshot.catalog(self._servers.postgres)
        if catalog == self.world.catalog:
            return
        self.world.catalog = catalog
        for name in sorted(self._workers):
            worker = self._workers[name]
            if worker.process.alive:
                self._later(self.world.rng.uniform(*PUBLISH_S), worker.take_up, catalog)

    def _do_campaign(self, number: int, kind: str, budget: int) -> None:
        """A new one, if the warehouse is there to take it."""
        if self._servers.postgres.is_up:
            name = f"{kind}-{number}"
            self.campaigns[number] = campaign_of(name, kind, self.world.shards, budget)
            self.world.campaigns[name] = self.campaigns[number]
            snapshot.add(self._servers.postgres, name)

    # -- processes and machines --------------------------------------------------------------

    def _launch(self, name: str) -> None:
        if name == "drain":
            if self._has_drain and (self._drain is None or not self._drain[0].alive):
                self._drain = self.world.drain(self._drains_on)
            return
        machine = self.world.machines.get(name[0])
        worker = self._workers.get(name)
        if machine is None or machine.is_gone:
            return
        if worker is None or not worker.process.alive:
            self._workers[name] = Worker(self.world, machine, name)
            self.books.announced(machine.settings.ttl_s)

    def _launch_allocator(self, machine: str) -> None:
        """Where there are several shards, and none is at work on it."""
        allocator, own = self._allocators.get(machine), self.world.machines[machine]
        is_wanted = self.world.shards > 1 and not own.is_gone
        if is_wanted and (allocator is None or not allocator.alive):
            self._allocators[machine] = self.world.allocator(own)

    def _do_allocator(self, machine: str, seconds: float) -> None:
        """It is killed, and there again a while later."""
        if machine in self._allocators and self._allocators[machine].alive:
            self._allocators[machine].kill()
            self._later(seconds, self._launch_allocator, machine)

    def _do_launch(self, process: str) -> None:
        worker = self._workers.get(process)
        if process == "drain":
            is_stopping = self._drain is not None and self._drain[1].is_set()
            is_alive = self._drain is not None and self._drain[0].alive
        else:
            is_stopping = worker is not None and worker.is_stopping
            is_alive = worker is not None and worker.process.alive
        if is_alive and is_stopping:
            self._later(0.1, self._do_launch, process)
        elif not is_alive:
            self._launch(process)

    def _do_kill(self, process: str) -> None:
        if process == "drain":
            if self._drain is not None and self._drain[0].alive:
                self._drain[0].kill()
            return
        worker = self._workers.get(process)
        if worker is not None and worker.process.alive:
            self._kill(worker)

    def _kill(self, worker: Worker) -> None:
        wire = self._wire(worker.machine.name, "redis")
        if not wire.is_whole or not self._servers.redis.is_up:
            self.world.network.trouble(wire)
        worker.process.kill()
        self.books.killed(worker.name, self.world.loop.time(), wire.bad)

    def _do_stop(self, process: str) -> None:
        if process == "drain":
            if self._drain is not None:
                self._drain[1].set()
                self._later(STOP_S, self._finish_drain, self._drain)
            return
        worker = self._workers.get(process)
        if worker is not None and worker.takes_requests:
            closed, machine, began = worker.stop(), worker.machine, self.world.loop.time()
            killing = self.world.loop.call_later(STOP_S, self._kill_living, worker)

            def done(task: "asyncio.Task[None]") -> None:
                killing.cancel()
                was_full = machine.disk_is_full or machine.disk_freed_at >= began
                if worker.process.alive and was_full:
                    self._kill(worker)  # what it had in doubt, it could not leave to others
                elif worker.process.alive:
                    worker.process.kill()

            closed.add_done_callback(done)

    def _kill_living(self, worker: Worker) -> None:
        if worker.process.alive:
            self._kill(worker)

    def _finish_drain(self, drain: tuple[Process, asyncio.Event]) -> None:
        if drain[0].alive:
            drain[0].kill()

    def _do_settings(self, machine: str, ttl: int, hold: int) -> None:
        if machine in self.world.machines:
            self.world.machines[machine].settings = Settings(ttl, hold)

    def _do_join(self, machine: str, ttl: int, hold: int, ahead: float) -> None:
        self.world.machine(machine, self._folder, Settings(ttl, hold), ahead)
        self._launch(f"{machine}0")
        self._launch_allocator(machine)

    def _do_leave(self, machine: str) -> None:
        """With its disk, and what is spooled there."""
        leaving = self.world.machines.get(machine)
        if leaving is None or leaving.is_gone:
            return
        for name in sorted(self._workers):
            worker = self._workers[name]
            if worker.machine is leaving and worker.process.alive:
                self._kill(worker)
        if machine in self._allocators and self._allocators[machine].alive:
            self._allocators[machine].kill()
        leaving.is_gone = self._has_left = True
        replayed = self.world.loop.time() - REPLAYED_S
        self.books.left(machine, self._wire(machine, "redis").first_bad, replayed)

    def _do_clock(self, whose: str, by: float) -> None:
        self.world.set_clock(whose, by)
        now = self.world.loop.time()
        self.books.clock_was_set(whose, by, now)
        if by >= KEPT_S:
            self.books.outlived(now, self.world.walls()[1], self._first_bad)

    def _bad(self, machine: str) -> tuple[float, float]:
        """From when its wire to Redis was not whole, and until when its spool had notices."""
        wire = self._wire(machine, "redis")
        since, until = wire.bad
        return since, until + REPLAYED_S if wire.is_whole else self.world.loop.time()

    def _first_bad(self, worker: str) -> float:
        return self._wire(worker[0], "redis").first_bad

    def _do_disk(self, machine: str, seconds: float) -> None:
        if machine in self.world.machines:
            self.world.machines[machine].disk_is_full = True
            self._later(seconds, self._free, self.world.machines[machine])

    def _free(self, machine: Machine) -> None:
        machine.disk_is_full, machine.disk_freed_at = False, self.world.loop.time()

    # -- connections -------------------------------------------------------------------------

    def _wire(self, machine: str, store: str) -> Wire:
        return self.world.network.wire(machine, store)

    def _do_stall(
        self, machine: str, store: str, requests: int, replies: int, seconds: float
    ) -> None:
        wire = self._wire(machine, store)
        self.world.network.hold(wire, requests=bool(requests), replies=bool(replies))
        self._later(seconds, self.world.network.heal, wire)

    def _do_slow(self, machine: str, store: str, by: float, seconds: float) -> None:
        wire = self._wire(machine, store)
        self.world.network.trouble(wire)
        wire.slow_s = by
        self._later(seconds, self.world.network.heal, wire)

    def _do_cut(self, machine: str, store: str, seconds: float) -> None:
        wire = self._wire(machine, store)
        wire.refuses = True
        self.world.network.cut(wire)
        self._later(seconds, self.world.network.heal, wire)

    # -- stores ------------------------------------------------------------------------------

    def _down(self, store: str) -> None:
        server = self._servers.redis if store == "redis" else self._servers.postgres
        server.is_up = False
        for wire in self.world.network.wires(store):
            self.world.network.cut(wire)

    def _up(self, store: str) -> None:
        if store not in self._busy:
            return
        if store == "redis":
            self._servers.redis.is_up = True
            self._servers.redis.restart()
            self.books.began(self.world.loop.time())
        else:
            self._servers.postgres.is_up = True
        for wire in self.world.network.wires(store):
            self.world.network.trouble(wire)
        self._busy.discard(store)

    def _do_restart(self, store: str, seconds: float) -> None:
        if store not in self._busy:
            self._busy.add(store)
            self._down(store)
            self._later(seconds, self._up, store)

    def _do_save(self, store: str, number: int = FIRST_COPY) -> None:
        copy = None
        if store == "redis":
            self._servers.redis.tick()
            self._servers.redis.save(number)
        else:
            copy = self._servers.postgres.save()
        self._saved[store, number] = (self.world.loop.time(), copy)

    def _do_replace_data(self, number: int) -> None:
        """Redis gets what was saved, and goes on running."""
        since, _ = self._saved.get(("redis", number), (-1.0, None))
        if since >= 0 and "redis" not in self._busy:
            figures, now = self.figures(), self.world.loop.time()
            self._stores_change()
            self._servers.redis.tick()
            self._servers.redis.replace(number)
            self.books.began(now)
            self.books.redis_went_back(since, now, figures, self.world.walls(), self._bad)
            if self._is_foreign:
                self._later(RETURNED_S, self._adopt)
            self._stores_changed()

    def _do_restore(self, store: str, seconds: float, number: int = FIRST_COPY) -> None:
        """The store comes back with what was saved, or with nothing."""
        if store in self._busy:
            return
        figures = self.figures()
        self._do_restart(store, seconds)
        self._stores_change()
        now = self.world.loop.time()
        since, copy = self._saved.get((store, number), (-1.0, None))
        if store == "redis":
            self._servers.redis.tick()
            if since < 0:
                self._servers.redis.client.flushdb()
            else:
                self._servers.redis.load(number)
            self.books.redis_went_back(since, now, figures, self.world.walls(), self._bad)
            if self._is_foreign:
                self._later(seconds, self._adopt)
        elif copy is not None:
            self._servers.postgres.load(copy)
            kept = snapshot.catalog(self._servers.postgres).campaigns
            gone = {campaign.name for campaign in self.campaigns.values()} - kept.keys()
            self.books.warehouse_went_back(now, self.figures(), gone)
            self.clicks.warehouse_changed()
        self._stores_changed()

    def _do_standby(self, behind: int, seconds: float) -> None:
        """PostgreSQL fails amid a round, and comes back without the last few batches of it."""
        self._follow([], behind, seconds, self.world.loop.time() + FOLLOWED_S)

    def _follow(
        self, copies: list[tuple[float, Any, int]], behind: int, seconds: float, until: float
    ) -> None:
        """Have the standby follow, until a round has enough batches."""
        postgres, now = self._servers.postgres, self.world.loop.time()
        if now > until or "postgres" in self._busy:
            return
        batches = postgres.run(postgres.admin.fetchval("select sum(batch)::int from drain_fence"))
        if not copies or copies[-1][2] != batches:
            copies.append((now, postgres.save(), batches))
            if len(copies) > behind and now - copies[-behind][0] < ROUND_S:
                at, copy, _ = copies[-behind - 1]
                self._saved["postgres", STANDBY] = at, copy
                self._do_restore("postgres", seconds, STANDBY)
                return
        self._later(FOLLOW_S, self._follow, copies, behind, seconds, until)

    def _stores_change(self) -> None:
        if self.world.has_events:
            self.events.stores_change(events.stored(self._servers, self.world.shards))

    def _stores_changed(self) -> None:
        if self.world.has_events:
            self.events.stores_changed(
                events.stored(self._servers, self.world.shards), self.world.loop.time()
            )

    def _do_replace(self, seconds: float, adopt: float) -> None:
        """Another warehouse, which has given its numbers in another order."""
        if "postgres" in self._busy:
            return
        self._do_restart("postgres", seconds)
        self._stores_change()
        postgres, names = self._servers.postgres, [c.name for c in self.campaigns.values()]
        postgres.load(self._servers.empty)
        postgres.run(
            postgres.admin.execute(
                "update warehouse_identity set id = $1::text::uuid",
                self.world.rng.randbytes(16).hex(),
            )
        )
        snapshot.register(postgres, names, self.world.rng)
        self.clicks.warehouse_changed()
        for kept in [kept for kept in self._saved if kept[0] == "postgres"]:
            del self._saved[kept]
        self.books.replaced()
        self._stores_changed()
        self._is_foreign, self._replaced_at = True, self.world.loop.time()
        self._later(seconds + adopt, self._adopt)

    def _adopt(self) -> None:
        def done(shards: int) -> None:
            now, walls = self.world.loop.time(), self.world.walls()
            self.books.redis_went_back(self._replaced_at, now, self.figures(), walls, self._bad)

        self.world.adopt(self._drains_on, done)
