"""What each SSP really sends, counted beside the bids for the go-live check (document 2).

A worker counts in memory, every request, in some tenths of a microsecond, and adds what has grown
to what Redis has (`ledger/evidence.py`) each second. So evidence outlives a worker but for the last
second before a kill.

A test bid is not remembered, so that its notices are of an unknown auction. Which auctions were
tests is written down too, for some minutes, and unknown notices are looked for among them: an SSP
can show with test bids alone that it fires its notices.
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from time import time
from typing import Final, NamedTuple

from redis.exceptions import RedisError

from snapbid.errors import Problem, UnsupportedMediaType
from snapbid.exchange.request import BidRequest
from snapbid.http import Answer, Headers, Receive
from snapbid.ledger import evidence
from snapbid.ledger.evidence import KEPT, Sent
from snapbid.ledger.records import BILLING, LOSS, WIN, place
from snapbid.tasks import end

WRITE_S: Final = 1.0
LOOKS: Final = 3  # writes during which an unknown notice is looked for among the tests
MAX_TESTS: Final = 20  # of an SSP, noted in one write
MAX_PLACES: Final = 200  # of test requests, noted in one write
MAX_UNKNOWN: Final = 1000  # notices that are looked for
MAX_STRAYS: Final = 20
MAX_STRAY: Final = 64  # characters
MAX_DETAIL: Final = 200
NOTICES: Final = {WIN: "win", BILLING: "billing", LOSS: "loss"}

Handler = Callable[[Headers, Receive], Awaitable[Answer]]

logger = logging.getLogger("snapbid")


class Sightings:
    """What one SSP has sent to this worker since the last write."""

    __slots__ = ("_answers", "_content_type", "_country", "_ip", "_ipv6", "_problems", "_requests",
                 "_statuses", "_tests", "_ua", "notices", "tested")  # fmt: skip

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._requests = self._tests = 0  # requests that could be read
        self._country = self._ua = self._ip = self._ipv6 = self._content_type = 0
        self._statuses: dict[int, int] = {}
        self._answers: deque[int] = deque(maxlen=KEPT)
        self._problems: deque[str] = deque(maxlen=KEPT)
        self.notices: Counter[str] = Counter()  # of test bids
        self.tested: list[tuple[str, list[str]]] = []  # auction, its impressions

    def request(self, request: BidRequest) -> None:
        """Counts what the checklist asks of a request."""
        self._requests += 1
        device = request.device
        if device is not None:
            geo = device.geo
            if geo is not None and geo.country:
                self._country += 1
            if device.ua:
                self._ua += 1
            if device.ip:
                self._ip += 1
            elif device.ipv6:
                self._ipv6 += 1
        if request.test == 1:
            self._tests += 1
            if len(self.tested) < MAX_TESTS:
                imps = [str(imp.id) for imp in request.imp or ()]
                self.tested.append((str(request.id), imps[:MAX_TESTS]))

    def answered(self, status: int) -> None:
        """Counts an answer."""
        self._statuses[status] = self._statuses.get(status, 0) + 1
        self._answers.append(status)

    def refused(self, problem: Problem) -> None:
        """Counts an answer with an error."""
        self.answered(problem.status)
        self._problems.append(f"{problem.status} {problem.detail[:MAX_DETAIL]}")
        if isinstance(problem, UnsupportedMediaType) and problem.detail.startswith("Content-Type"):
            self._content_type += 1

    def take(self, now: int) -> Sent:
        """What has come, stamped with the time (epoch s), and begins anew."""
        counts = Counter({f"status:{status}": by for status, by in self._statuses.items()})
        counts.update(
            requests=self._requests,
            tests=self._tests,
            country=self._country,
            ua=self._ua,
            ip=self._ip,
            ipv6=self._ipv6,
            content_type=self._content_type,
        )
        counts.update(self.notices)
        sent = Sent(
            +counts,
            [f"{now} {status}" for status in self._answers],
            [f"{now} {problem}" for problem in self._problems],
        )
        self._clear()
        return sent


class _Notice(NamedTuple):
    """A notice of an unknown auction; `looks` are left."""

    kind: int
    place: bytes
    looks: int


class Evidence:
    """All SSPs' sightings in this worker. `clock` gives epoch seconds."""

    def __init__(self, store: evidence.Store, clock: Callable[[], float] = time) -> None:
        self._store = store
        self._clock = clock
        self._ssps: dict[int, Sightings] = {}
        self._unsent: dict[int, Sent] = {}
        self._tested: list[tuple[bytes, int]] = []
        self._strays: set[str] = set()
        self._unknown: list[_Notice] = []
        self._task: asyncio.Task[None] | None = None

    def of(self, number: int) -> Sightings:
        """The SSP's, by its number; always the same."""
        return self._ssps.setdefault(number, Sightings())

    def stray(self, ssp: str) -> None:
        """A bid request came to an id that is not registered."""
        if len(self._strays) < MAX_STRAYS and len(ssp) <= MAX_STRAY and ssp.isprintable():
            self._strays.add(ssp)

    def unknown_notice(self, kind: int, auction_id: bytes, imp_id: bytes) -> None:
        """A notice came for an auction that is not remembered; it may be of a test bid."""
        if len(self._unknown) < MAX_UNKNOWN:
            self._unknown.append(_Notice(kind, place(auction_id, imp_id), LOOKS))

    # -- the way to Redis ----------------------------------------------------------------------

    def start(self) -> None:
        """Starts to write; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep_writing())

    async def stop(self) -> None:
        """Writes what is left, if Redis is there."""
        if self._task is not None:
            await end(self._task)
        with contextlib.suppress(RedisError, OSError):
            await self.write()

    async def write(self) -> None:
        """One write; what Redis does not take is kept for the next. Raises RedisError, OSError."""
        now = int(self._clock())
        for number, sightings in self._ssps.items():
            for auction, imps in sightings.tested:
                self._tested += ((_place(auction, imp), number) for imp in imps)
            self._collect(number, sightings, now)
        del self._tested[MAX_PLACES:]
        if self._tested:
            await self._store.write_tests(self._tested)
            self._tested.clear()
        if self._unknown:
            await self._look_for_tests(now)
        if self._strays:
            await self._store.write_strays(self._strays, now)
            self._strays.clear()
        if self._unsent:
            unsent, self._unsent = self._unsent, {}
            try:
                await self._store.write(unsent, now)
            except BaseException:
                self._unsent = unsent
                raise

    def _collect(self, number: int, sightings: Sightings, now: int) -> None:
        sent = sightings.take(now)
        if sent.counts:
            self._unsent.setdefault(number, Sent()).add(sent)

    async def _look_for_tests(self, now: int) -> None:
        looked, self._unknown = self._unknown, []
        testers = await self._store.testers([notice.place for notice in looked])
        for notice, number in zip(looked, testers, strict=True):
            if number is not None:
                self.of(number).notices[NOTICES[notice.kind]] += 1
                self._collect(number, self.of(number), now)
            elif notice.looks > 1:
                self._unknown.append(notice._replace(looks=notice.looks - 1))

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(WRITE_S)
            try:
                await self.write()
            except (RedisError, OSError):
                pass  # told by those who need Redis more
            except Exception:
                logger.exception("what SSPs have sent could not be written down")


def _place(auction: str, imp: str) -> bytes:
    return place(auction.encode(errors="surrogatepass"), imp.encode(errors="surrogatepass"))
