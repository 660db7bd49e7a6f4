"""Request statistics of each SSP, for the go-live checklist (document 2) and the diagnosis.

A worker counts each request in memory, in a few tenths of a microsecond, and adds its counts to
Redis every second (`operations/golive/store.py`). If the worker is killed, only the last second is
lost.

The ledger does not remember test bids, so their notices look like those of unknown auctions. Redis
therefore keeps the ids of test auctions for a few minutes, and notices of unknown auctions are
looked up there: an SSP can prove with test bids alone that its notices work.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterable
from time import thread_time, time
from typing import Final, NamedTuple, TypeAlias

from redis.exceptions import RedisError

from snapbid.base.beat import BEAT_S, beat
from snapbid.base.tasks import end
from snapbid.bidding.request_stats import SAMPLED, RequestStats, RequestTotals
from snapbid.bidding.routes import NOTICE_NAMES
from snapbid.ledger.bids.records import bid_digest
from snapbid.metrics import Metrics
from snapbid.metrics.keys import parse_key
from snapbid.operations.golive.examination import Sample, examine
from snapbid.operations.golive.store import RequestStatsStore

METRIC: Final = "snapbid_bid_requests_total"
WRITE_S: Final = 4 * BEAT_S
EXAMINING_S: Final = 0.005  # processor time for each write
LOOKS: Final = 3  # writes during which an unknown notice is looked up among the tests
MAX_TESTS: Final = 200  # impressions of test requests, recorded in one write
MAX_UNKNOWN: Final = 1000  # notices looked up at a time
MAX_STRAYS: Final = 20
MAX_STRAY: Final = 64  # characters

logger = logging.getLogger(__name__)


Growth: TypeAlias = Iterable[tuple[str, str, int]]
"""(SSP, outcome, growth) rows."""


class Outcomes:
    """Counts SSPs' bid requests by outcome; a call yields the counts since the previous call."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seen = metrics.values(METRIC)  # counted by earlier processes

    def __call__(self) -> Growth:
        """Yield (SSP, outcome, growth) for each series that has grown since the previous call."""
        before, self._seen = self._seen, self._metrics.values(METRIC)
        for key, value in self._seen.items():
            more = value - before.get(key, 0)
            if more:
                labels = parse_key(key)[1]
                yield labels["ssp"], labels["outcome"], more


class _Notice(NamedTuple):
    """A notice of an unknown auction, to be looked up `looks` more times among the test bids."""

    kind: int
    digest: bytes
    looks: int


class RequestStatsWriter:
    """Collects a worker's request statistics for all SSPs, and writes them to Redis.

    `clock` returns epoch seconds; `outcomes` yields (SSP, outcome, growth since the previous
    call).
    """

    def __init__(
        self,
        store: RequestStatsStore,
        clock: Callable[[], float] = time,
        outcomes: Callable[[], Growth] = tuple,
    ) -> None:
        self._store = store
        self._clock = clock
        self._outcomes = outcomes
        self._numbers: dict[str, int] = {}
        self._ssps: dict[int, RequestStats] = {}
        self._unsent: dict[int, RequestTotals] = {}
        self._batch: dict[int, RequestTotals] = {}  # being written
        self._writer = secrets.token_hex(6)
        self._number = 0  # of the batch
        self._tested: list[tuple[bytes, int]] = []
        self._strays: set[str] = set()
        self._unknown: list[_Notice] = []
        self._task: asyncio.Task[None] | None = None

    def of(self, number: int, ssp: str = "") -> RequestStats:
        """Return the request statistics of an SSP; `ssp` is its name in metrics."""
        self._numbers[ssp] = number
        return self._ssps.setdefault(number, RequestStats())

    def stray(self, ssp: str) -> None:
        """Record a bid request for an unregistered SSP id."""
        if len(self._strays) < MAX_STRAYS and len(ssp) <= MAX_STRAY and ssp.isprintable():
            self._strays.add(ssp)

    def unknown_notice(self, kind: int, auction_id: bytes, imp_id: bytes) -> None:
        """Record a notice of an unknown auction, which may have been a test."""
        if len(self._unknown) < MAX_UNKNOWN:
            self._unknown.append(_Notice(kind, bid_digest(auction_id, imp_id), LOOKS))

    # -- writing to Redis ----------------------------------------------------------------------

    def start(self) -> None:
        """Start writing periodically; requires a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep_writing())

    async def stop(self) -> None:
        """Stop, and write the remaining counts unless Redis is unavailable."""
        if self._task is not None:
            await end(self._task)
        with contextlib.suppress(RedisError, OSError):
            await self.write()

    async def write(self) -> None:
        """Write the counts now, keeping any that Redis does not accept.

        Raises RedisError or OSError.
        """
        now = int(self._clock())
        await self._examine()
        for number, request_stats in self._ssps.items():
            for auction, imps in request_stats.tested:
                self._tested += ((_digest(auction, imp), number) for imp in imps)
            self._collect(number, request_stats, now)
        for ssp, outcome, more in self._outcomes():
            if ssp in self._numbers:
                totals = self._unsent.setdefault(self._numbers[ssp], RequestTotals())
                totals.counts[f"outcome:{outcome}"] += more
        del self._tested[MAX_TESTS:]
        if self._tested:
            await self._store.write_tests(self._tested)
            self._tested.clear()
        if self._unknown:
            await self._look_for_tests(now)
        if strays := frozenset(self._strays):
            await self._store.write_strays(strays, now)
            self._strays -= strays  # more may have arrived during the write
        while self._batch or self._unsent:
            if not self._batch:
                self._batch, self._unsent = self._unsent, {}
                self._number += 1
            await self._store.write(self._batch, now, self._writer, self._number)
            self._batch = {}

    async def _examine(self) -> None:
        """Examine samples of all SSPs in turn, within the time limit, yielding to other tasks."""
        taken = [(own, own.take_samples(SAMPLED)) for own in self._ssps.values()]
        until = thread_time() + EXAMINING_S
        for nth in range(SAMPLED):
            for request_stats, samples in taken:
                if nth < len(samples) and thread_time() < until:
                    request_stats.examined.update(examine(Sample(*samples[nth])))
                    await asyncio.sleep(0)

    def _collect(self, number: int, request_stats: RequestStats, now: int) -> None:
        sent = request_stats.take(now)
        if sent.counts:
            self._unsent.setdefault(number, RequestTotals()).add(sent)

    async def _look_for_tests(self, now: int) -> None:
        looked = self._unknown[:]
        testers = await self._store.testers([notice.digest for notice in looked])
        del self._unknown[: len(looked)]
        for notice, number in zip(looked, testers, strict=True):
            if number is not None:
                self.of(number).notices[NOTICE_NAMES[notice.kind]] += 1
                self._collect(number, self.of(number), now)
            elif notice.looks > 1:
                self._unknown.append(notice._replace(looks=notice.looks - 1))

    async def _keep_writing(self) -> None:
        while True:
            await beat(WRITE_S)
            try:
                await self.write()
            except (RedisError, OSError):
                pass  # others log that Redis is unavailable
            except Exception:
                logger.exception("failed to write the SSPs' request statistics; retrying")


def _digest(auction: str, imp: str) -> bytes:
    return bid_digest(auction.encode(errors="surrogatepass"), imp.encode(errors="surrogatepass"))
