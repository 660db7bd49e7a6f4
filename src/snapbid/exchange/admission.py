"""Admission: how many bid requests a worker accepts at a time, and from whom.

An overloaded worker that accepts everything answers everything too late. So the number of requests
in flight is limited to what the worker has lately completed within `TARGET_S`; the rest is answered
204 at once, before its body is read. An SSP (all its descriptors together) that is below its share
of the limit is admitted nevertheless, so that it does not pay for another SSP's flood. The share is
the limit divided by the number of SSPs with requests in flight.

A request whose client is slow to send the body costs nothing, and stops counting after one or two
intervals: half-sent requests keep no other client out.

The server does not say when a request arrived, so the time it spent queueing is estimated: its body
passes through the same server queues as the request did, and takes as long. The shortest wait of an
interval is the standing queue; anything longer is a burst or a slow client.
"""

from time import perf_counter
from typing import Final

INTERVAL_S: Final = 0.05
TARGET_S: Final = 0.03
FIRST: Final = 256  # the limit until an interval has shown what the worker can do
FEWEST: Final = 64
MOST: Final = 4096


class Lane:
    """One SSP's requests in flight.

    `reading` and `reading_before` are those still waiting for their body, from this interval and
    the one before. Older ones do not count as in flight until their body has arrived.
    """

    __slots__ = ("reading", "reading_before", "under_way")

    def __init__(self) -> None:
        self.under_way = 0
        self.reading = 0
        self.reading_before = 0


class AdmissionControl:
    """Admission control of one worker. Times are seconds of `perf_counter`.

    Each request calls `enter`, `has_body` and `leave` once, in this order.
    """

    def __init__(self) -> None:
        self.limit = FIRST
        self.under_way = 0
        self.waited_s = 0.0
        """How long requests currently queue before the worker sees them."""
        self._share = float(FIRST)
        self._lanes: dict[str, Lane] = {}
        self._began = self._began_before = now = perf_counter()
        self._until = now + INTERVAL_S
        self._completed = 0
        self._fewest = 0
        self._least_wait_s = INTERVAL_S

    def lane(self, ssp: str) -> Lane:
        """Return the lane of an SSP, by canonical id."""
        return self._lanes.setdefault(ssp, Lane())

    def enter(self, lane: Lane, now: float) -> bool:
        """Return whether to admit a request."""
        if now >= self._until:
            self._begin(now)
        if self.under_way >= self.limit and lane.under_way >= self._share:
            return False
        self.under_way += 1
        lane.under_way += 1
        lane.reading += 1
        return True

    def has_body(self, lane: Lane, entered: float, now: float) -> None:
        """Note that a request's body has arrived, or that its client has disconnected."""
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
        """Note that a request has been answered."""
        self._completed += 1
        lane.under_way -= 1
        self.under_way = under_way = self.under_way - 1
        if under_way < self._fewest:
            self._fewest = under_way

    def _begin(self, now: float) -> None:
        """Begin an interval, its limit set by what the last one completed."""
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
        """Set the limit: an interval that was busy throughout shows the worker's capacity."""
        self.waited_s = self._least_wait_s if self._completed else 0.0
        if self._fewest >= FEWEST:
            possible = int(self._completed / seconds * max(TARGET_S - self.waited_s, 0.0))
            self.limit = min(max(possible, FEWEST), MOST)
        else:
            self.limit = max(self.limit, FIRST)
        busy = sum(lane.under_way > 0 for lane in self._lanes.values())
        self._share = self.limit / max(busy, 1)
