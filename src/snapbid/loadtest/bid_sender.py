"""Sends the bid requests of one phase, checks their answers and updates the accounts."""

from collections.abc import Mapping
from random import Random

from snapbid.loadtest.accounts import Account
from snapbid.loadtest.auctions import Auction, AuctionSource
from snapbid.loadtest.check import BrokenRule, check, parse
from snapbid.loadtest.client import Call, LoadClient
from snapbid.loadtest.faults import SHOWN_BODY, FaultMaker, Faults
from snapbid.loadtest.notice_sender import NoticeSender
from snapbid.loadtest.tally import BID, DROPPED, LOST, NO_BID, WRONG, Tally


class BidSender:
    """Sends one phase's requests and records how each one ended."""

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
        self._faults = FaultMaker(faults, tally, random) if faults != Faults() else None
        self._ours = ours
        self.tally = tally

    def send(self, due: float, now: float) -> None:
        auction, auction_id = self._source.next()
        self.tally.offer(due, now)
        wire, context = auction.before + auction_id.encode() + auction.after, (auction, auction_id)
        faulty = self._faults and self._faults.call(wire, due, self, self._judge, context)
        self._client.submit(faulty or Call(wire, due, self, context))

    def answered(self, call: Call, status: int, body: bytes, now: float) -> None:
        self.tally.end(call, now, self._judge(call, status, body, now))

    def _judge(self, call: Call, status: int, body: bytes, now: float) -> str:
        """Check an answer; return the kind under which its request counts."""
        tally = self.tally
        if status == 204:
            kind = NO_BID
        elif status == 200:
            broken = self._check(call, body, now)
            kind = WRONG if broken else BID
            if broken:
                tally.fail(broken)
        else:
            kind = f"status {status}"
            tally.fail(BrokenRule(kind, body[:SHOWN_BODY].decode(errors="replace")))
        return kind

    def _check(self, call: Call, body: bytes, now: float) -> BrokenRule | None:
        auction: Auction
        auction, auction_id = call.context
        account = self._accounts[auction.ssp]
        if auction.counts:
            account.bids += 1
        response = parse(body, ours=self._ours)
        if isinstance(response, BrokenRule):
            return response
        broken = check(response, auction_id, auction.limits, ours=self._ours)
        if broken is None and auction.counts and now - call.due <= self.tally.timeout_s:
            self._notices.plan(response, auction.limits, account, now)
        return broken

    def dropped(self, call: Call, now: float) -> None:
        self.tally.end(call, now, DROPPED)

    def lost(self, call: Call, now: float) -> None:
        auction: Auction = call.context[0]
        if auction.counts:
            self._accounts[auction.ssp].maybe_bids += 1
        self.tally.end(call, now, LOST)
