"""Admission control: how many bid requests a worker accepts at a time, and from whom.

An overloaded worker that accepts everything answers everything too late. So the number of requests
in flight is limited to what the worker has lately completed within `TARGET_S`; the rest are
answered 204 at once, before their bodies are read. An SSP (all its descriptors together) that is
below its share of the limit is admitted nevertheless, so that it does not pay for another SSP's
flood. The share is the limit divided by the number of SSPs with requests in flight.

A request whose client is slow to send the body costs nothing, and stops counting after one or two
intervals: half-sent requests keep no other client out.

The server does not say when a request arrived, so the time it spent queueing is estimated: its body
passes through the same server queues as the request did, and takes as long. The shortest wait of an
interval is the standing queue; anything longer is a burst or a slow client.
"""

from typing import final

INTERVAL_S: float
TARGET_S: float
FIRST: int
FEWEST: int
MOST: int

@final
class SspShare:
    """One SSP's share of a worker's admission: its requests in flight.

    `reading` and `reading_before` are those still waiting for their body, from this interval and
    the one before. Older ones do not count as in flight until their body has arrived.
    """

    @property
    def under_way(self) -> int: ...
    @property
    def reading(self) -> int: ...
    @property
    def reading_before(self) -> int: ...

@final
class AdmissionControl:
    """Admission control of one worker, from `now` on. Times are seconds of `perf_counter`.

    The limit is `first` until a busy interval has shown the worker's capacity, then between
    `fewest` and `most`.

    Each request calls `enter`, `has_body` and `leave` once, in this order.
    """

    def __init__(
        self, now: float, first: int = FIRST, fewest: int = FEWEST, most: int = MOST
    ) -> None: ...
    @property
    def limit(self) -> int: ...
    @property
    def under_way(self) -> int: ...
    @property
    def waited_s(self) -> float:
        """The current queueing time of requests before the worker reads them, in seconds."""

    def share(self, ssp: str) -> SspShare:
        """Return the share of an SSP (canonical id)."""

    def enter(self, share: SspShare, now: float) -> bool:
        """Return whether to admit a request."""

    def has_body(self, share: SspShare, entered: float, now: float) -> None:
        """Record that a request's body has arrived, or that its client has disconnected."""

    def leave(self, share: SspShare) -> None:
        """Record that a request has been answered."""
