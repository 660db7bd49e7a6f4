"""A scenario: a hand of faults under traffic, and the balance of the accounts afterwards.

A seed is `DECK:HAND`. The deck's number shuffles all faults and deals them out, so that the hands
of a deck have every fault once; times, durations and targets depend on both numbers.
"""

import asyncio
import contextlib
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from snapbid.drain.audit import Auditor
from snapbid.drain.run import SILENT_S
from snapbid.ledger.admin.audits import SHOWN, Difference
from snapbid.ledger.admin.parts import fetch_count
from snapbid.ledger.bids.records import bid_digest
from snapbid.redisclient.connection import Connections
from support import books, logged, partner, sending
from support.cluster import until
from support.soak import (  # noqa: F401 - they register themselves
    faults,
    fleet,
    fleet_faults,
    fleet_partitions,
    wires,
)
from support.soak import stage as stages
from support.soak.registry import OF_FLEET, OF_MACHINE, Faults
from support.soak.stage import Capped, Stage
from support.soak.tally import Recovery, Tally
from support.soak.traffic import (
    BACK_S,
    BUDGETS,
    CAMPAIGNS,
    CAP,
    PAUSE_S,
    Traffic,
    of_all,
    of_family,
    totals,
)
from support.stack import connected

ALARM: Final = re.compile(r" (WARNING|ERROR|CRITICAL) |^Traceback")
# Without a fault, a matter of the machine: other programs may have the processors for a second.
SLOW: Final = re.compile(
    r" WARNING .*(unavailable.*(Timeout|no answer|no reply for|not connected within)"
    r"|report cache: no answer)"
)
HANDS: Final = 5  # of a deck
TOGETHER: Final = 0.4  # of the faults are combined with another
SETTLED_S: Final = 90.0
LONG_S: Final = 5.0  # of a recovery; then it says of what
REST_S: Final = SILENT_S + 5.0  # before the traffic of a deck's first hand
WORK_S: Final = 3.0  # of traffic before the first fault


class Seed(NamedTuple):
    """Of a scenario."""

    deck: int
    hand: int

    @classmethod
    def parse(cls, text: str) -> "Seed":
        """Raises ValueError."""
        deck, _, hand = text.partition(":")
        return cls(int(deck), int(hand or 0))

    def __str__(self) -> str:
        return f"{self.deck}:{self.hand}"

    def next(self) -> "Seed":
        deck, hand = divmod(self.deck * HANDS + self.hand + 1, HANDS)
        return Seed(deck, hand)


class Step(NamedTuple):
    """Simultaneous faults, their duration, and the quiet time before them (s)."""

    faults: tuple[str, ...]
    seconds: float
    pause_s: float


def steps(seed: Seed, of: Faults[Any]) -> list[Step]:
    """The steps that a seed stands for."""
    deck = sorted(of.named)
    random.Random(seed.deck).shuffle(deck)
    left = deck[seed.hand :: HANDS] or deck
    rng = random.Random(f"{seed} steps")
    sequence = []
    while left:
        together = [left.pop()]
        others = [name for name in left if of.parts[name] != of.parts[together[0]]]
        if others and rng.random() < TOGETHER:
            together.append(rng.choice(others))
            left.remove(together[1])
        lasting = [name for name in together if name not in of.sudden]
        seconds = rng.uniform(0.3, 3.0) if lasting else 0.0
        sequence.append(Step(tuple(together), seconds, rng.uniform(0.2, 0.8)))
    return sequence


class Run:
    """Plays a scenario on a new stage; `tally` is its result."""

    def __init__(self, seed: Seed, stage: Stage, of: Faults[Any], pause_s: float = PAUSE_S) -> None:
        self._faults = of
        self._seed = seed
        self._stage = stage
        self._steps = steps(seed, of)
        self.tally = Tally(scenarios=1)
        parts = {of.parts[name] for step in self._steps for name in step.faults}
        traffic = random.Random(f"{seed} traffic")
        refused_may_count = bool(parts & {"server", "machines"})
        self._traffic = Traffic(stage, traffic, refused_may_count, pause_s)

    def play(self) -> None:
        wire = self._stage.wire
        if self._seed.hand == 0:
            time.sleep(REST_S)
        wire.call(self._traffic.start())
        time.sleep(WORK_S)
        alarms = self._alarms()
        try:
            for step in self._steps:
                self._play(step)
        except (TimeoutError, AssertionError) as error:
            self._differs(str(error))
        wire.call(self._traffic.finish(), 2 * stages.CALL_S)
        self._balance()
        for what in alarms:  # told last: the accounts may well balance
            if SLOW.search(what):
                print(f"  slow without a fault: {what}", flush=True)
            else:
                self._differs(f"without a fault: {what}")
        self._count_answers()

    def _play(self, step: Step) -> None:
        time.sleep(step.pause_s)
        names = []
        with contextlib.ExitStack() as stack:
            for name in step.faults:
                rng = random.Random(f"{self._seed} {name}")  # independent of other draws
                detail = stack.enter_context(self._faults.named[name](self._stage, rng))
                skipped = detail.startswith("skipped")
                (self.tally.skipped if skipped else self.tally.faults)[name] += 1
                names.append(f"{name} ({detail})" if detail else name)
            time.sleep(step.seconds)
        after = " with ".join(names)
        try:
            awaited = self._stage.wire.call(self._traffic.flowing(), 2 * stages.CALL_S)
        except TimeoutError as error:
            raise TimeoutError(f"after {after}: {error}") from None
        lasting = f"for {step.seconds:.1f} s, " if step.seconds else ""
        seconds, slowest = sum(awaited.values()), max(awaited, key=lambda part: awaited[part])
        last = f", most of it {slowest}" if seconds > LONG_S else ""
        print(f"  {after}: {lasting}all well after {seconds:.1f} s{last}", flush=True)
        self.tally.recovered(seconds, f"{after} in {self._seed}")

    # -- the balance -------------------------------------------------------------------------

    @property
    def _patience_s(self) -> float:
        """How long accounts may take to balance; none, once something differs."""
        return 0.0 if self.tally.differences else SETTLED_S

    def _differs(self, what: str) -> None:
        self.tally.differences.append(f"{self._seed}: {what}")

    def _balance(self) -> None:
        traffic, own, dsn = self._traffic, self._traffic.books, self._stage.dsn
        began = time.monotonic()
        wire = self._stage.wire
        for what in wire.call(books.agreed(own, dsn, self._patience_s), 2 * SETTLED_S):
            self._differs(what)
        self._balance_events()
        self.tally.settled = Recovery(time.monotonic() - began, str(self._seed))
        tables = wire.call(books.tables(dsn))
        for kind, of in self.tally.stored.items():
            if kind != "events":
                of.acknowledged, of.sent = of_all(own.lower, kind), of_all(own.upper, kind)
                of.stored = of_all(tables, kind)
        self._balance_limits(tables)
        self._balance_caps()
        self._balance_report(tables)
        self._balance_audit()
        self._balance_log(tables)
        for what in (*own.wrong, *traffic.partner.wrong, *traffic.wrong, *self._told()):
            self._differs(what)

    def _balance_limits(self, tables: Counter[books.Key]) -> None:
        """Check budgets and caps against every win and impression sent, answered or not."""
        own = self._traffic.books
        for name, (cpm, bids) in BUDGETS.items():
            key = ("campaign cpm", name)
            spent = max(tables[key], own.upper[key]) // cpm
            if spent > bids:
                self._differs(f"{spent} wins are spent of {name}'s budget for {bids}")
            self.tally.budgets_spent += spent >= 0.8 * bids
        for (campaign, user), seen in own.seen.items():
            if campaign == "soak-cap" and len(seen) > CAP:
                self._differs(f"{user} has seen {len(seen)} impressions of at most {CAP}")
            self.tally.users_capped += campaign == "soak-cap" and len(seen) == CAP

    def _balance_caps(self) -> None:
        """Check that notices have become impressions and ended holds, wherever users are."""
        own, campaign = self._traffic.books, "soak-cap"
        least, most = (
            sum(len(of) for (name, _), of in each.items() if name == campaign)
            for each in (own.shown, own.seen)
        )
        settled = {
            bid_digest(auction.encode(), imp.encode()) for auction, imp in own.settled[campaign]
        }
        counts = Capped(0, frozenset())

        def is_so() -> bool:
            nonlocal counts
            counts = self._stage.capped()
            return least <= counts.impressions <= most and not counts.held & settled

        try:
            until(is_so, "caps", self._patience_s)
        except AssertionError:
            self._differs(
                f"{counts.impressions} impressions count for caps where {least} to {most} were"
                f" notified, and {len(counts.held & settled)} settled bids are still held"
            )
        unanswered = own.upper["campaign bids", campaign] - own.lower["campaign bids", campaign]
        self.tally.held += max(len(counts.held) - unanswered, 0)

    def _balance_events(self) -> None:
        own, dsn = self._traffic.partner, self._stage.dsn
        try:
            by_tag = partner.await_stored(dsn, own.acknowledged, self._patience_s)
        except AssertionError as error:
            self._differs(str(error))
            by_tag = partner.stored(dsn)
        of = self.tally.stored["events"]
        of.acknowledged, of.sent, of.stored = len(own.acknowledged), own.sent, by_tag.total()
        for tag, number in by_tag.items():
            if number > 1 or int(tag) >= own.sent:
                self._differs(f"event {tag} is stored {number} times")
        if number := len(sending.rows(dsn, "select * from event_conflicts")):
            self._differs(f"{number} rows in event_conflicts")
        for (reason,) in sending.rows(dsn, "select reason from event_dead_letters"):
            self._differs(f"an event in event_dead_letters: {reason}")
        for what in self._traffic.clicks.differences(dsn):
            self._differs(what)
        self.tally.conversions = self._traffic.clicks.conversions

    def _balance_report(self, tables: Counter[books.Key]) -> None:
        """Check a report that was never requested before, so that no cache has it."""
        try:
            reply = self._stage.wire.call(asyncio.wait_for(self._traffic.reported("acme"), BACK_S))
        except TimeoutError:
            self._differs("no report")
            return
        told = totals(json.loads(reply.body))
        stored = {kind: of_family(tables, kind, "acme") for kind in ("bids", "wins", "imps")}
        if told != stored:
            self._differs(f"the report tells {told} where {stored} are stored")

    def _balance_audit(self) -> None:
        redis_url, dsn, log = self._stage.redis_url, self._stage.dsn, self._stage.auctions[0]
        audit = audited(redis_url, dsn, log, self._patience_s)
        for each in self._stage.wire.call(audit, 2 * SETTLED_S)[:SHOWN]:
            self._differs(f"the audit finds a difference: {each}")

    def _balance_log(self, tables: Counter[books.Key]) -> None:
        """Check that the auction log lacks no more than its gaps admit."""
        self._stage.stop_serving()
        rows = [row for folder in self._stage.auctions for row in logged.read(folder)]
        self.tally.logged, self.tally.admitted = len(rows), logged.missing(rows)
        if what := logged.contradiction(rows, tables):
            self._differs(what)
        for folder in self._stage.auctions:
            if left := [path.name for path in folder.rglob("*.rows")]:
                self._differs(f"the auction log is complete but for {left}")

    def _outputs(self) -> list[tuple[str, str]]:
        programs = [*self._stage.served, *self._stage.drains]
        return [(program.command[0], program.output) for program in programs]

    def _alarms(self) -> list[str]:
        return [f"{name}: {line}" for name, output in self._outputs() for line in alarms(output)]

    def _told(self) -> Iterator[str]:
        """Unexpected errors in the output of the programs."""
        for name, output in self._outputs():
            if partner.MARK in output:
                yield f"{name} logs what a partner sent"
            lines = output.splitlines()
            yield from (f"{name}: {line}" for line in lines if "audit found" in line)
            for number, line in enumerate(lines):
                if line.startswith("Traceback"):
                    text = " | ".join(lines[max(0, number - 1) : number + 1])
                    yield f"{name} was surprised: {text} … {_end(lines[number:])}"

    def _count_answers(self) -> None:
        own, tally = self._traffic.books, self.tally
        for kind in ("bid", "notice"):
            of_kind = {status: n for (of, status), n in own.statuses.items() if of == kind}
            tally.answered(kind, of_kind)
        tally.answered("event", self._traffic.partner.statuses)
        tally.answered("report", self._traffic.reports)


async def audited(redis_url: str, dsn: str, log: Path, patience_s: float) -> list[Difference]:
    """What the self-audit finds, and still finds after some time."""
    async with (
        contextlib.aclosing(Connections(redis_url).client()) as client,
        connected(dsn) as connection,
    ):
        auditor = Auditor(client, await fetch_count(client), log=log)
        await auditor.audit(connection)
        until = time.monotonic() + patience_s
        while found := await auditor.audit(connection):
            if time.monotonic() > until:
                break
            await asyncio.sleep(1.0)
        return found


def alarms(output: str) -> list[str]:
    """The lines of a program's log that somebody ought to read."""
    return [line for line in output.splitlines() if ALARM.search(line)]


def _end(traceback: list[str]) -> str:
    """The line with the error's name."""
    return next((line for line in traceback[1:] if line and not line[0].isspace()), "")


def run(
    seed: Seed, made: Path, *, several: bool = False, named: str = "", pause_s: float = PAUSE_S
) -> Tally:
    """Play a scenario on a copy of the template: on one machine, or on a fleet.

    With faults whose names have `named`, and with a pause of each lane of the traffic.
    """
    print(f"scenario {seed}", flush=True)
    with contextlib.ExitStack() as stack:
        if several:
            broken = stack.enter_context(fleet.opened(made, *CAMPAIGNS))
            run = Run(seed, broken, OF_FLEET.only(named), pause_s)
        else:
            machine = stack.enter_context(stages.opened(made, *CAMPAIGNS))
            run = Run(seed, machine, OF_MACHINE.only(named), pause_s)
        run.play()
        return run.tally
