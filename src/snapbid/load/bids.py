"""The bid requests of one phase: sent, judged when they are answered, entered into the books."""

from collections.abc import Mapping

from snapbid.load.auctions import Auction, Source
from snapbid.load.books import Account
from snapbid.load.check import Finding, check, read
from snapbid.load.client import Call, Client
from snapbid.load.notices import Notices
from snapbid.load.tally import BID, DROPPED, LOST, NO_BID, WRONG, Tally

SHOWN_BODY = 200  # bytes of an unexpected answer


class Bids:
    """Sends one phase's requests and hears what comes of them."""

    def __init__(
        self,
        client: Client,
        source: Source,
        tally: Tally,
        accounts: Mapping[str, Account],
        notices: Notices,
    ) -> None:
        self._client = client
        self._source = source
        self._accounts = accounts
        self._notices = notices
        self.tally = tally

    def send(self, due: float, now: float) -> None:
        auction, auction_id = self._source.next()
        self.tally.offer(due, now)
        wire = auction.before + auction_id.encode() + auction.after
        self._client.submit(Call(wire, due, self, (auction, auction_id)))

    def answered(self, call: Call, status: int, body: bytes, now: float) -> None:
        tally = self.tally
        if status == 204:
            kind = NO_BID
        elif status == 200:
            finding = self._judge(call, body, now)
            kind = WRONG if finding else BID
            if finding:
                tally.fail(finding)
        else:
            kind = f"status {status}"
            tally.fail(Finding(kind, body[:SHOWN_BODY].decode(errors="replace")))
        tally.end(call.due, now, kind)

    def _judge(self, call: Call, body: bytes, now: float) -> Finding | None:
        auction: Auction
        auction, auction_id = call.what
        account = self._accounts[auction.ssp]
        if auction.counts:
            account.bids += 1
        response = read(body)
        if isinstance(response, Finding):
            return response
        finding = check(response, auction_id, auction.expected)
        if finding is None and auction.counts and now - call.due <= self.tally.timeout_s:
            self._notices.plan(response, account, now)
        return finding

    def dropped(self, call: Call, now: float) -> None:
        self.tally.end(call.due, now, DROPPED)

    def lost(self, call: Call, now: float) -> None:
        auction: Auction = call.what[0]
        if auction.counts:
            self._accounts[auction.ssp].maybe_bids += 1
        self.tally.end(call.due, now, LOST)
