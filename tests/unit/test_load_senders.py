"""How the senders of the load test judge the answers to what they send."""

import json
from typing import Any

import pytest

from snapbid.bidding.request import decode
from snapbid.loadtest import bid_sender
from snapbid.loadtest.accounts import Account
from snapbid.loadtest.auctions import Auction
from snapbid.loadtest.bid_sender import BidSender
from snapbid.loadtest.check import ReceivedBid, ReceivedResponse, ReceivedSeatBid, request_limits
from snapbid.loadtest.client import Call
from snapbid.loadtest.event_sender import EventSender
from snapbid.loadtest.notice_sender import Delay, NoticeHabits, NoticeSender
from snapbid.loadtest.plan import Faults
from snapbid.loadtest.tally import WRONG, Tally
from snapbid.reference import rates

AT_ONCE = Delay(0.0, 0.0)
LIMITS = request_limits(
    decode(json.dumps({"id": "a", "imp": [{"id": "1", "banner": {}}]}).encode()), rates.load()
)


class Calls:
    """A client that keeps what it should send."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def submit(self, call: Call) -> None:
        self.calls.append(call)


def notices(**bid: Any) -> tuple[NoticeSender, Account, list[Call]]:
    """A sender that has fired all notices of a bid that won and was billed, at 1 s."""
    calls, account = Calls(), Account()
    client: Any = calls
    habits = NoticeHabits(1.0, 1.0, 0.0, AT_ONCE, AT_ONCE, AT_ONCE)
    sender = NoticeSender(client, habits, 1, timeout_s=1.0)
    made = ReceivedBid(id="1", impid="1", price=1.0, **bid)
    response = ReceivedResponse(id="a", seatbid=[ReceivedSeatBid(bid=[made])])
    sender.plan(response, LIMITS, account, 1.0)
    sender.fire(1.0, 10)
    return sender, account, calls.calls


def test_a_notice_answered_after_the_timeout_has_failed_but_counts() -> None:
    sender, account, (win, bill) = notices(nurl="http://a/win", burl="http://a/bill")
    sender.answered(win, 200, b"", 2.5)
    sender.answered(bill, 200, b"", 1.5)
    assert sender.counts.failed == {"win": 1}
    assert sender.counts.example == "win: answer after 1.50 s to http://a/win"
    assert (account.wins, account.imps, sender.open) == (1, 1, 0)


@pytest.mark.parametrize(
    ("url", "sent", "host"),
    [
        ("http://[/rtb/win?id=a", "GET /rtb/win?id=a HTTP/1.1\r\nHost: [\r\n\r\n", "["),
        ("http://a:1?x=/y", "GET /?x=/y HTTP/1.1\r\nHost: a:1\r\n\r\n", "a:1"),
    ],
)
def test_a_notification_url_that_is_malformed_or_has_no_path(
    url: str, sent: str, host: str
) -> None:
    """An exception on the schedule would end it, and the run would wait for ever."""
    sender, _, (win, _) = notices(nurl=url, burl=url)
    assert win.wire.decode() == sent
    assert sender.counts.elsewhere("127.0.0.1:80") == host


@pytest.mark.parametrize(
    ("status", "body", "accepted", "failed"),
    [
        (202, b'{"count":3}', 3, 0),
        (202, b'{"count":0}', 0, 1),
        (202, b'{"count":1,"rejected":2,"errors":[]}', 1, 1),
        (202, b'{"count":3,"x":' + b"[" * 100_000, 0, 1),
        (202, b"", 0, 1),
        (200, b'{"count":3}', 0, 1),
    ],
)
def test_a_batch_fails_unless_all_its_events_are_accepted(
    status: int, body: bytes, accepted: int, failed: int
) -> None:
    calls = Calls()
    client: Any = calls
    sender = EventSender(client, "127.0.0.1", "key", size=3, rate=1.0, seed=1)
    sender.due = 1.0
    sender.send(1.0)
    sender.answered(calls.calls[0], status, body, 1.1)
    counts = sender.counts
    assert (counts.accepted, counts.failed, sender.open) == (accepted, failed, 0)
    assert counts.example.startswith(f"status {status}: " if failed else "")


def test_an_answer_whose_check_fails_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request would never end, and the run wait for it for ever."""

    def check(*_: Any, **__: Any) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(bid_sender, "check", check)
    nobody: Any = None
    tally, account = Tally(start=0.0, until=9.0, timeout_s=1.0), Account()
    auction = Auction(b"", b"", "acme", LIMITS, counts=True)
    sender = BidSender(
        nobody, nobody, tally, {"acme": account}, nobody, Faults(), nobody, ours=False
    )
    body = b'{"id":"a","seatbid":[]}'
    for due in (1.0, 2.0):
        tally.offer(due, due)
        sender.answered(Call(b"", due, sender, (auction, "a")), 200, body, due)
    assert (tally.pending, tally.kinds, account.bids) == (0, {WRONG: 2}, 2)
    assert tally.failures == {"cannot be checked (OverflowError)": 2}
    assert list(tally.examples.values()) == ['too large: {"id":"a","seatbid":[]}']
