"""Group commit to one shard of the ledger, without I/O.

Bids and notices of concurrent requests share a batch: one script call for the bids and one for the
notices. `GroupCommit` decides what the next batch has, receives the replies, and resolves the
requests' futures; the engine of round trips (redisclient/trips.py) decides when, and does the I/O.

A batch without an acknowledgement is unconfirmed: it may have been applied, or may yet be. Its
requests were answered without a bid, so it is rolled back before anything else is sent, which also
keeps Redis from applying it later (forget.lua). The same goes for bids of an acknowledged batch
whose requests had timed out by then.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec
from redis.exceptions import RedisError

from snapbid.ledger.bids.batch import (
    KEPT,
    AnswerBids,
    BidBatch,
    counters,
    join,
    keep,
    kept_entries,
    verdicts,
)
from snapbid.ledger.bids.clock import LedgerClock
from snapbid.ledger.bids.segment import parse_time
from snapbid.redisclient.commits import Observe, unobserved
from snapbid.redisclient.replicas import Command
from snapbid.redisclient.replies import Pending, unanswered
from snapbid.redisclient.trips import Requests, expect

NOTICE_S: Final = 0.25  # without a reply, notices go to the spool
HEARTBEAT_S: Final = 0.25  # less than a beat (base/beat.py): one heartbeat is due at each beat
MAX_WAITING: Final = 20_000  # requests; more are refused
MAX_BATCH: Final = 2_000  # answers or notices in one script call: bounds how long Redis is busy


class PendingNotice(msgspec.Struct, frozen=True):
    """A notice waiting to be settled.

    `done` becomes a NoticeVerdict, or None if a notice from the spool could not be settled.
    `otherwise`: the shard and encoding of its alternative reading, spooled along with it.
    """

    packed: bytes
    done: "Pending[str | None]"
    from_spool: bool = False
    otherwise: tuple[int, bytes] | None = None


class PendingHold(msgspec.Struct, frozen=True):
    """A request to hold an impression of a capped user, or to end such a hold (hold.lua).

    `done` becomes a BidVerdict, or "" if it timed out. With `ends`, the request waits while Redis
    is unavailable.
    """

    packed: bytes
    done: "Pending[str]"
    deadline: float
    ends: bool = False


class Rollback(msgspec.Struct, frozen=True):
    """A batch to roll back; `done` becomes True once it is, False if the connection ends first."""

    batch: BidBatch
    done: "asyncio.Future[bool] | None" = None


class GroupCommit:
    """What one shard's round trips carry; all times are event loop times.

    A command is the name of a script and its arguments.

    `ttl_s`: how long a bid is remembered; `hold_s`: how long its cost is held. `to_spool` takes a
    notice that Redis has not settled in time; `is_spool_empty` returns whether all spooled notices
    are settled. `token`, if set, identifies this process among those whose notices holds wait for
    (clock.lua).
    """

    def __init__(
        self,
        ttl_s: int,
        hold_s: int,
        clock: LedgerClock,
        to_spool: Callable[[PendingNotice], None],
        is_spool_empty: Callable[[], bool] = lambda: True,
        observe: Observe = unobserved,
    ) -> None:
        self._ttl_s = ttl_s
        self._hold_s = hold_s
        self._clock = clock
        self._to_spool = to_spool
        self._is_spool_empty = is_spool_empty
        self._observe = observe
        self._writer = secrets.token_hex(8)
        self._batches = 0
        self._answers = Requests[AnswerBids]()
        self._notices = Requests[PendingNotice]()
        self._holds = Requests[PendingHold]()
        self._sent: list[Command] = []
        self._is_slow = False  # Redis is slow: notices go to the spool
        self._unconfirmed: BidBatch | None = None
        self._to_roll_back: list[Rollback] = []
        self._heartbeat_at = 0.0
        self._hold_clock: int | None = None  # from the last heartbeat
        self._sent_hold_clock: int | None = None  # the same, when the last batch was sent
        self._sent_all = False  # whether that batch took all waiting notices
        self._settled_until: int | None = None  # by the hold clock: all notices until then
        self.is_nearly_full = False  # Redis is nearly out of memory: it takes no bids
        self.batches = 0
        self.token = ""
        self.families = ""  # of SSPs, as remember.lua reads them
        self.epoch = ""  # of the data, from the last heartbeat
        self.given_up: list[str] = []  # tokens of processes for which Redis no longer waits

    # -- requests ---------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """The number of requests and rollbacks waiting to be sent."""
        requests = len(self._answers.waiting) + len(self._notices.waiting)
        return requests + len(self._holds.waiting) + len(self._to_roll_back)

    @property
    def unconfirmed(self) -> list[BidBatch]:
        """Own batches that may have been applied and are not rolled back yet."""
        doubtful = [entry.batch for entry in self._to_roll_back if entry.done is None]
        return doubtful if self._unconfirmed is None else [*doubtful, self._unconfirmed]

    @property
    def last_batch(self) -> int:
        """The number of the latest batch of bids sent."""
        return self._batches

    def is_certain(self, batch: int) -> bool:
        """Whether the outcome of this batch and of all before it is known."""
        return all(doubtful.number > batch for doubtful in self.unconfirmed)

    # Each of these returns how many requests of its kind are queued now, or 0 if it was refused:
    # Redis is nearly full or slow, or too many wait already.

    def remember(self, answer: AnswerBids) -> int:
        """Queue an answer's bids."""
        waiting = self._answers.waiting
        if self.is_nearly_full or len(waiting) >= MAX_WAITING:
            return 0
        waiting.append(answer)
        return len(waiting)

    def settle(self, notice: PendingNotice) -> int:
        """Queue a notice."""
        waiting = self._notices.waiting
        if self._is_slow or len(waiting) >= MAX_WAITING:
            return 0
        waiting.append(notice)
        return len(waiting)

    def hold(self, hold: PendingHold) -> int:
        """Queue a hold; ending one may wait while Redis is unavailable."""
        waiting = self._holds.waiting
        if len(waiting) >= MAX_WAITING:
            return 0
        waiting.append(hold)
        return len(waiting)

    def roll_back(self, entry: Rollback) -> None:
        """Queue the rollback of another process' batch."""
        self._to_roll_back.append(entry)

    def expire(self, now: float, waited_s: float) -> None:
        """Time out requests past their deadline.

        Notices have no deadline: if Redis does not answer, they go to the spool. `waited_s`: see
        TripUser.
        """
        for answer in self._answers:
            if answer.deadline <= now:
                answer.refuse()
        if waited_s > NOTICE_S:
            self._is_slow = True
            for notice in self._notices:
                if not notice.from_spool:
                    self._give_up(notice)
        for hold in self._holds:
            if hold.deadline <= now:
                _refuse(hold)

    def _give_up(self, notice: PendingNotice) -> None:
        if notice.done.done():
            return
        if notice.from_spool:
            notice.done.set_result(None)
        else:
            self._to_spool(notice)

    def is_due(self, now: float) -> bool:
        """Whether a heartbeat is due."""
        return now - self._heartbeat_at >= HEARTBEAT_S

    # -- round trips ------------------------------------------------------------------------------

    def connect(self, now: float) -> list[Command]:
        """Return the commands a new connection must have acknowledged before it takes requests."""
        return [self._heartbeat(now), *self._forget(now)]

    def begin(self, replies: list[Any], asked_at: float, now: float) -> None:
        """Handle the replies to `connect`."""
        heartbeat, *_ = [expect(reply) for reply in replies]
        self._take_heartbeat(heartbeat, asked_at, now)
        self._forgotten()

    def next_batch(self, now: float) -> list[Command]:
        """Return the commands of the next round trip; if nothing waits, a heartbeat."""
        self._sent = self._forget(now) if self._to_roll_back else self._requests(now)
        return self._sent

    def _requests(self, now: float) -> list[Command]:
        if not self._notices.waiting:
            self._note_settled(self._hold_clock)
        self._sent_hold_clock = self._hold_clock
        answers, notices = self._answers.take(MAX_BATCH), self._notices.take(MAX_BATCH)
        self._sent_all = not self._notices.waiting
        now_ms = self._clock.now_ms(now)
        commands: list[Command] = []
        if answers:
            commands.append(self._remember(answers, now_ms))
        if notices:
            packed = b"".join([notice.packed for notice in notices])
            commands.append(("settle", now_ms, self._ttl_s, packed))
        if self._holds.waiting:
            commands += self._hold(now_ms)
        if now - self._heartbeat_at >= HEARTBEAT_S or not commands:
            commands.append(self._heartbeat(now))
        return commands

    def _hold(self, now_ms: int) -> list[Command]:
        holds = self._holds.take(MAX_BATCH)
        packed = b"".join([hold.packed for hold in holds])
        return [("hold", now_ms, self._hold_s, packed)] if holds else []

    def _remember(self, answers: list[AnswerBids], now_ms: int) -> Command:
        self._batches += 1
        entries, limited = join(answers)
        self._unconfirmed = BidBatch(self._writer, self._batches, entries)
        name = "remember_limited" if limited else "remember"
        head = (name, now_ms, self._writer, self._batches, self._hold_s, self._ttl_s)
        return (*head, entries, self.families, *counters(answers))

    def _note_settled(self, until: int | None) -> None:
        """Note that all notices received until then are settled, unless some are spooled."""
        if until is not None and self._is_spool_empty():
            self._settled_until = until

    def _forget(self, now: float) -> list[Command]:
        now_ms = self._clock.now_ms(now)
        return [("forget", now_ms, *entry.batch) for entry in self._to_roll_back]

    def _heartbeat(self, now: float) -> Command:
        self._heartbeat_at = now
        until = "" if self._settled_until is None else self._settled_until
        return ("heartbeat", self._clock.now_ms(now), self._ttl_s, self.token, until)

    def receive(self, replies: list[Any], asked_at: float, now: float) -> None:
        """Handle the replies to the last round trip. Any exception ends the connection."""
        sent, self._sent, self._is_slow = self._sent, [], False
        bids, notices = len(self._answers.sent), len(self._notices.sent)
        for command, reply in zip(sent, replies, strict=True):
            match command[0]:
                case "remember" | "remember_limited":
                    self._accept(expect(reply))
                case "settle":
                    self._notices.resolve(expect(reply).decode())
                case "hold":
                    self._holds.resolve(expect(reply).decode())
                case "heartbeat":
                    self._take_heartbeat(expect(reply), asked_at, now)
                case _:
                    expect(reply)
        if sent[0][0] == "forget":
            self._forgotten()
        if bids or notices:
            self.batches += 1
            self._observe(bids, notices, now - asked_at)
            self._answers.sent = []
            if self._sent_all:
                self._note_settled(self._sent_hold_clock)

    def _accept(self, reply: Any) -> None:
        """Handle the verdicts on a batch of bids, which is confirmed by them."""
        batch, answers = self._unconfirmed, self._answers.sent
        assert batch is not None
        self._unconfirmed = None
        if not reply:
            raise RedisError("Redis refused a batch of bids")
        if reply == b"+":
            regretted = b"".join(
                [kept_entries(late, KEPT * late.bids) for late in keep(answers, KEPT)]
            )
        else:
            regretted = b"".join(
                [
                    kept_entries(answer, letters)
                    for answer, letters in zip(answers, verdicts(answers, reply[1:]), strict=True)
                    if not answer.accept(letters)
                ]
            )
        if regretted:
            self._to_roll_back.append(Rollback(batch._replace(entries=regretted)))

    def _forgotten(self) -> None:
        for entry in self._to_roll_back:
            if entry.done is not None and not entry.done.done():
                entry.done.set_result(True)
        self._to_roll_back = []

    def _take_heartbeat(self, reply: list[Any], asked_at: float, now: float) -> None:
        server_ms, hold_clock, began, epoch, nearly_full, *given_up = reply
        self.is_nearly_full = bool(nearly_full)
        self._clock.adjust(int(server_ms), asked_at, now)
        self._clock.run = parse_time((began or b"").decode())
        self.epoch = epoch.decode()
        self._hold_clock = int(hold_clock)
        self.given_up += [token.decode() for token in given_up]

    def disconnect(self) -> None:
        """Release all requests that wait on a lost connection, except those that end holds."""
        if self._unconfirmed is not None:
            self._to_roll_back.append(Rollback(self._unconfirmed))
            self._unconfirmed = None
        for entry in self._to_roll_back:
            if entry.done is not None and not entry.done.done():
                entry.done.set_result(False)
        self._to_roll_back = [entry for entry in self._to_roll_back if entry.done is None]
        for answer in self._answers.clear():
            answer.refuse()
        for notice in self._notices.clear():
            self._give_up(notice)
        holds = self._holds.clear()
        for hold in holds:
            if not hold.ends:
                _refuse(hold)
        self._holds.waiting = unanswered(holds)
        self._sent, self._is_slow = [], False
        self._hold_clock = self._settled_until = None  # the next data set may be another


def _refuse(hold: PendingHold) -> None:
    if not hold.done.done():
        hold.done.set_result("")
