"""Group commit without a server: what is sent, and what becomes of those who wait."""

import asyncio
from struct import unpack_from
from typing import Any

import pytest
from redis.exceptions import RedisError, ResponseError

from snapbid.ledger.bids import shard
from snapbid.ledger.bids.clock import LedgerClock
from snapbid.ledger.bids.records import NOTICE, WIN, AnswerBids
from snapbid.ledger.bids.shard import GroupCommit, PendingHold, PendingNotice
from snapbid.ledger.budgets.limits import Limits

NOW_MS = 1_900_000_000_000
RECORD_AT, RECORD_SIZE = 18, 19
LIMITS = Limits(7, 1_000_000, None, None)


class Conversation:
    """A core for which the test plays Redis; time stands still until set."""

    def __init__(self) -> None:
        self.spooled: list[PendingNotice] = []
        self.is_spool_empty = True
        clock = LedgerClock(lambda: NOW_MS / 1000)
        self.core = GroupCommit(7200, 60, clock, self.spooled.append, lambda: self.is_spool_empty)
        self.core.token = "me"
        self.now = 100.0
        self.hold_clock = 5_000
        self.nearly_full = 0
        self.answers = 0

    def connect(self) -> list[str]:
        commands = self.core.connect(self.now)
        replies = [self.heartbeat(), *([1] * (len(commands) - 1))]
        self.core.begin(replies, self.now, self.now)
        return [command[0] for command in commands]

    def heartbeat(self) -> list[Any]:
        began = b"%d.000" % (NOW_MS // 1000)
        return [b"%d" % NOW_MS, b"%d" % self.hold_clock, began, b"e", self.nearly_full, 9, b"r"]

    def bid(self, *prices: int, limits: Limits | None = None, within_s: float = 1.0) -> Any:
        self.answers += 1
        auction = b"auction-%d" % self.answers
        bids = [(b"%d" % n, 7, price, limits) for n, price in enumerate(prices)]
        now = divmod(NOW_MS, 1000)
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        until = self.now + within_s
        answer = AnswerBids(auction, 3, bids, None, now, self.answers, False, done, until)
        return done if self.core.remember(answer) else None

    def notice(self, **more: Any) -> "asyncio.Future[str | None] | None":
        done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        packed = NOTICE.pack(WIN, 0, b"d" * 16, NOW_MS // 1000, 0, 0, 0)
        taken = self.core.settle(PendingNotice(packed, done, **more))
        return done if taken else None

    def hold(self, packed: bytes, *, ends: bool = False) -> "asyncio.Future[str] | None":
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return done if self.core.hold(PendingHold(packed, done, self.now + 1, ends)) else None

    def send(self) -> list[str]:
        self.sent, self.sent_at = self.core.next_batch(self.now), self.now
        return [command[0] for command in self.sent]

    def reply(self, *replies: Any) -> None:
        self.core.receive(list(replies), self.sent_at, self.now)

    def expire(self) -> None:
        self.core.expire(self.now, self.now - self.sent_at)


def identities(entries: bytes) -> list[int]:
    prices, at = [], 0
    while at < len(entries):
        prices.append(unpack_from("<I", entries, at + RECORD_AT + 14)[0])
        limited, size = entries[at] & 4, entries[at + RECORD_AT - 1]
        at += RECORD_AT + size
        if limited:
            at += 2 + unpack_from("<H", entries, at)[0]
    return prices


@pytest.fixture
async def talk() -> Conversation:
    talk = Conversation()
    assert talk.connect() == ["heartbeat"]
    return talk


async def test_waiting_requests_share_a_batch(talk: Conversation) -> None:
    bids, notice = [talk.bid(1), talk.bid(2, 3)], talk.notice()
    assert talk.send() == ["remember", "settle"]
    assert identities(talk.sent[0][6]) == [1, 2, 2]
    waiting = talk.bid(4)
    talk.reply(b"+", b"c")
    assert [bid.result() for bid in bids] == ["k", "kk"]
    assert notice is not None
    assert notice.result() == "c"
    assert talk.send() == ["remember"]
    talk.reply(b"+")
    assert waiting.result() == "k"


async def test_only_bids_with_limits_need_the_longer_script(talk: Conversation) -> None:
    plain, limited, other = talk.bid(1), talk.bid(1, 2, 3, limits=LIMITS), talk.bid(4)
    assert talk.send() == ["remember_limited"]
    talk.reply(b"+1b3c")
    assert [done.result() for done in (plain, limited, other)] == ["k", "bkc", "k"]


async def test_timed_out_requests_are_not_sent(talk: Conversation) -> None:
    gone, bid = talk.bid(1), talk.bid(2)
    gone.cancel()
    talk.send()
    assert identities(talk.sent[0][6]) == [2]
    talk.reply(b"+")
    assert bid.result() == "k"


async def test_the_end_of_a_hold_waits_for_the_connection(talk: Conversation) -> None:
    hold, end = talk.hold(b"hold"), talk.hold(b"end", ends=True)
    talk.send()
    talk.core.disconnect()
    assert hold is not None
    assert hold.result() == ""
    later = talk.hold(b"a later end", ends=True)
    talk.connect()
    assert talk.send() == ["hold"]
    assert talk.sent[0][3] == b"enda later end"
    talk.reply(b"kk")
    assert [each and each.result() for each in (end, later)] == ["k", "k"]


async def test_a_late_answer_is_rolled_back_alone(talk: Conversation) -> None:
    late = talk.bid(1, 2, 3, limits=LIMITS, within_s=0.1)
    bid = talk.bid(4)
    talk.send()
    talk.now += 0.2
    talk.expire()
    assert late.result() == ""
    talk.reply(b"+1b")
    assert bid.result() == "k"
    following = talk.bid(5)
    assert talk.send() == ["forget"]
    number, entries = talk.sent[0][3], talk.sent[0][4]
    assert number == 1
    assert identities(entries) == [1, 1], "those that were kept"
    assert [entries[0], entries[RECORD_AT + entries[RECORD_AT - 1]]] == [11, 10]
    talk.reply(1)
    assert not talk.core.unconfirmed
    assert talk.send() == ["remember"]
    talk.reply(b"+")
    assert following.result() == "k"


async def test_unconfirmed_batches_are_rolled_back_first(talk: Conversation) -> None:
    bid, waiting = talk.bid(1), talk.bid(2)
    talk.send()
    sent, waiting = talk.sent[0][6], talk.bid(3)
    talk.core.disconnect()
    assert (bid.result(), waiting.result()) == ("", "")
    (doubtful,) = talk.core.unconfirmed
    assert doubtful.entries == sent
    commands = talk.core.connect(talk.now)
    assert [command[0] for command in commands] == ["heartbeat", "forget"]
    talk.core.disconnect()
    assert talk.core.unconfirmed == [doubtful], "until Redis has acknowledged that"
    assert talk.connect() == ["heartbeat", "forget"]
    assert not talk.core.unconfirmed


async def test_notices_are_spooled_once(talk: Conversation) -> None:
    """Whatever happens before the spool has synced them."""
    spooled = [talk.notice(), talk.notice()]
    talk.send()
    waiting, from_spool = talk.notice(), talk.notice(from_spool=True)
    talk.core.expire(talk.now, shard.NOTICE_S + 0.01)
    talk.reply(b"cc")
    assert talk.send() == ["settle"]
    assert talk.sent[0][3] == NOTICE.pack(WIN, 0, b"d" * 16, NOW_MS // 1000, 0, 0, 0), "one"
    talk.core.expire(talk.now, shard.NOTICE_S + 0.01)
    talk.core.disconnect()
    assert [kept.done for kept in talk.spooled] == [*spooled, waiting]
    assert from_spool is not None
    assert from_spool.result() is None


async def test_a_rollback_queued_behind_one_under_way_is_sent(talk: Conversation) -> None:
    talk.bid(1)
    talk.send()
    talk.core.disconnect()
    (own,) = talk.core.unconfirmed
    talk.core.connect(talk.now)
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    talk.core.roll_back(shard.Rollback(own._replace(writer="gone", number=9), done))
    talk.core.begin([talk.heartbeat(), 1], talk.now, talk.now)
    assert not done.done()
    assert talk.send() == ["forget"]
    assert talk.sent[0][2:4] == ("gone", 9)
    talk.core.roll_back(shard.Rollback(own._replace(writer="another", number=3)))
    talk.reply(1)
    assert done.result()
    assert talk.send() == ["forget"]
    assert talk.sent[0][2] == "another"


async def test_an_error_leaves_the_batch_unconfirmed(talk: Conversation) -> None:
    for reply in (ResponseError("OOM"), 0):
        bid, notice = talk.bid(1), talk.notice()
        talk.send()
        with pytest.raises(RedisError):
            talk.reply(reply, b"c")
        talk.core.disconnect()
        assert bid.result() == ""
        assert len(talk.core.unconfirmed) == (reply != 0)
        assert notice is not None
        assert [kept.done for kept in talk.spooled] == [notice]
        talk.spooled.clear()
        talk.connect()


async def test_notices_go_to_the_spool_while_redis_does_not_answer(talk: Conversation) -> None:
    notice, from_spool = talk.notice(), talk.notice(from_spool=True)
    talk.send()
    waiting = talk.notice()
    talk.core.expire(talk.now, shard.NOTICE_S)
    assert not talk.spooled
    for later in range(1, 4):  # the spool has not synced them yet
        talk.core.expire(talk.now, shard.NOTICE_S + later / 100)
        assert [kept.done for kept in talk.spooled] == [notice, waiting]
    assert talk.notice() is None, "which its caller spools"
    assert notice is not None
    assert from_spool is not None
    notice.set_result("s")
    talk.reply(b"cc")
    assert (notice.result(), from_spool.result()) == ("s", "c")
    assert talk.notice() is not None


async def test_requests_beyond_the_bound_are_refused(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "MAX_WAITING", 3)
    assert [talk.bid(1) is None for _ in range(5)] == [False] * 3 + [True] * 2
    assert [talk.notice() is None for _ in range(5)] == [False] * 3 + [True] * 2


def settled_until(talk: Conversation) -> Any:
    """The mark that the next heartbeat reports."""
    talk.now += shard.HEARTBEAT_S
    assert "heartbeat" in talk.send()
    said = talk.sent[-1][4]
    talk.hold_clock += 250
    replies = [b"+" if name == "remember" else b"c" for name, *_ in talk.sent[:-1]]
    talk.reply(*replies, talk.heartbeat())
    return said


async def test_an_idle_process_has_settled_everything(talk: Conversation) -> None:
    assert [settled_until(talk) for _ in range(3)] == [5000, 5250, 5500]


async def test_a_busy_process_has_settled_earlier_requests(talk: Conversation) -> None:
    talk.notice()
    assert settled_until(talk) == ""
    talk.notice()
    assert settled_until(talk) == 5000
    talk.notice()
    assert settled_until(talk) == 5250


async def test_spooled_notices_hold_the_mark_back(talk: Conversation) -> None:
    assert settled_until(talk) == 5000
    talk.is_spool_empty = False
    assert [settled_until(talk) for _ in range(3)] == [5000] * 3
    talk.is_spool_empty = True
    assert settled_until(talk) == 5000 + 4 * 250


async def test_notices_beyond_a_batch_hold_the_mark_back(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "MAX_BATCH", 1)
    for _ in range(3):
        talk.notice()
    assert settled_until(talk) == ""
    assert settled_until(talk) == ""
    assert settled_until(talk) == ""
    assert settled_until(talk) == 5750


async def test_the_mark_belongs_to_one_connection(talk: Conversation) -> None:
    """Redis may have come back with other data."""
    assert settled_until(talk) == 5000
    talk.core.disconnect()
    (heartbeat,) = talk.core.connect(talk.now)
    assert heartbeat[4] == ""


async def test_nearly_full_redis_takes_only_notices(talk: Conversation) -> None:
    for talk.nearly_full in (1, 0):
        settled_until(talk)
        assert (talk.bid(1) is None) == talk.nearly_full
        assert talk.notice() is not None
