"""Admission: how many bid requests a worker takes on at a time, and whose.

Beyond its capacity, a worker that takes on everything answers everything too late. So no more
requests are under way than the worker has lately completed within `TARGET_S`; what comes on top is
answered 204 at once, before its body is looked at. An SSP (all its descriptors together) that has
less than its share of them under way is let in nevertheless, so that it does not pay for another's
flood; a share is the limit divided by the SSPs that have requests under way.

A request that waits for a body that its client does not send costs nothing, and is not counted any
more after `PATIENCE_S`: half-sent requests do not keep others out.

The server hands a request over without telling when it came, so the time that it has waited before
is estimated: its body takes the same way through the server's queues as the request took before it,
and takes as long. The least of an interval's waits is the queue that stands; what is above it is
a burst, or a client that sends slowly.
"""

from collections import deque
from time import perf_counter
from typing import Final

INTERVAL_S: Final = 0.05
TARGET_S: Final = 0.03
PATIENCE_S: Final = 0.05
FIRST: Final = 256  # under way at most, until an interval has shown what the worker can do
FEWEST: Final = 64
MOST: Final = 4096


class Lane:
    """One SSP's requests under way."""

    __slots__ = ("under_way",)

    def __init__(self) -> None:
        self.under_way = 0


class Ticket:
    """A request that was let in."""

    __slots__ = ("counted", "lane", "reading", "since")

    def __init__(self, lane: Lane, since: float) -> None:
        self.lane = lane
        self.since = since
        self.reading = True
        self.counted = True


class Admission:
    """What one worker takes on. Times are `perf_counter`'s."""

    def __init__(self) -> None:
        self.limit = FIRST
        self.under_way = 0
        self.waited_s = 0.0
        """How long requests wait at present before the worker sees them."""
        self._lanes: dict[str, Lane] = {}
        self._busy = 0  # lanes with requests under way
        self._newest: deque[Ticket] = deque()
        self._fewest: int
        self._least_wait_s: float
        self._begin(perf_counter())

    def lane(self, ssp: str) -> Lane:
        """The lane of an SSP, by canonical id; always the same one."""
        return self._lanes.setdefault(ssp, Lane())

    def enter(self, lane: Lane, now: float) -> Ticket | None:
        """Lets a request in, until `leave`; or gives None."""
        newest = self._newest
        while newest and newest[0].since <= now - PATIENCE_S:
            self._forget(newest.popleft())
        if now >= self._until:
            self._adapt(now)
        if self.under_way >= self.limit and lane.under_way * self._busy >= self.limit:
            return None
        ticket = Ticket(lane, now)
        newest.append(ticket)
        self._count(lane)
        return ticket

    def has_body(self, ticket: Ticket, now: float) -> None:
        """The request's body is there."""
        ticket.reading = False
        if not ticket.counted:
            ticket.counted = True
            self._count(ticket.lane)
        waited_s = now - ticket.since
        if waited_s < self._least_wait_s:
            self._least_wait_s = waited_s

    def leave(self, ticket: Ticket) -> None:
        """The request has its answer."""
        self._completed += 1
        ticket.reading = False
        if ticket.counted:
            self._uncount(ticket.lane)

    def _forget(self, ticket: Ticket) -> None:
        if ticket.reading:
            ticket.counted = False
            self._uncount(ticket.lane)

    def _count(self, lane: Lane) -> None:
        if not lane.under_way:
            self._busy += 1
        lane.under_way += 1
        self.under_way += 1

    def _uncount(self, lane: Lane) -> None:
        lane.under_way -= 1
        if not lane.under_way:
            self._busy -= 1
        self.under_way = under_way = self.under_way - 1
        if under_way < self._fewest:
            self._fewest = under_way

    def _begin(self, now: float) -> None:
        """Begins an interval."""
        self._began = now
        self._until = now + INTERVAL_S
        self._completed = 0
        self._fewest = self.under_way
        self._least_wait_s = INTERVAL_S

    def _adapt(self, now: float) -> None:
        """Ends an interval: if it was busy to the end, what it completed is what can be done."""
        self.waited_s = self._least_wait_s if self._completed else 0.0
        if self._fewest >= FEWEST:
            left_s = max(TARGET_S - self.waited_s, 0.0)
            possible = int(self._completed / (now - self._began) * left_s)
            self.limit = min(max(possible, FEWEST), MOST)
        else:
            self.limit = max(self.limit, FIRST)
        self._begin(now)
