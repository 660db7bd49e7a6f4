"""Sends the bid requests of one phase, checks their answers and updates the accounts."""

from collections.abc import Mapping
from random import Random
from typing import Final

from snapbid.loadtest.accounts import Account
from snapbid.loadtest.auctions import Auction, AuctionSource
from snapbid.loadtest.check import BrokenRule, check, has_bid, parse
from snapbid.loadtest.client import Call, LoadClient, Manner
from snapbid.loadtest.notice_sender import NoticeSender
from snapbid.loadtest.plan import Faults
from snapbid.loadtest.tally import BID, DROPPED, LOST, NO_BID, REFUSED, SLOW, WRONG, Tally

SHOWN_BODY: Final = 200  # bytes of an unexpected answer


class BidSender:
    """Sends one phase's requests, a share of them faulty, and records how each one ended."""

    def __init__(
        self,
        client: LoadClient,
        source: AuctionSource,
        tally: Tally,
        accounts: Mapping[str, Account],
        notices: NoticeSender,
        faults: Faults,
        random: Random,
        *,
        ours: bool,
    ) -> None:
        self._client = client
        self._source = source
        self._accounts = accounts
        self._notices = notices
        self._faults = faults if faults != Faults() else None
        self._random = random
        self._ours = ours
        self.tally = tally

    def send(self, due: float, now: float) -> None:
        auction, auction_id = self._source.next()
        self.tally.offer(due, now)
        wire = auction.before + auction_id.encode() + auction.after
        self._client.submit(self._call(wire, due, (auction, auction_id)))

    def _call(self, wire: bytes, due: float, context: object) -> Call:
        """Build a request's call, and decide at random whether to make it faulty.

        Malformed requests, and those cut off halfway, have no context, since they can get no bid.
        """
        faults = self._faults
        if faults is None:
            return Call(wire, due, self, context)
        drawn = self._random.random()
        if drawn < faults.malformed:
            return Call(wire[:-1] + b" ", due, self, None)
        drawn -= faults.malformed
        if drawn < faults.hang_up:
            return Call(wire, due, self, None, Manner.CUT)
        slow = drawn - faults.hang_up < faults.slow
        return Call(wire, due, self, context, Manner.SLOW if slow else Manner.WHOLE)

    def answered(self, call: Call, status: int, body: bytes, now: float) -> None:
        try:
            if call.context is None:
                kind = self._judge_malformed(status, body)
            else:
                kind = self._judge(call, status, body, now)
        except Exception as error:  # else the request would stay open, and the run wait for ever
            kind = WRONG
            rule = f"cannot be checked ({type(error).__name__})"
            self.tally.fail(BrokenRule(rule, f"{error}: {_start(body)}"))
        if call.manner is Manner.SLOW and kind in (BID, NO_BID):
            kind = SLOW
        self.tally.end(call, now, kind)

    def _judge_malformed(self, status: int, body: bytes) -> str:
        if status == 400:
            return REFUSED
        self.tally.fail(BrokenRule(f"status {status} for a malformed request", _start(body)))
        return WRONG

    def _judge(self, call: Call, status: int, body: bytes, now: float) -> str:
        """Check an answer; return the kind of its outcome (see `tally`)."""
        tally = self.tally
        if status == 204:
            kind = NO_BID
        elif status == 200:
            kind = self._check(call, body, now)
        else:
            kind = f"status {status}"
            tally.fail(BrokenRule(kind, _start(body)))
        return kind

    def _check(self, call: Call, body: bytes, now: float) -> str:
        """Check an answer with a body; return the kind of its outcome."""
        auction: Auction
        auction, auction_id = call.context
        account = self._accounts[auction.ssp]
        if auction.counts:
            account.bids += 1
        response = parse(body, ours=self._ours)
        if isinstance(response, BrokenRule):
            self.tally.fail(response)
            return WRONG
        if broken := check(response, auction_id, auction.limits, ours=self._ours):
            self.tally.fail(broken)
            return WRONG
        took_s = now - call.due
        if auction.counts and took_s <= self.tally.timeout_s:
            self._notices.plan(response, auction.limits, account, now)
        if not has_bid(response):
            return NO_BID
        self.tally.late += auction.limits.tmax_s < took_s <= self.tally.timeout_s
        return BID

    def dropped(self, call: Call, now: float) -> None:
        self.tally.end(call, now, DROPPED)

    def lost(self, call: Call, now: float) -> None:
        if call.manner is Manner.CUT:
            self.tally.hang_up()
            return
        if call.context is not None:
            auction: Auction = call.context[0]
            if auction.counts:
                self._accounts[auction.ssp].maybe_bids += 1
        self.tally.end(call, now, LOST)


def _start(body: bytes) -> str:
    return body[:SHOWN_BODY].decode(errors="replace")
