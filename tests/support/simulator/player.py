"""Plays the steps of a script on a stage, with the books kept beside it."""

import asyncio
import contextlib
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain import counters
from snapbid.drain import run as drain_run
from snapbid.ledger.bids import shard
from snapbid.ledger.bids.records import NoticeVerdict
from snapbid.ledger.budgets.limits import Limits
from snapbid.redisclient import trips
from snapbid.server import allocating
from support.simulator import snapshot
from support.simulator.allocators import ROUND_S
from support.simulator.entries import UNKNOWN_RUN_S, Answer, Campaign, Notice, Record
from support.simulator.events import PRODUCT, Sending, audited, read, stored, version
from support.simulator.loop import SimulationError
from support.simulator.machines import Worker
from support.simulator.outages import ClusterStage
from support.simulator.script import Script
from support.simulator.servers import Servers
from support.simulator.snapshot import SSPS
from support.simulator.system import replaced

BEGIN_S: Final = 0.3  # until the workers have connected
GRANTED_S: Final = 2.0  # until several shards have money for bids
SETTLED_S: Final = 21.0  # virtual; then everything must have been drained
ROUNDS: Final = 2  # of the drain, before the warehouse must agree
LOOK_S: Final = 1.5  # between looks at the warehouse
# In which allocators bring all that is left to the shard that wants it: some rounds (of 0.4 s here)
# for each of a dozen bids.
BROUGHT_S: Final = 60.0
TICK_S: Final = 0.005  # where a script says none
_NUMBERS: Final = re.compile(r"[\d.]+")
LAST: Final = "z"  # the machine that joins where all have left
TURNS: Final = 1_000_000  # of the loop, for a run that does not end


def kinds(differences: Iterable[str]) -> frozenset[str]:
    """What differs, without how much."""
    return frozenset(_NUMBERS.sub("", difference.partition(":")[0]) for difference in differences)


@contextlib.contextmanager
def _pace(tick_s: float, heartbeat_s: float, pause_s: float, round_s: float) -> Iterator[None]:
    """How often ledgers tick and say that they are there, and drain and allocators work."""
    with (
        replaced(trips, TICK_S=tick_s),
        replaced(shard, HEARTBEAT_S=heartbeat_s),
        replaced(drain_run, PAUSE_S=pause_s),
        replaced(allocating, ROUND_S=round_s),
    ):
        yield


class Player(ClusterStage):
    """One run, ended early where one of `wanted` differs. `folder` is for the machines' files."""

    def __init__(
        self, script: Script, servers: Servers, folder: Path, wanted: frozenset[str]
    ) -> None:
        super().__init__(script, servers, folder)
        self._wanted = wanted
        self.requests = 0
        self._has_tried = False  # to spend what is left of a budget in escrow

    def play(self) -> None:
        """Fill `books.wrong` with what differs."""
        with self.world.open():
            snapshot.register(self._servers.postgres, [c.name for c in self.campaigns.values()])
            self.world.loop.run_until_complete(self._play())

    async def _play(self) -> None:
        loop = self.world.loop
        tick_s = float(self.settings.get("tick", TICK_S))
        enough = int(self.settings.get("enough", trips.ENOUGH))
        with (
            _pace(tick_s, shard.HEARTBEAT_S, drain_run.PAUSE_S, ROUND_S),
            replaced(trips, ENOUGH=enough),
            replaced(counters, BATCH=int(self.settings.get("batch", counters.BATCH))),
        ):
            self._begin()
            begin_s = BEGIN_S if self._escrow is None else GRANTED_S
            for step in self.script.steps:
                until = begin_s + step.at
                if until > loop.time():
                    await asyncio.sleep(until - loop.time())
                self.world.note(str(step))
                getattr(self, f"_do_{step.do}")(**step.args)
                if self._wanted & kinds(self.books.wrong):
                    return
                if loop.turns > TURNS:
                    raise SimulationError("the run does not end")
            await asyncio.sleep(0.5)
        with _pace(0.05, 0.8, 1.0, 1.0):  # little happens from now on
            await self._heal()
            await self._settle()
        self.books.wrong += self.world.surprises + self.world.loop.unhandled

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
        skew_s, _ = taker.skew_s(name.encode())
        named = [(imp, self.campaigns.get(int(number))) for imp, number in wanted]
        records = [
            Record(
                (name, imp),
                SSPS[ssp - 1],
                campaign,
                campaign.cpm,
                user,
                taker.machine.name,
                taker.settings.ttl_s,
                taker.settings.hold_s,
                now,
                wall,
                skew_s,
            )
            for imp, campaign in named
            if campaign is not None and campaign.name in taker.catalog.campaigns
        ]
        if not records:
            return
        answer = Answer(SSPS[ssp - 1], taker.name, records)
        self.books.asked(answer)
        taker.process.run(self._bid(taker, answer, user, within))

    async def _bid(self, worker: Worker, answer: Answer, user: str, within: float) -> None:
        kept = await worker.bid(answer.records, within)
        now, wall = self.world.loop.time(), self.world.walls()
        self.world.note("bid", *answer.records[0].pair, worker.name, str(kept))
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
        notice.skew_s, notice.is_own_time = taker.skew_s(pair[0].encode())
        notice.set_back_s = self.books.set_back_s(now)
        self.books.fired(notice)
        taker.process.run(self._notify(taker, notice))

    async def _notify(self, worker: Worker, notice: Notice) -> None:
        auction, imp = notice.pair
        verdict = await worker.notify(notice.kind, auction.encode(), imp.encode(), notice.reason)
        now, wall = self.world.loop.time(), self.world.walls()
        self.world.note("notice", auction, imp, notice.kind, worker.name, verdict)
        if verdict:
            wire = self.world.network.wire(worker.machine.name, "redis")
            bad_since = wire.bad_since(now)
            notice.is_unheard = self.books.is_unheard(bad_since) or self._is_new(worker)
            notice.heard_until = bad_since if wire.refuses else now
            known_since = now - UNKNOWN_RUN_S if notice.is_own_time else bad_since
            notice.is_of_former_run = self.books.has_begun(min(bad_since, known_since))
            self.books.acknowledged(notice, now, wall, verdict == NoticeVerdict.SPOOLED)
        else:
            self.books.refused(notice, now, wall)

    def _is_new(self, worker: Worker) -> bool:
        """Whether Redis knows neither it nor another one that shares its directory."""
        return not any(
            other.has_reached for other in self._workers.values() if other.machine is worker.machine
        )

    def _do_event(self, worker: str, events: str) -> None:
        taker = self._worker(worker)
        if taker is None:
            return
        received_ms = int(self.world.machine_s(taker.machine) * 1000)
        wall_s = self.world.wall_s()
        names = events.split(",")
        click_id = partial(self.clicks.text, wall_s=wall_s)
        accepted = [event for name in names if (event := read(name, received_ms, click_id))]
        if not accepted:
            return
        self.requests += 1
        for event in accepted:
            self.clicks.sent(event.event_id, event.click_id)
        pairs = [(event.event_id, event.envelope) for event in accepted]
        sending = Sending([version(*pair) for pair in pairs], received_ms, self.world.loop.time())
        self.events.sent(sending)
        taker.process.run(self._post(taker, sending, pairs))

    async def _post(
        self, worker: Worker, sending: Sending, events: list[tuple[str, bytes]]
    ) -> None:
        is_accepted = await worker.post(sending.received_ms, PRODUCT.name, events)
        self.world.note("event", worker.name, events[0][0], is_accepted)
        sending.answered_at, sending.is_accepted = self.world.loop.time(), is_accepted

    def _do_rotate(self) -> None:
        """The keys of click ids, if the warehouse is there."""
        if self._servers.postgres.is_up:
            self.clicks.rotate()

    # -- the end -----------------------------------------------------------------------------

    async def _heal(self) -> None:
        network = self.world.network
        for store in sorted(self._busy):
            self._up(store)
        self._heal_cluster()
        for store in ("redis", "postgres"):
            for wire in network.wires(store):
                network.heal(wire)
        for machine in self.world.machines.values():
            self._free(machine)
        self._has_drain = True
        if all(worker.machine.is_gone for worker in self._workers.values()):
            settings = self.settings  # outboxes are delivered by a machine that is there
            self._do_join(LAST, int(settings["ttl"]), int(settings["hold"]), 0.0)
        for name in (*sorted(self._workers), "drain"):
            self._do_launch(name)
        for name in sorted(self._allocators):
            self._launch_allocator(name)

    async def _settle(self) -> None:
        """Until the warehouse agrees, or should have; then the budgets."""
        until = self.world.loop.time() + SETTLED_S
        rounds = self._rounds()
        for _ in range(ROUNDS):  # so that it has seen all stores as they are now
            while (seen := self._rounds()) == rounds and self.world.loop.time() < until:
                await asyncio.sleep(LOOK_S)
            rounds = seen
        while True:
            await asyncio.sleep(LOOK_S)
            figures = self.figures()
            self.books.seen(figures)
            self.books.shown(self.world.walls())
            differences = self.books.bounds().compare(figures)
            if self._escrow is not None and (entries := self._escrow.undelivered()):
                differences.append(f"outboxes: {entries} entries are not delivered")
            if self.world.has_events:
                differences += self.events.compare(stored(self._servers, self.world.shards))
                differences += self.clicks.compare()
            if not differences or self.world.loop.time() > until:
                break
        kept = self.world.has_events and self.events.are_kept
        differences += audited(self._servers, self.world.shards, are_kept=kept)
        self.books.wrong += differences
        if not differences:
            await self._check_allowances()

    def _rounds(self) -> list[Any]:
        """When the drain was last done with each shard."""
        client = self._servers.redis.client
        return [client.get(ShardKeys(number).drained_at) for number in range(self.world.shards)]

    async def _check_allowances(self) -> None:
        """Once all holds have ended, a budget is what was not spent, to the nano-USD."""
        if self.books.limits.loosened_at >= 0 or self.books.warehouse_is_older or self._has_left:
            return
        holds = [worker.settings.hold_s for worker in self._workers.values()]
        await asyncio.sleep(max([*holds, self.settings["hold"]]) + 3.0)
        for worker in self._workers.values():
            if worker.takes_requests:
                await self._check_allowances_by(worker)
                return

    async def _check_allowances_by(self, worker: Worker) -> None:
        for campaign in self.campaigns.values():
            if campaign.total is None:
                continue
            lower, upper = self.books.spent(campaign)
            budget, number = campaign.total * 1000, worker.catalog.campaigns[campaign.name]
            limits = Limits(
                number, None, campaign.total, None, (), in_escrow=self._escrow is not None
            )
            if self._escrow is not None:
                await self._check_escrow(worker, campaign, limits)
                continue
            for price, wanted in ((budget - upper, True), (budget - lower + 1, False)):
                if price <= 0:
                    continue
                has_money = await worker.process.run(worker.has_money(price, limits))
                if has_money is not wanted:
                    self.books.wrong.append(
                        f"the budget of {campaign.name}: {lower} to {upper} of {budget} nano-USD"
                        f" are spent, all holds have ended, and a bid of {price} is "
                        f"{'kept' if has_money else 'refused'}"
                    )

    async def _check_escrow(self, worker: Worker, campaign: Campaign, limits: Limits) -> None:
        """Its shards know of what was spent and no more, and the rest can be spent by one of them.

        That is tried with one campaign of a run, and one that no daily budget keeps from it.
        """
        assert campaign.total is not None
        lower, upper = self.books.spent(campaign)
        used = await worker.process.run(worker.used(limits.campaign))
        if used is not None and not lower <= used <= upper:
            self.books.wrong.append(
                f"the allowances of {campaign.name}: used {used} nano-USD, not {lower} to {upper}"
            )
        bids = (campaign.total * 1000 - upper) // campaign.cpm
        if campaign.daily is None and not self._has_tried:
            self._has_tried = True
            work = worker.spend(bids, campaign.cpm, limits, BROUGHT_S)
            if not await worker.process.run(work):
                self.books.wrong.append(
                    f"the escrow of {campaign.name}: there is money for {bids} bids, and one shard"
                    f" could not make them within {BROUGHT_S:.0f} s"
                )
