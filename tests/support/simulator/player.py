"""Plays the steps of a script on a world, with the books kept beside it."""

import asyncio
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from snapbid.ledger.limits import Limits
from snapbid.ledger.records import shard_of
from support.simulator.books import Books
from support.simulator.entries import Answer, Figures, Notice, Record
from support.simulator.loop import Process, SimulationError
from support.simulator.machines import Machine, Settings, Worker, World
from support.simulator.market import SSPS, campaigns, counted, limits_of, register
from support.simulator.network import Wire
from support.simulator.script import Script
from support.simulator.servers import Copy, Servers

BEGIN_S: Final = 0.3  # until the workers have connected
SETTLED_S: Final = 21.0  # virtual; then everything must have been drained
LOOK_S: Final = 3.0  # between looks at the warehouse
_NUMBERS: Final = re.compile(r"\d+")
TURNS: Final = 3_000_000  # of the loop, for a run that does not end


def kinds(differences: Iterable[str]) -> frozenset[str]:
    """What differs, without how much."""
    return frozenset(_NUMBERS.sub("", difference.partition(":")[0]) for difference in differences)


class Player:
    """One run, ended early where one of `wanted` differs. `folder` is for the machines' files."""

    def __init__(
        self, script: Script, servers: Servers, folder: Path, wanted: frozenset[str]
    ) -> None:
        self._wanted = wanted
        settings = script.first.args
        self.script = script
        self._servers = servers
        self._folder = folder
        self.world = World(servers, script.seed, int(settings["shards"]), float(settings["wall"]))
        self.books = Books(self.world.shards)
        self._campaigns = campaigns(self.world.shards, int(settings["budget"]))
        self._limits = {
            campaign.number: limits_of(campaign, self.world.shards) for campaign in self._campaigns
        }
        self._workers: dict[str, Worker] = {}
        self._drain: tuple[Process, asyncio.Event] | None = None
        self._has_drain = bool(settings["drain"])
        self._saved: dict[str, tuple[float, Any]] = {}
        self._busy: set[str] = set()  # stores that are being restarted
        self.requests = 0
        self._nights = False

    # -- the run -----------------------------------------------------------------------------

    def play(self) -> None:
        """Fill `books.wrong` with what differs."""
        with self.world.open():
            register(self._servers.postgres, [campaign.name for campaign in self._campaigns])
            self.world.loop.run_until_complete(self._play())

    async def _play(self) -> None:
        loop, settings = self.world.loop, self.script.first.args
        own = Settings(int(settings["ttl"]), int(settings["hold"]))
        names = str(settings["workers"]).split(",")
        for name in sorted({name[0] for name in names}):
            self.world.machine(name, self._folder, own)
        self._drains_on = self.world.machine("d", self._folder, own)
        for name in names:
            self._launch(name)
        self._launch("drain")
        for step in self.script.steps:
            until = BEGIN_S + step.at
            if until > loop.time():
                await asyncio.sleep(until - loop.time())
            self.world.note(str(step))
            getattr(self, f"_do_{step.do}")(**step.args)
            if self._wanted & kinds(self.books.wrong):
                return
            if loop.turns > TURNS:
                raise SimulationError("the run does not end")
        await asyncio.sleep(0.5)
        await self._heal()
        await self._settle()
        self.books.wrong += self.world.surprises + self.world.loop.unhandled

    def _launch(self, name: str) -> None:
        if name == "drain":
            if self._has_drain and (self._drain is None or not self._drain[0].alive):
                self._drain = self.world.drain(self._drains_on)
            return
        machine = self.world.machines[name[0]]
        worker = self._workers.get(name)
        if not machine.is_gone and (worker is None or not worker.process.alive):
            self._workers[name] = Worker(self.world, machine, name)

    # -- requests ----------------------------------------------------------------------------

    def _worker(self, name: str) -> Worker | None:
        """This one, or the next one that takes requests."""
        names = sorted(self._workers)
        start = names.index(name) if name in names else 0
        for number in range(len(names)):
            worker = self._workers[names[(start + number) % len(names)]]
            if worker.takes_requests:
                return worker
        return None

    def _do_bid(
        self, worker: str, auction: object, ssp: int, user: str, within: float, imps: str
    ) -> None:
        taker = self._worker(worker)
        if taker is None:
            return
        self.requests += 1
        name = str(auction)
        now, wall = self.world.loop.time(), self.world.walls()
        wanted = [pair.split(":") for pair in str(imps).split(",")]
        records = [
            Record(
                (name, imp),
                SSPS[ssp - 1],
                campaign := self._campaigns[int(number) - 1],
                campaign.cpm,
                shard_of(name.encode(), self.world.shards),
                user,
                taker.machine.name,
                taker.settings.ttl_s,
                taker.settings.hold_s,
                now,
                wall,
            )
            for imp, number in wanted
        ]
        answer = Answer(SSPS[ssp - 1], taker.name, records)
        self.books.asked(answer)
        taker.process.run(self._bid(taker, answer, user, within))

    async def _bid(self, worker: Worker, answer: Answer, user: str, within: float) -> None:
        bids = [
            (
                record.pair[1].encode(),
                record.campaign.number,
                record.price,
                self._limits[record.campaign.number],
            )
            for record in answer.records
        ]
        auction = answer.records[0].pair[0]
        kept = await worker.bid(auction.encode(), answer.ssp.number, bids, user, within)
        now, wall = self.world.loop.time(), self.world.walls()
        self.world.note("bid", auction, worker.name, str(kept))
        if kept is None or not any(kept):
            self.books.declined(answer, now, wall)
            return
        chosen = [record for record, is_kept in zip(answer.records, kept, strict=True) if is_kept]
        self.books.promised(answer, chosen, now, wall)

    def _do_notice(self, worker: str, auction: object, imp: object, kind: int, reason: int) -> None:
        taker = self._worker(worker)
        pair = (str(auction), str(imp))
        is_strange = pair[0].startswith("?")
        if taker is None or not (is_strange or self.books.is_promised(pair)):
            return
        self.requests += 1
        wall = self.world.walls()
        now = self.world.loop.time()
        notice = Notice(pair, kind, reason, taker.machine.name, now, wall)
        self.books.fired(notice)
        taker.process.run(self._notify(taker, notice))

    async def _notify(self, worker: Worker, notice: Notice) -> None:
        auction, imp = notice.pair
        is_done = await worker.notify(notice.kind, auction.encode(), imp.encode(), notice.reason)
        now, wall = self.world.loop.time(), self.world.walls()
        self.world.note("notice", auction, imp, notice.kind, worker.name, is_done)
        if is_done:
            self.books.acknowledged(notice, now, wall)
        else:
            self.books.refused(notice, now, wall)

    # -- faults ------------------------------------------------------------------------------

    def _later(self, seconds: float, action: Callable[..., None], *args: object) -> None:
        self.world.loop.call_later(seconds, action, *args)

    def _wire(self, machine: str, store: str) -> Wire:
        return self.world.network.wire(machine, store)

    def _do_stall(
        self, machine: str, store: str, requests: int, replies: int, seconds: float
    ) -> None:
        wire = self._wire(machine, store)
        self.world.network.hold(wire, requests=bool(requests), replies=bool(replies))
        self._later(seconds, self._mend, wire, store)

    def _do_slow(self, machine: str, store: str, by: float, seconds: float) -> None:
        wire = self._wire(machine, store)
        self.world.network.trouble(wire)
        wire.slow_s = by
        self._later(seconds, self._mend, wire, store)

    def _do_cut(self, machine: str, store: str, seconds: float) -> None:
        wire = self._wire(machine, store)
        wire.refuses = True
        self.world.network.cut(wire)
        self._later(seconds, self._mend, wire, store)

    def _mend(self, wire: Wire, store: str) -> None:
        self.world.network.heal(wire)

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
                self._later(10.0, self._finish_drain, self._drain)
            return
        worker = self._workers.get(process)
        if worker is not None and worker.takes_requests:
            closed = worker.stop()
            killing = self.world.loop.call_later(10.0, self._kill, worker)

            def done(task: "asyncio.Task[None]") -> None:
                killing.cancel()
                if worker.process.alive:
                    worker.process.kill()

            closed.add_done_callback(done)

    def _finish_drain(self, drain: tuple[Process, asyncio.Event]) -> None:
        if drain[0].alive:
            drain[0].kill()

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

    def _do_settings(self, machine: str, ttl: int, hold: int) -> None:
        self.world.machines[machine].settings = Settings(ttl, hold)

    def _do_clock(self, whose: str, by: float) -> None:
        self.world.set_clock(whose, by)

    def _do_disk(self, machine: str, seconds: float) -> None:
        self.world.machines[machine].disk_is_full = True
        self._later(seconds, self._free, self.world.machines[machine])

    def _free(self, machine: Machine) -> None:
        machine.disk_is_full = False

    # -- stores ------------------------------------------------------------------------------

    def _down(self, store: str) -> None:
        server = self._servers.redis if store == "redis" else self._servers.postgres
        server.is_up = False
        for wire in self.world.network.wires(store):
            self.world.network.cut(wire)

    def _up(self, store: str) -> None:
        if store == "redis":
            self._servers.redis.is_up = True
            self._servers.redis.restart()
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

    def _do_save(self, store: str) -> None:
        if store == "redis":
            self._servers.redis.tick()
            self._servers.redis.save(1)
            self._saved[store] = (self.world.loop.time(), None)
        else:
            self._saved[store] = (self.world.loop.time(), self._servers.postgres.save())

    def _do_restore(self, store: str, seconds: float) -> None:
        """The store comes back with what was saved, or with nothing."""
        if store in self._busy:
            return
        figures = self.figures()
        self._do_restart(store, seconds)
        now = self.world.loop.time()
        if store == "redis":
            since, _ = self._saved.get(store, (-1.0, None))
            self._servers.redis.tick()
            if since < 0:
                self._servers.redis.client.flushdb()
            else:
                self._servers.redis.load(1)
            self.books.redis_went_back(since, now, figures)
        elif store in self._saved:
            copy: Copy = self._saved[store][1]
            self._servers.postgres.load(copy)
            self.books.warehouse_went_back(now, self.figures())

    # -- the end -----------------------------------------------------------------------------

    async def _heal(self) -> None:
        network = self.world.network
        for store in sorted(self._busy):
            self._up(store)
        for store in ("redis", "postgres"):
            for wire in network.wires(store):
                network.heal(wire)
        for machine in self.world.machines.values():
            machine.disk_is_full = False
        self._has_drain = True
        for name in (*sorted(self._workers), "drain"):
            self._do_launch(name)

    async def _settle(self) -> None:
        """Until the warehouse agrees, or should have; then the budgets."""
        until = self.world.loop.time() + SETTLED_S
        while True:
            await asyncio.sleep(LOOK_S)
            figures = self.figures()
            self.books.seen(figures)
            differences = self.books.bounds().compare(figures)
            if not differences or self.world.loop.time() > until:
                break
        self.books.wrong += differences
        if not differences:
            await self._check_purses()

    def figures(self) -> Figures:
        """What the warehouse has counted."""
        return counted(self._servers.postgres)

    async def _check_purses(self) -> None:
        """Once all holds have ended, a budget is what was not spent, to the nano-USD."""
        if self.books.loosened_at >= 0:
            return
        holds = [worker.settings.hold_s for worker in self._workers.values()]
        await asyncio.sleep(max([*holds, self.script.first.args["hold"]]) + 3.0)
        for worker in self._workers.values():
            if worker.takes_requests:
                await self._check_purses_by(worker)
                return

    async def _check_purses_by(self, worker: Worker) -> None:
        for campaign in self._campaigns:
            for shard in range(self.world.shards if campaign.total is not None else 0):
                lower, upper = self.books.spent(campaign, shard)
                assert campaign.total is not None
                share = self.books.share(campaign.total)
                limits = Limits(campaign.number, None, campaign.total, None, (), self.world.shards)
                for price, wanted in ((share - upper, True), (share - lower + 1, False)):
                    if price <= 0:
                        continue
                    has_money = await worker.process.run(worker.has_money(shard, price, limits))
                    if has_money is not wanted:
                        self.books.wrong.append(
                            f"{campaign.name}: {lower} to {upper} of {share} nano-USD are spent, "
                            f"all holds have ended, and a bid of {price} is "
                            f"{'kept' if has_money else 'refused'}"
                        )
