"""Sends the bid requests of one phase, checks their answers and enters them in the accounts."""

from collections.abc import Mapping
from random import Random

from snapbid.load.accounts import Account
from snapbid.load.auctions import Auction, AuctionSource
from snapbid.load.check import BrokenRule, check, parse
from snapbid.load.client import Call, LoadClient
from snapbid.load.notice_sender import NoticeSender
from snapbid.load.tally import BID, DROPPED, LOST, NO_BID, REFUSED, WRONG, Tally

SHOWN_BODY = 200  # bytes of an unexpected answer


class BidSender:
    """Sends one phase's requests and records how each one ended."""

    def __init__(
        self,
        client: LoadClient,
        source: AuctionSource,
        tally: Tally,
        accounts: Mapping[str, Account],
        notices: NoticeSender,
        malformed: float,
        random: Random,
    ) -> None:
        self._client = client
        self._source = source
        self._accounts = accounts
        self._notices = notices
        self._malformed = malformed
        self._random = random
        self._unreadable = MalformedSender(tally)
        self.tally = tally

    def send(self, due: float, now: float) -> None:
        auction, auction_id = self._source.next()
        self.tally.offer(due, now)
        if self._malformed and self._random.random() < self._malformed:
            broken = auction.before + auction_id.encode() + auction.after[:-1] + b" "
            self._client.submit(Call(broken, due, self._unreadable, None))
            return
        wire = auction.before + auction_id.encode() + auction.after
        self._client.submit(Call(wire, due, self, (auction, auction_id)))

    def answered(self, call: Call, status: int, body: bytes, now: float) -> None:
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
        tally.end(call.due, now, kind)

    def _check(self, call: Call, body: bytes, now: float) -> BrokenRule | None:
        auction: Auction
        auction, auction_id = call.context
        account = self._accounts[auction.ssp]
        if auction.counts:
            account.bids += 1
        response = parse(body)
        if isinstance(response, BrokenRule):
            return response
        broken = check(response, auction_id, auction.limits)
        if broken is None and auction.counts and now - call.due <= self.tally.timeout_s:
            self._notices.plan(response, auction.limits, account, now)
        return broken

    def dropped(self, call: Call, now: float) -> None:
        self.tally.end(call.due, now, DROPPED)

    def lost(self, call: Call, now: float) -> None:
        auction: Auction = call.context[0]
        if auction.counts:
            self._accounts[auction.ssp].maybe_bids += 1
        self.tally.end(call.due, now, LOST)


class MalformedSender:
    """Records how requests ended whose JSON does not: they want status 400."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def answered(self, call: Call, status: int, body: bytes, now: float) -> None:
        if status != 400:
            detail = body[:SHOWN_BODY].decode(errors="replace")
            self._tally.fail(BrokenRule(f"status {status} for a malformed request", detail))
        self._tally.end(call.due, now, REFUSED if status == 400 else WRONG)

    def dropped(self, call: Call, now: float) -> None:
        self._tally.end(call.due, now, DROPPED)

    def lost(self, call: Call, now: float) -> None:
        self._tally.end(call.due, now, LOST)
