"""Requests that a scenario makes faulty on purpose, and how each may end.

Faulty requests count under separate kinds (see `tally`), not in the bid rate.
"""

from collections.abc import Callable
from random import Random
from typing import Annotated

from msgspec import Meta, Struct

from snapbid.loadtest.check import BrokenRule
from snapbid.loadtest.client import Call, CallListener, Manner
from snapbid.loadtest.tally import BID, DROPPED, LOST, NO_BID, REFUSED, SLOW, WRONG, Tally

SHOWN_BODY = 200  # bytes of an unexpected answer
Share = Annotated[float, Meta(ge=0, le=1)]
Judge = Callable[[Call, int, bytes, float], str]


class Faults(Struct, frozen=True, forbid_unknown_fields=True):
    """The shares of faulty requests.

    `malformed` requests have truncated JSON, and should get a 400. The second half of a `slow`
    request is sent a second after the first. A `hang_up` closes the connection in the middle of the
    request.
    """

    malformed: Share = 0.0
    slow: Share = 0.0
    hang_up: Share = 0.0

    def __post_init__(self) -> None:
        if self.malformed + self.slow + self.hang_up > 1:
            raise ValueError("the shares of faults must add up to at most 1")


class FaultMaker:
    """Makes a share of one phase's requests faulty."""

    def __init__(self, faults: Faults, tally: Tally, random: Random) -> None:
        self._faults = faults
        self._tally = tally
        self._random = random
        self._malformed = MalformedListener(tally)
        self._hung_up = HungUpListener(tally)

    def call(
        self, wire: bytes, due: float, bids: CallListener, judge: Judge, context: object
    ) -> Call | None:
        """Return a faulty call to send in place of a request, or None to send the request as it is.

        `bids` is notified of slow requests that end without an answer.
        """
        faults, drawn = self._faults, self._random.random()
        if drawn < faults.malformed:
            return Call(wire[:-1] + b" ", due, self._malformed, None)
        drawn -= faults.malformed
        if drawn < faults.hang_up:
            return Call(wire, due, self._hung_up, None, Manner.CUT)
        if drawn - faults.hang_up < faults.slow:
            return Call(wire, due, SlowListener(self._tally, bids, judge), context, Manner.SLOW)
        return None


class MalformedListener:
    """Records how requests with truncated JSON ended; each should get a 400."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def answered(self, call: Call, status: int, body: bytes, now: float) -> None:
        if status != 400:
            detail = body[:SHOWN_BODY].decode(errors="replace")
            self._tally.fail(BrokenRule(f"status {status} for a malformed request", detail))
        self._tally.end(call, now, REFUSED if status == 400 else WRONG)

    def dropped(self, call: Call, now: float) -> None:
        self._tally.end(call, now, DROPPED)

    def lost(self, call: Call, now: float) -> None:
        self._tally.end(call, now, LOST)


class HungUpListener(MalformedListener):
    """Records requests whose connection the client closed; no answer is expected."""

    def lost(self, call: Call, now: float) -> None:
        self._tally.hang_up()


class SlowListener:
    """Records requests sent in two halves; latency counts from when the second half was due."""

    def __init__(self, tally: Tally, bids: CallListener, judge: Judge) -> None:
        self._tally = tally
        self._judge = judge
        self.dropped, self.lost = bids.dropped, bids.lost

    def answered(self, call: Call, status: int, body: bytes, now: float) -> None:
        kind = self._judge(call, status, body, now)
        self._tally.end(call, now, SLOW if kind in (BID, NO_BID) else kind)
