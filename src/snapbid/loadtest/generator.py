"""A load generator: sends bid requests, notices and events on schedule, and counts the answers."""

import asyncio
import gc
from collections.abc import Callable
from random import Random
from time import perf_counter
from typing import Final, TypeAlias

from msgspec import Struct

from snapbid.loadtest.accounts import Account
from snapbid.loadtest.auctions import Auction, AuctionSource
from snapbid.loadtest.bid_sender import BidSender
from snapbid.loadtest.client import LoadClient
from snapbid.loadtest.event_sender import BatchCounts, EventSender
from snapbid.loadtest.measure import ClockReading
from snapbid.loadtest.notice_sender import NoticeCounts, NoticeSender
from snapbid.loadtest.options import Options
from snapbid.loadtest.pacer import Pacer
from snapbid.loadtest.plan import Phase, Schedule
from snapbid.loadtest.tally import Tally

AT_ONCE: Final = 32  # sends before answers are read
SWEEP_S: Final = 0.05
PROGRESS_S: Final = 0.25
SIDE_CONNECTIONS: Final = 16  # for notices and event batches

Watcher: TypeAlias = Callable[[Phase, Tally, float], None]


class PhaseCounts(Struct):
    """The counts of a phase, the client's clock readings, and the phase's duration."""

    tally: Tally
    clocks: ClockReading
    seconds: float  # less than planned if it was stopped early

    def __iadd__(self, other: "PhaseCounts") -> "PhaseCounts":
        """Add the counts of another generator.

        Keep the clock readings of the busier generator, and the shorter duration.
        """
        self.tally.add(other.tally)
        self.clocks = max(self.clocks, other.clocks, key=lambda clocks: clocks.processor_s)
        self.seconds = min(self.seconds, other.seconds)
        return self


class RunCounts(Struct):
    """The counts of a whole run: accounts by descriptor, notices and event batches."""

    accounts: dict[str, Account]
    notices: NoticeCounts
    batches: BatchCounts | None

    def __iadd__(self, other: "RunCounts") -> "RunCounts":
        """Add the counts of another generator."""
        for ssp, account in other.accounts.items():
            self.accounts[ssp] = self.accounts.get(ssp, Account())
            self.accounts[ssp] += account
        self.notices += other.notices
        if self.batches is not None and other.batches is not None:
            self.batches += other.batches
        return self


class Generator:
    """Runs phases one after another: `open`, `run` for each, `settle`, `close`.

    Garbage collection is off while it is open: requests create no cycles, so collections would only
    delay them.
    """

    def __init__(self, options: Options, auctions: list[list[Auction]]) -> None:
        self._options = options
        target, patience_s = options.target, options.timeout_s
        self._client = LoadClient(target.host, target.port, options.connections, patience_s)
        self._side_client = LoadClient(target.host, target.port, SIDE_CONNECTIONS, patience_s)
        only = "" if options.ours else target.authority
        self._notices = NoticeSender(
            self._side_client, options.habits, options.seed, patience_s, only
        )
        self._batches: EventSender | None = None
        if options.events is not None:
            rate, size, key = options.events
            self._batches = EventSender(
                self._side_client, target.authority, key, size, rate, options.seed
            )
        self._sources = [AuctionSource(mix) for mix in auctions]
        self._accounts = {auction.ssp: Account() for mix in auctions for auction in mix}
        self._random = Random(options.seed)
        self._bids: BidSender | None = None
        self._schedule: Schedule | None = None
        self._stopped = asyncio.Event()
        self.abandoned = asyncio.Event()
        self._pacer: Pacer | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """End the current phase; requests already sent are still awaited."""
        self._stopped.set()

    def abandon(self) -> None:
        """Set `abandoned`, which ends `run` and `settle` without waiting for requests in flight."""
        self.stop()
        self.abandoned.set()

    async def open(self) -> None:
        """Connect, and start the pacer. Raises OSError if the target does not answer."""
        await self._client.open()
        await self._side_client.open()
        self._sweeper = asyncio.create_task(self._sweep())
        gc.collect()
        gc.freeze()
        gc.disable()
        self._pacer = Pacer(self._tick)
        self._pacer.start()

    def close(self) -> None:
        """Disconnect; safe to call after a failed `open`."""
        gc.enable()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._pacer is not None:
            self._pacer.close()
        self._client.close()
        self._side_client.close()

    async def run(self, phase: Phase, watch: Watcher) -> PhaseCounts:
        """Send a phase's requests, and wait until all have ended or are abandoned.

        Meanwhile, call `watch` several times a second with the phase, its counts so far and the
        seconds since its start.
        """
        start = perf_counter() + SWEEP_S + 0.01  # by then the pacer has ticked again
        before = ClockReading.read()
        until = start + phase.seconds
        tally = Tally(start=start, until=until, timeout_s=self._options.timeout_s)
        self._bids = BidSender(
            self._client,
            self._sources[phase.mix],
            tally,
            self._accounts,
            self._notices,
            phase.faults,
            self._random,
            ours=self._options.ours,
        )
        self._schedule = Schedule(phase, start, self._random, self._options.even)
        if self._batches is not None:
            self._batches.due = start
        while (now := perf_counter()) < self._schedule.end and not self.stopped:
            watch(phase, tally, now - start)
            await asyncio.sleep(min(PROGRESS_S, max(0.0, self._schedule.end - now)))
        while self._schedule.due < float("inf") and not self.stopped:
            await asyncio.sleep(SWEEP_S / 5)  # requests due before the end are still sent
        self._schedule.due = float("inf")
        if self._batches is not None:
            self._batches.due = float("inf")
        clocks = ClockReading.read().since(before)
        if self.stopped:
            tally.until = min(until, perf_counter())
        while tally.pending and not self.abandoned.is_set():
            await asyncio.sleep(SWEEP_S / 5)
        if tally.pending:
            tally.abandon()
        return PhaseCounts(tally, clocks, tally.until - start)

    async def settle(self) -> RunCounts:
        """Await outstanding notices and batches, unless the run is abandoned; return its counts."""
        batches = self._batches
        while (
            self._notices.open or (batches is not None and batches.open)
        ) and not self.abandoned.is_set():
            await asyncio.sleep(SWEEP_S)
        sent = None if batches is None else batches.counts
        return RunCounts(self._accounts, self._notices.counts, sent)

    def _tick(self, now: float) -> float:
        """Send the due requests, notices and batches; return the time of the next tick.

        One tick sends at most `AT_ONCE` bid requests and `AT_ONCE` notices.
        """
        next_at = now + SWEEP_S
        schedule, bids = self._schedule, self._bids
        if schedule is not None and bids is not None:
            budget = AT_ONCE
            while schedule.due <= now and budget:
                bids.send(schedule.due, now)
                schedule.advance()
                budget -= 1
            next_at = min(next_at, schedule.due)
        notice_at = self._notices.fire(now, AT_ONCE)
        if notice_at is not None:
            next_at = min(next_at, notice_at)
        if self._batches is not None:
            self._batches.send(now)
            next_at = min(next_at, self._batches.due)
        return next_at

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = perf_counter()
            self._client.sweep(now)
            self._side_client.sweep(now)
