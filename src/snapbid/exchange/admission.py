"""Admission: how many bid requests a worker takes on at a time, and whose.

Beyond its capacity, a worker that takes on everything answers everything too late. So no more
requests are under way than the worker has lately completed within `TARGET_S`; what comes on top is
answered 204 at once, before its body is looked at. An SSP (all its descriptors together) that has
less than its share of them under way is let in nevertheless, so that it does not pay for another's
flood; a share is the limit divided by the SSPs that have requests under way.

A request that waits for a body that its client does not send costs nothing, and is not counted any
more after one or two intervals: half-sent requests do not keep others out.

The server hands a request over without telling when it came, so the time that it has waited before
is estimated: its body takes the same way through the server's queues as the request took before it,
and takes as long. The least of an interval's waits is the queue that stands; what is above it is
a burst, or a client that sends slowly.
"""

from time import perf_counter
from typing import Final

INTERVAL_S: Final = 0.05
TARGET_S: Final = 0.03
FIRST: Final = 256  # under way at most, until an interval has shown what the worker can do
FEWEST: Final = 64
MOST: Final = 4096


class Lane:
    """One SSP's requests under way, and those of them that wait for their body: of this interval,
    of the one before. Older ones are not under way until their body is there.
    """

    __slots__ = ("reading", "reading_before", "under_way")

    def __init__(self) -> None:
        self.under_way = 0
        self.reading = 0
        self.reading_before = 0


class Admission:
    """What one worker takes on. Times are `perf_counter`'s.

    Of each request, `enter`, `has_body` and `leave` are called once, in this order.
    """

    def __init__(self) -> None:
        self.limit = FIRST
        self.under_way = 0
        self.waited_s = 0.0
        """How long requests wait at present before the worker sees them."""
        self._share = float(FIRST)
        self._lanes: dict[str, Lane] = {}
        self._began = self._began_before = now = perf_counter()
        self._until = now + INTERVAL_S
        self._completed = 0
        self._fewest = 0
        self._least_wait_s = INTERVAL_S

    def lane(self, ssp: str) -> Lane:
        """The lane of an SSP, by canonical id; always the same one."""
        return self._lanes.setdefault(ssp, Lane())

    def enter(self, lane: Lane, now: float) -> bool:
        """Whether a request may go on."""
        if now >= self._until:
            self._begin(now)
        if self.under_way >= self.limit and lane.under_way >= self._share:
            return False
        self.under_way += 1
        lane.under_way += 1
        lane.reading += 1
        return True

    def has_body(self, lane: Lane, entered: float, now: float) -> None:
        """The body of a request is there, or its client has left."""
        if entered >= self._began:
            lane.reading -= 1
        elif entered >= self._began_before:
            lane.reading_before -= 1
        else:
            self.under_way += 1
            lane.under_way += 1
        if now - entered < self._least_wait_s:
            self._least_wait_s = now - entered

    def leave(self, lane: Lane) -> None:
        """A request has its answer."""
        self._completed += 1
        lane.under_way -= 1
        self.under_way = under_way = self.under_way - 1
        if under_way < self._fewest:
            self._fewest = under_way

    def _begin(self, now: float) -> None:
        """Begins an interval, with a limit by what was completed in the last one."""
        for lane in self._lanes.values():
            lane.under_way -= lane.reading_before
            self.under_way -= lane.reading_before
            lane.reading_before, lane.reading = lane.reading, 0
        self._adapt(now - self._began)
        self._began, self._began_before = now, self._began
        self._until = now + INTERVAL_S
        self._completed = 0
        self._fewest = self.under_way
        self._least_wait_s = INTERVAL_S

    def _adapt(self, seconds: float) -> None:
        """If the interval was busy to its end, what it completed is what can be done."""
        self.waited_s = self._least_wait_s if self._completed else 0.0
        if self._fewest >= FEWEST:
            possible = int(self._completed / seconds * max(TARGET_S - self.waited_s, 0.0))
            self.limit = min(max(possible, FEWEST), MOST)
        else:
            self.limit = max(self.limit, FIRST)
        busy = sum(lane.under_way > 0 for lane in self._lanes.values())
        self._share = self.limit / max(busy, 1)
