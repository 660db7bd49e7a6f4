"""Fires win, billing and loss notices at given rates and delays, as SSPs do (document 2, Events).

The auction among bidders is simulated: bids win at one rate, wins are billed at another, and a
share of the other bids gets a loss notice. All notices are sent to the target's address. Snapbid's
URLs may name another host; URLs of other bidders are fired only if they name the target.
"""

import heapq
import re
from collections import Counter
from random import Random
from string import punctuation
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from msgspec import Struct, field

from snapbid.loadtest.accounts import Account
from snapbid.loadtest.check import ReceivedResponse, RequestLimits, cost_micros
from snapbid.loadtest.client import Call, LoadClient
from snapbid.loadtest.histogram import LatencyHistogram

PORTS: Final = {"http": 80, "https": 443}
WIN, BILL, LOSS = "win", "bill", "loss"
# OpenRTB 2.5, 5.25: mostly lost to a higher bid. None rejects the creative (200 and above), which
# would suspend it at the SSP for a day after the test.
REASONS: Final = ("102", "102", "102", "102", "102", "102", "100", "1", "2", "8")


class Delay(NamedTuple):
    """A delay in seconds, drawn uniformly between two bounds."""

    least: float
    most: float


class NoticeHabits(NamedTuple):
    """Rates, 0 to 1, and delays of notices; the billing delay starts at the win."""

    win: float
    bill: float
    loss: float
    win_delay: Delay
    bill_delay: Delay
    loss_delay: Delay


class PlannedNotice(NamedTuple):
    """A notice to fire, and the SSP's account that counts it."""

    kind: str
    url: str
    account: Account
    cost_micros: int = 0  # the lower bound of `check.cost_micros`
    doubt_micros: int = 0  # the upper bound minus the lower


class NoticeCounts(Struct):
    """Notices fired and failed, by kind; the first failure, and the URL of the first notice."""

    fired: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    histogram: LatencyHistogram = field(default_factory=LatencyHistogram)
    example: str = ""
    first_url: str = ""
    left_out: int = 0  # because their URLs name a host other than the target

    def __iadd__(self, other: "NoticeCounts") -> "NoticeCounts":
        """Add the counts of another generator."""
        self.fired += other.fired
        self.failed += other.failed
        self.histogram.add(other.histogram)
        self.example = self.example or other.example
        self.first_url = self.first_url or other.first_url
        self.left_out += other.left_out
        return self

    def elsewhere(self, authority: str) -> str:
        """Return the host and port of notification URLs; "" if these lead to `authority`."""
        if _address(self.first_url) == _address(f"http://{authority}"):
            return ""
        return _split(self.first_url)[0]


class NoticeSender:
    """Plans and fires the notices of received bids; `open` counts notices not yet answered.

    A notice answered more than `timeout_s` after it was due counts as failed, but its win or
    impression is still expected in the report. If `only` is given (HOST:PORT), only notices whose
    URLs name that host and port are fired.
    """

    def __init__(
        self,
        client: LoadClient,
        habits: NoticeHabits,
        seed: int,
        timeout_s: float,
        only: str = "",
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._only = _address(f"http://{only}") if only else None
        self._habits = habits
        self._random = Random(seed)
        self._waiting: list[tuple[float, int, PlannedNotice]] = []
        self._number = 0
        self.counts = NoticeCounts()
        self.open = 0

    def plan(
        self, response: ReceivedResponse, limits: RequestLimits, account: Account, now: float
    ) -> None:
        """Decide at random which notices each bid gets, and schedule them."""
        habits, random = self._habits, self._random.random
        for seatbid in response.seatbid:
            for bid in seatbid.bid:
                if random() < habits.win:
                    at = now + self._draw(habits.win_delay)
                    least, most = cost_micros(bid, limits)
                    url = bid.nurl.replace("${AUCTION_PRICE}", f"{bid.price}")
                    self._push(at, PlannedNotice(WIN, url, account, least, most - least))
                    if random() < habits.bill:
                        at += self._draw(habits.bill_delay)
                        url = bid.burl.replace("${AUCTION_PRICE}", f"{bid.price}")
                        self._push(at, PlannedNotice(BILL, url, account))
                elif random() < habits.loss:
                    url = bid.lurl.replace("${AUCTION_LOSS}", self._random.choice(REASONS))
                    at = now + self._draw(habits.loss_delay)
                    self._push(at, PlannedNotice(LOSS, url, account))

    def _draw(self, delay: Delay) -> float:
        return delay.least + (delay.most - delay.least) * self._random.random()

    def _push(self, at: float, notice: PlannedNotice) -> None:
        if self._only and _address(notice.url) != self._only:
            self.counts.left_out += bool(notice.url)
            return
        self.counts.first_url = self.counts.first_url or notice.url
        self._number += 1
        self.open += 1
        heapq.heappush(self._waiting, (at, self._number, notice))

    def fire(self, now: float, most: int) -> float | None:
        """Fire up to `most` due notices; return when the next is due, None if no notice is left."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now and most:
            due, _, notice = heapq.heappop(waiting)
            self.counts.fired[notice.kind] += 1
            self._client.submit(Call(_wire(notice.url), due, self, notice))
            most -= 1
        return waiting[0][0] if waiting else None

    # -- answers ---------------------------------------------------------------------------------

    def answered(self, call: Call, status: int, body: bytes, now: float) -> None:
        notice: PlannedNotice = call.context
        took_s = now - call.due
        self.open -= 1
        self.counts.histogram.record(took_s)
        if status != 200 and not (self._only and 200 <= status < 300):
            self._fail(notice, f"status {status} to {notice.url}")
            return
        if took_s > self._timeout_s:
            self._fail(notice, f"answer after {took_s:.2f} s to {notice.url}")
        account = notice.account
        if notice.kind == WIN:
            account.wins += 1
            account.cpm_micros += notice.cost_micros
            account.maybe_cpm_micros += notice.doubt_micros
        elif notice.kind == BILL:
            account.imps += 1

    def dropped(self, call: Call, now: float) -> None:
        self.open -= 1
        self.counts.histogram.record(now - call.due)
        notice: PlannedNotice = call.context
        self._fail(notice, f"no connection was free in time for {notice.url}")

    def lost(self, call: Call, now: float) -> None:
        notice: PlannedNotice = call.context
        self.open -= 1
        self.counts.histogram.record(now - call.due)
        account = notice.account
        if notice.kind == WIN:
            account.maybe_wins += 1
            account.maybe_cpm_micros += notice.cost_micros + notice.doubt_micros
        elif notice.kind == BILL:
            account.maybe_imps += 1
        self._fail(notice, f"no answer to {notice.url}")

    def _fail(self, notice: PlannedNotice, why: str) -> None:
        self.counts.failed[notice.kind] += 1
        self.counts.example = self.counts.example or f"{notice.kind}: {why}"


def _address(url: str) -> tuple[str | None, int] | None:
    """Return the host and port that a URL names; None if it is malformed."""
    try:
        parts = urlsplit(url)
        return parts.hostname, parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        return None


def _wire(url: str) -> bytes:
    """Encode a GET request for a URL (RFC 9112, 3.2.1)."""
    authority, path = _split(url)
    path = quote(path, safe=punctuation)
    return f"GET {path} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()


def _split(url: str) -> tuple[str, str]:
    """Split a URL, even a malformed one, into `host:port`, and the path with the query."""
    after_scheme = url.partition("://")[2].partition("#")[0]
    authority = re.split("[/?]", after_scheme, maxsplit=1)[0]
    path = after_scheme.removeprefix(authority)
    return authority, path if path.startswith("/") else f"/{path}"
