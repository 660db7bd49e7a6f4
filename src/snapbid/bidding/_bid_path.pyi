"""The bid path, from a request's headers to its answer; see `_bid_path.pyx`.

Sections, in order: headers, request statistics, admission, decision, endpoint, a single request.
"""

from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, Self, final

from snapbid.base.errors import Problem
from snapbid.base.http import Answer, HeaderList, Receive
from snapbid.bidding.endpoint import Bidding
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.pods import Pods
from snapbid.bidding.reasons import Reason
from snapbid.bidding.request import BidRequest, Imp
from snapbid.bidding.request_stats import RequestStats
from snapbid.bidding.response import Bid, Template
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog._index import RefusedRanks
from snapbid.catalog.catalog import Index, Query
from snapbid.metrics import Counter, Histogram

INTERVAL_S: float
TARGET_S: float
FIRST_LIMIT: int
LEAST_LIMIT: int
MOST_LIMIT: int

MAX_NOTICE_ID: int  # bytes of an id in a notification URL

def plain_length(headers: HeaderList) -> int:
    """Return the Content-Length of a plain JSON body; -1 if the headers must be read in full.

    The headers must be read in full if Content-Type or Content-Length is missing, repeated or
    unusual, or if there is a Content-Encoding.
    """

def value_of(headers: HeaderList, name: bytes) -> bytes:
    """Return a header's last value; b"" if there is none."""

@final
class RequestCounts:
    """Request statistics of one SSP: counts, and the statuses of its last `kept` answers."""

    def __init__(self, kept: int, sampled: int = 0) -> None: ...
    @property
    def requests(self) -> int: ...
    @property
    def tests(self) -> int: ...
    @property
    def country(self) -> int:
        """The number of requests with a known country.

        `strange_country` is the number of requests that state an unknown country.
        """
    @property
    def strange_country(self) -> int: ...
    @property
    def ua(self) -> int: ...
    @property
    def ip(self) -> int:
        """The number of requests whose `device.ip` is an IP address.

        `strange_ip` is the number of requests with any other value in `device.ip`.
        """
    @property
    def strange_ip(self) -> int: ...
    @property
    def ipv6(self) -> int:
        """The number of requests whose `device.ipv6` is an IP address, and `device.ip` is not.

        `strange_ipv6` is the number of requests with any other value in `device.ipv6`, and no
        address in `device.ip`.
        """
    @property
    def strange_ipv6(self) -> int: ...
    @property
    def statuses(self) -> dict[int, int]: ...
    @property
    def answers(self) -> deque[int]: ...
    def answered(self, status: int) -> None:
        """Count an answer by its HTTP status."""

    def take_samples(self, wanted: int) -> list[tuple[Any, ...]]:
        """Return the samples taken since the last call, and ask for `wanted` more.

        A sample has the body, the request, the SSP, the snapshot, the time (epoch ms), and the
        reason for no bid (None with a bid).
        """

    def clear(self) -> None:
        """Reset all counts."""

@final
class SspShare:
    """The requests that one SSP has in flight at a worker.

    `reading` counts the requests admitted in the current interval (see AdmissionControl) whose
    bodies have not arrived, and `reading_before` those of the interval before. Older requests do
    not count as in flight until their bodies arrive.
    """

    @property
    def under_way(self) -> int: ...
    @property
    def reading(self) -> int: ...
    @property
    def reading_before(self) -> int: ...

@final
class AdmissionControl:
    """Admission control: how many bid requests a worker accepts at a time, and from whom.

    An overloaded worker that accepts everything answers everything too late. So the number of
    requests in flight is limited to as many as the worker, at its recent rate, completes within
    `TARGET_S`. Further requests get a 204 at once, before their bodies are read, unless
    their SSP (all its descriptors together) is below its share. So no SSP suffers from another's
    flood. The share is the limit divided by the number of SSPs with requests in flight.

    The limit is recomputed for each interval of `INTERVAL_S`. If a client is slow to send the body,
    its request stops counting after one or two intervals, so half-sent requests do not keep other
    clients out.

    The server does not report when a request arrived, so its queueing time is estimated: the body
    passes through the same server queues as the head did, and takes as long. The shortest wait in
    an interval is taken as the queueing time; longer ones are due to bursts or slow clients.

    The first interval starts at `now`; times are seconds of `perf_counter`. The limit is `first`
    until a busy interval has shown the worker's capacity; then it is between `least` and `most`.

    Each request calls `enter` once; an admitted request then calls `has_body` and `leave` once.
    """

    def __init__(
        self, now: float, first: int = FIRST_LIMIT, least: int = LEAST_LIMIT, most: int = MOST_LIMIT
    ) -> None: ...
    @property
    def limit(self) -> int: ...
    @property
    def under_way(self) -> int: ...
    @property
    def waited_s(self) -> float:
        """How long requests currently queue before the worker reads them, in seconds."""

    def share(self, ssp: str) -> SspShare:
        """Return the record of requests in flight for the SSP with this canonical id."""

    def enter(self, share: SspShare, now: float) -> bool:
        """Admit a request if the limit or the SSP's share allows; return whether it is admitted."""

    def has_body(self, share: SspShare, entered: float, now: float) -> None:
        """Record that the body of a request has arrived, or that its client has disconnected."""

    def leave(self, share: SspShare) -> None:
        """Record that a request has been answered."""

@final
class Outcome:
    """A possible outcome of an SSP's bid requests: a bid, or a reason not to bid.

    `status`: the answer's status. `counter` counts requests with this outcome. `seconds`: the
    histogram of the durations of bid requests, shared by all outcomes.
    """

    def __init__(
        self,
        counter: Counter,
        request_stats: RequestCounts,
        status: int,
        admission: AdmissionControl,
        share: SspShare,
        seconds: Histogram,
    ) -> None: ...
    def count(self) -> None:
        """Count an answer to a request that was not admitted."""

    def end(self, seconds: float) -> None:
        """End an admitted request, which took `seconds`, and count its answer."""

def can_be_notified(text: str) -> bool:
    """Return whether the notification endpoints would accept `text` as an id."""

@final
class SnapshotCore:
    """The native part of a snapshot: index, lookups, and the templates built so far.

    `ssps`: canonical ids by descriptor. `of_base`: templates of the base's campaigns, whose ranks
    are below `overlaid`; `of_overlay`: templates of the overlay's campaigns.
    """

    def __init__(
        self,
        lookups: Lookups,
        index: Index,
        ssps: dict[str, str],
        of_base: dict[int, Template],
        of_overlay: dict[int, Template],
        overlaid: int,
    ) -> None: ...
    @property
    def lookups(self) -> Lookups: ...
    @property
    def index(self) -> Index: ...
    @property
    def refused(self) -> RefusedRanks:
        """The campaigns that may not bid on any request, because the ledger refused them."""

    def refused_for(self, ssp: str) -> RefusedRanks:
        """Return the campaigns that may not bid on an SSP's requests, including `refused`."""

    def refuse(self, rank: int, ssp: str | None) -> None:
        """Keep a campaign from bidding on requests of `ssp`; None stands for all SSPs."""

    def reactivate(self, rank: int) -> None:
        """Let a campaign bid again."""

    def found(self, rank: int, creative: int) -> Template | None:
        """Return a creative's template; None if it has not been built yet."""

    def keep(self, rank: int, creative: int, template: Template, most: int) -> None:
        """Keep a template; if `most` are kept already, drop them all first."""

@final
class Choice:
    """The campaign and creative chosen for one impression.

    `deal`: an index into `imp.pmp.deals`, or -1. `quantity`: how many impressions `imp` stands for.
    """

    def __init__(
        self, imp: Imp, rank: int, creative: int, deal: int, quantity: float = 1
    ) -> None: ...
    @property
    def imp(self) -> Imp: ...
    @property
    def rank(self) -> int: ...
    @property
    def creative(self) -> int: ...
    @property
    def deal(self) -> int: ...
    @property
    def quantity(self) -> float: ...
    def replaced_by(self, rank: int, creative: int, deal: int) -> Choice:
        """Return a choice for the same impression, of another campaign (`rank`)."""

@final
class Decision:
    """The best campaign for each impression, and the search that found these campaigns.

    `last`: the impression searched last, for which the search can continue. `lookups`: the
    snapshot's lookups, or a variant of them for bids in another currency. `declares`: whether bids
    carry their campaigns' declarations under the Digital Services Act. `pods`: the advertisers in
    the request's pods, if it has any.
    """

    @property
    def choices(self) -> list[Choice]: ...
    @property
    def query(self) -> Query: ...
    @property
    def last(self) -> Imp: ...
    @property
    def user(self) -> str | None: ...
    @property
    def lookups(self) -> Lookups: ...
    @property
    def declares(self) -> bool: ...
    @property
    def pods(self) -> Pods | None: ...
    @property
    def snapshot(self) -> CatalogSnapshot: ...
    def bid_of(self, choice: Choice) -> Bid:
        """Return the bid made for one of the choices."""

@final
class NoBid:
    """An answer without a bid. `undecided`: the number of impressions not decided in time.

    `query`: the search; None if nothing was searched.
    """

    def __init__(self, reason: Reason, undecided: int = 0, query: Query | None = None) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def reason(self) -> Reason: ...
    @property
    def undecided(self) -> int: ...
    @property
    def query(self) -> Query | None: ...

@final
class Proposal:
    """A response not yet written: its bids, and the choices and the decision behind them.

    `limited`: whether any campaign with a bid in the response has a budget or caps; `undecided`:
    the number of impressions not decided in time; `processor_s`: the processor time (s) that the
    request was allowed.
    """

    @property
    def auction_id(self) -> str: ...
    @property
    def bids(self) -> list[Bid]: ...
    @property
    def choices(self) -> list[Choice]: ...
    @property
    def decision(self) -> Decision: ...
    @property
    def limited(self) -> bool: ...
    @property
    def undecided(self) -> int: ...
    @property
    def processor_s(self) -> float: ...

def search(
    request: BidRequest,
    ssp: str,
    snapshot: CatalogSnapshot,
    now_ms: int,
    left_s: float = ...,
    processor_s: float = ...,
) -> Decision | NoBid:
    """Find the best campaign for each impression; `now_ms` is UTC epoch time.

    Takes at most `left_s`, and at most `processor_s` of processor time. If time runs out, the
    result's `query.undecided` is the number of impressions left undecided.
    """

def propose(
    request: BidRequest,
    ssp: str,
    snapshot: CatalogSnapshot,
    now_ms: int,
    left_s: float = ...,
    processor_s: float = ...,
) -> Proposal | NoBid:
    """Decide, within the time allowed, which bids to make; `now_ms` is UTC epoch time."""

@final
class BidEndpoint:
    """The bid endpoint of one SSP, which answers from its current snapshot and counts outcomes."""

    def __init__(
        self,
        ssp: str,
        snapshot: CatalogSnapshot,
        bidding: Bidding,
        request_stats: RequestStats,
    ) -> None: ...
    @property
    def snapshot(self) -> CatalogSnapshot: ...
    def __call__(self, headers: HeaderList, receive: Receive) -> BidCall:
        """Answer one request.

        Raises Problem to answer with an error, and Disconnected if the client disconnects first.
        """

    def use(self, snapshot: CatalogSnapshot) -> None:
        """Answer all further requests from this snapshot."""

    def no_bid(self, reason: Reason) -> Answer:
        """Count a request that was not admitted; return its answer, a 204."""

    def count_refusal(self, problem: Problem) -> None:
        """Count an error answer to a bid request of the SSP."""

@final
class BidCall(Coroutine[Any, Any, Answer]):
    """The coroutine that answers one bid request."""

    def __await__(self) -> Generator[Any, Any, Answer]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any: ...
    def close(self) -> None: ...
    def left_s(self) -> float:
        """Return the time left for the answer, in seconds."""
