"""One shard of the ledger: its batches of bids and notices, and its connection.

Bids and notices of concurrent requests share a batch: one script call for the bids and one for the
notices. `GroupCommit` decides, without I/O, what goes into the next batch, receives the replies,
and resolves the requests' futures; the engine of round trips (redisclient/trips.py) decides when to
send, and does the I/O. `LedgerShard` connects the two: it loads the scripts, and checks that the
ledger is the right one. Heartbeats on an idle connection reveal its loss before a bid needs it.

A batch without an acknowledgement is unconfirmed: it may have been applied, or may yet be. Its
requests were answered without a bid, so it is rolled back before anything else is sent, which also
keeps Redis from applying it later (forget.lua). If a request times out before its batch is
acknowledged, its bids are also rolled back.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.bids.clock import LedgerClock
from snapbid.ledger.bids.records import (
    KEPT,
    AnswerBids,
    BidBatch,
    LedgerBid,
    Verdicts,
    counters,
    join,
    keep,
    kept_entries,
    verdicts,
)
from snapbid.ledger.bids.segment import FormerLedger, ShardState, parse_time
from snapbid.ledger.scripts import of_worker
from snapbid.metrics import Metrics
from snapbid.redisclient.connection import Connector
from snapbid.redisclient.replicas import Command
from snapbid.redisclient.trips import (
    Pending,
    Reply,
    Requests,
    RoundTrips,
    expect,
    unanswered,
)

STALL_S: Final = 1.0  # without a reply, the connection is closed
NOTICE_S: Final = 0.25  # without a reply, notices go to the spool
HEARTBEAT_S: Final = 0.25  # less than a beat (base/beat.py): a heartbeat is due at each beat
MAX_WAITING: Final = 20_000  # requests; further ones are refused
MAX_BATCH: Final = 2_000  # answers or notices in a script call, so as not to block Redis for long

_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2000)
_SECONDS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)

Observe: TypeAlias = Callable[[int, int, float], None]

logger = logging.getLogger(__name__)


def observer_of(metrics: Metrics) -> Observe:
    """Return a function that records each round trip in the metrics.

    The function takes the number of answers with bids, the number of notices, and the duration (s).
    """
    name = "snapbid_commit_batch_size"
    of_bids = metrics.histogram(name, _SIZES, of="bids")
    of_notices = metrics.histogram(name, _SIZES, of="notices")
    took = metrics.histogram("snapbid_commit_seconds", _SECONDS)

    def observe(bids: int, notices: int, seconds: float) -> None:
        if bids:
            of_bids.observe(bids)
        if notices:
            of_notices.observe(notices)
        took.observe(seconds)

    return observe


def unobserved(bids: int, notices: int, seconds: float) -> None:
    """Ignore a round trip, for callers without metrics."""


# -- batches --------------------------------------------------------------------------------------


class PendingNotice(msgspec.Struct, frozen=True):
    """A notice waiting to be settled.

    `done` becomes a NoticeVerdict, or None if a spooled notice could not be settled. `otherwise`:
    the shard and the encoding of an alternative notice, with the ids that result from decoding the
    URL once more (Ledger.settle). If this notice is spooled, so is the alternative.
    """

    packed: bytes
    done: "Pending[str | None]"
    from_spool: bool = False
    otherwise: tuple[int, bytes] | None = None


class PendingHold(msgspec.Struct, frozen=True):
    """A request to hold an impression of a capped user or, with `ends`, to end a hold (hold.lua).

    `done` is resolved with a BidVerdict, or with "" on a timeout or a lost connection. Requests to
    end a hold wait while Redis is unavailable.
    """

    packed: bytes
    done: "Pending[str]"
    deadline: float
    ends: bool = False


class Rollback(msgspec.Struct, frozen=True):
    """A batch to roll back; `done`: True once it is rolled back, False if the connection ends."""

    batch: BidBatch
    done: "asyncio.Future[bool] | None" = None


class GroupCommit:
    """The queues of requests to a shard, which fill its batches and handle the replies.

    LedgerShard sends the batches, whose commands are names of scripts with arguments. All times are
    event loop times.

    `ttl_s`: how long a bid is remembered; `hold_s`: how long its cost is held. `to_spool` takes a
    notice that Redis has not settled in time; `is_spool_empty` returns whether all spooled notices
    are settled. `token`, if set, identifies this process in the ledger: no hold ends while a notice
    of its bid may be waiting in this process (clock.lua).
    """

    def __init__(
        self,
        ttl_s: int,
        hold_s: int,
        clock: LedgerClock,
        to_spool: Callable[[PendingNotice], None],
        is_spool_empty: Callable[[], bool],
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
        self._is_slow = False  # Redis is slow, so notices go to the spool
        self._unconfirmed: BidBatch | None = None
        self._to_roll_back: list[Rollback] = []
        self._sent_rollbacks = 0  # how many of these the current round trip has
        self._heartbeat_at = 0.0
        self._hold_clock: int | None = None  # from the last heartbeat
        self._sent_hold_clock: int | None = None  # the same, when the last batch was sent
        self._sent_all = False  # whether that batch took all waiting notices
        self._settled_until: int | None = None  # hold clock: all earlier notices are settled
        self.is_nearly_full = False  # Redis is nearly out of memory, so bids are refused
        self.token = ""
        self.warehouse = self.families = ""  # as remember.lua reads them
        self.epoch = ""  # of the data, from the last heartbeat
        # The last acknowledged heartbeat: its number, the primary (replication id), when (its ms).
        self._acknowledged: tuple[int, bytes, int] = (0, b"", 0)
        self.given_up: list[str] = []  # tokens of processes that holds no longer wait for

    # -- requests ---------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """The number of requests and rollbacks waiting to be sent."""
        requests = len(self._answers.waiting) + len(self._notices.waiting)
        return requests + len(self._holds.waiting) + len(self._to_roll_back)

    @property
    def unconfirmed(self) -> list[BidBatch]:
        """Batches of this process that may have been applied and are not yet rolled back."""
        doubtful = [entry.batch for entry in self._to_roll_back if entry.done is None]
        return doubtful if self._unconfirmed is None else [*doubtful, self._unconfirmed]

    @property
    def last_batch(self) -> int:
        """The number of the latest batch of bids sent."""
        return self._batches

    def is_certain(self, batch: int) -> bool:
        """Whether a batch and all earlier ones were acknowledged or rolled back."""
        return all(doubtful.number > batch for doubtful in self.unconfirmed)

    def remember(self, answer: AnswerBids) -> int:
        """Queue an answer's bids or refuse them; return how many answers wait, 0 if refused."""
        waiting = self._answers.waiting
        if self.is_nearly_full or len(waiting) >= MAX_WAITING:
            return 0
        waiting.append(answer)
        return len(waiting)

    def settle(self, notice: PendingNotice) -> int:
        """Queue a notice; return how many notices are queued, or 0 if the notice is refused."""
        waiting = self._notices.waiting
        if self._is_slow or len(waiting) >= MAX_WAITING:
            return 0
        waiting.append(notice)
        return len(waiting)

    def hold(self, hold: PendingHold) -> int:
        """Queue a hold, or a hold's end; return the queue's length, or 0 if the queue is full."""
        waiting = self._holds.waiting
        if len(waiting) >= MAX_WAITING:
            return 0
        waiting.append(hold)
        return len(waiting)

    def roll_back(self, entry: Rollback) -> None:
        """Queue the rollback of a batch that another process sent."""
        self._to_roll_back.append(entry)

    def expire(self, now: float, waited_s: float) -> None:
        """Time out requests past their deadline.

        Notices have no deadline: if Redis does not answer, they go to the spool. `waited_s`: see
        TripUser.
        """
        for answer in self._answers:
            if answer.deadline <= now:
                answer.refuse()
        if waited_s > NOTICE_S and not self._is_slow:
            self._is_slow = True  # until the next reply; takes no notices meanwhile
            for notice in self._notices:
                if not notice.from_spool:
                    self._to_spool(notice)
            self._notices.waiting = [each for each in self._notices.waiting if each.from_spool]
        for hold in self._holds:
            if hold.deadline <= now:
                _refuse(hold)

    def is_due(self, now: float) -> bool:
        """Whether a heartbeat is due."""
        return now - self._heartbeat_at >= HEARTBEAT_S

    # -- round trips ------------------------------------------------------------------------------

    def connect(self, now: float) -> list[Command]:
        """Return the commands to send over a new connection before it takes requests."""
        return [self._heartbeat(now), *self._forget(now)]

    def begin(self, replies: list[Any], asked_at: float, now: float) -> None:
        """Handle the replies to the commands of `connect`."""
        heartbeat, *_ = [expect(reply) for reply in replies]
        self._take_heartbeat(heartbeat, asked_at, now)
        self._forgotten()

    def next_batch(self, now: float) -> list[Command]:
        """Return the commands of the next round trip; if nothing is waiting, only a heartbeat."""
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
        return (*head, entries, f"{self.warehouse} {self.families}", *counters(answers))

    def _note_settled(self, until: int | None) -> None:
        """Record that notices up to `until` (hold clock) are settled, unless some are spooled."""
        if until is not None and self._is_spool_empty():
            self._settled_until = until

    def _forget(self, now: float) -> list[Command]:
        now_ms, self._sent_rollbacks = self._clock.now_ms(now), len(self._to_roll_back)
        return [("forget", now_ms, *entry.batch) for entry in self._to_roll_back]

    def _heartbeat(self, now: float) -> Command:
        self._heartbeat_at = now
        until = "" if self._settled_until is None else self._settled_until
        head = ("heartbeat", self._clock.now_ms(now), self._ttl_s, self.token, until)
        return (*head, *self._acknowledged)

    def receive(self, replies: list[Any], asked_at: float, now: float) -> None:
        """Handle the replies to the last round trip. If this raises, the connection is closed."""
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
            self._observe(bids, notices, now - asked_at)
            self._answers.sent = []
            if self._sent_all:
                self._note_settled(self._sent_hold_clock)

    def _accept(self, reply: Any) -> None:
        """Handle the reply to a batch of bids, which acknowledges it and contains the verdicts."""
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
        for entry in self._to_roll_back[: self._sent_rollbacks]:
            if entry.done is not None and not entry.done.done():
                entry.done.set_result(True)
        del self._to_roll_back[: self._sent_rollbacks]

    def _take_heartbeat(self, reply: list[Any], asked_at: float, now: float) -> None:
        server_ms, hold_clock, began, epoch, nearly_full, number, primary, *given_up = reply
        self._acknowledged = number, primary, int(server_ms)
        self.is_nearly_full = bool(nearly_full)
        self._clock.adjust(int(server_ms), asked_at, now)
        self._clock.run = parse_time((began or b"").decode())
        self.epoch = epoch.decode()
        self._hold_clock = int(hold_clock)
        self.given_up += [token.decode() for token in given_up]

    def disconnect(self) -> None:
        """Handle the loss of the connection.

        Refuse bids and holds, spool notices, and have an unconfirmed batch rolled back. Requests
        that end holds keep waiting.
        """
        if self._unconfirmed is not None:
            self._to_roll_back.append(Rollback(self._unconfirmed))
            self._unconfirmed = None
        for entry in self._to_roll_back:
            if entry.done is not None and not entry.done.done():
                entry.done.set_result(False)
        self._to_roll_back = [entry for entry in self._to_roll_back if entry.done is None]
        for answer in self._answers.clear():
            answer.refuse()
        for notice in unanswered(self._notices.clear()):
            if notice.from_spool:
                notice.done.set_result(None)
            elif not self._is_slow:  # else it is in the spool already
                self._to_spool(notice)
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


# -- the connection -------------------------------------------------------------------------------


class ForeignLedgerError(RedisError):
    """The ledger belongs to another warehouse, or this warehouse has recorded another ledger.

    Also raised if the ledger's number of shards is not the one that this process uses.
    """

    def __init__(self, state: ShardState, warehouse: str, shards: int) -> None:
        if state.warehouse not in ("", warehouse):
            super().__init__(
                f"the ledger belongs to the warehouse {state.warehouse}, not to this one"
                f" ({warehouse})"
            )
        elif state.shards not in (0, shards):
            super().__init__(
                f"the ledger has {state.shards} shards, but this process uses {shards}: restart it"
            )
        else:
            super().__init__(f"the ledger ({state.epoch}) is not the warehouse's own")


class LedgerShard:
    """A worker's connection to a shard; `core` decides what is sent."""

    def __init__(
        self,
        number: int,
        connect: Connector,
        core: GroupCommit,
        clock: LedgerClock,
        simulated: bool = False,
        shards: int = 1,
    ) -> None:
        self._keys = ShardKeys(number)
        self.trips = RoundTrips(connect, self, f"ledger shard {number}", STALL_S)
        self._core = core
        self._clock = clock
        self._scripts = of_worker(simulated, shards)
        self._shas: dict[str, bytes] = {}
        self._answers = secrets.randbits(24)  # identities
        self._number, self._shards = number, shards
        self._state: ShardState | None = None  # when it was last connected
        self._warehouse = ""
        self._own: Sequence[str] = ()
        self.is_foreign = False  # not of the warehouse's current ledger
        self.former: Sequence[FormerLedger] = ()

    @property
    def connected(self) -> bool:
        """Whether the shard takes requests."""
        return self.trips.connected

    @property
    def is_unreplicated(self) -> bool:
        """Whether the shard acknowledges writes without its required replica."""
        return self.trips.replication.is_unreplicated

    @property
    def unconfirmed(self) -> list[BidBatch]:
        """Batches that may have been applied and are not yet rolled back."""
        return self._core.unconfirmed

    def open(self) -> None:
        """Start connecting; requires a running loop."""
        self._loop = asyncio.get_running_loop()
        self.trips.open()

    async def close(self, until: float) -> None:
        """Send queued requests if connected, roll back unconfirmed batches, then disconnect.

        Stops waiting for the rollbacks at `until` (loop time).
        """
        await self.trips.flush()
        while self._core.unconfirmed and self._loop.time() < until:
            await asyncio.sleep(0.005)
        await self.trips.close()

    # -- requests ---------------------------------------------------------------------------------

    def remember(
        self,
        auction_id: bytes,
        ssp: int,
        bids: Sequence[LedgerBid],
        user: str | None,
        within_s: float,
        counted: bool,
        answer: int | None = None,
    ) -> "Reply[Verdicts] | None":
        """Remember the bids of an answer; see `Ledger.remember`.

        `answer`: the answer's identity, if already assigned.
        """
        trips = self.trips
        if not trips.connected:
            return None
        now = self._loop.time()
        time = self._clock.now(now)
        if answer is None:
            answer = self.next_answer()
        done: Reply[Verdicts] = trips.reply()
        waiting = self._core.remember(
            AnswerBids(auction_id, ssp, bids, user, time, answer, counted, done, now + within_s)
        )
        if not waiting:
            return None
        trips.schedule(waiting)
        return done

    def next_answer(self) -> int:
        """Return a new answer id (24 bits)."""
        self._answers = answer = (self._answers + 1) & 0xFFFFFF
        return answer

    def hold(self, packed: bytes, within_s: float, *, ends: bool = False) -> "Reply[str] | None":
        """Hold a capped user's impression or, with `ends`, end a hold.

        Returns None if too many requests are waiting, or if the shard is unavailable and the hold
        is new. `packed`: as in `PendingHold`.
        """
        if not (self.connected or ends):
            return None
        done: Reply[str] = self.trips.reply()
        hold = PendingHold(packed, done, self._loop.time() + within_s, ends)
        waiting = self._core.hold(hold)
        if not waiting:
            return None
        self.trips.schedule(waiting)
        return done

    def settle(
        self,
        packed: bytes,
        *,
        from_spool: bool = False,
        otherwise: tuple[int, bytes] | None = None,
    ) -> "Reply[str | None] | None":
        """Queue a notice to be settled; return the reply, which becomes a NoticeVerdict.

        The reply becomes None if a notice from the spool cannot be settled. `otherwise`: the shard
        and encoding of the notice with the other ids that its URL may mean. Returns None instead of
        a reply if Redis is unavailable or slow, or if too many notices are waiting.
        """
        trips = self.trips
        if not trips.connected:
            return None
        done: Reply[str | None] = trips.reply()
        waiting = self._core.settle(PendingNotice(packed, done, from_spool, otherwise))
        if not waiting:
            return None
        trips.schedule(waiting)
        return done

    def roll_back(self, batch: BidBatch) -> "asyncio.Future[bool] | None":
        """Roll back an unconfirmed batch of another process; None if Redis is unavailable."""
        if not self.connected:
            return None
        done: asyncio.Future[bool] = self._loop.create_future()
        self._core.roll_back(Rollback(batch, done))
        self.trips.schedule()
        return done

    def _is_foreign(self, state: ShardState) -> bool:
        own = self._own
        if state.warehouse and self._warehouse not in ("", state.warehouse):
            return True
        if state.shards not in (0, self._shards):
            return True
        if not any(own) or not state.epoch or state.moved_from in own:
            return False
        return len(own) != self._shards or own[self._number] not in ("", state.epoch)

    def belong_to(self, warehouse: str, epochs: Sequence[str] = ()) -> None:
        """Accept only this warehouse's ledger; see `Ledger.belong_to`."""
        self._warehouse, self._own = warehouse, epochs
        self._core.warehouse = warehouse
        if self._state is not None:
            self._end_foreign(self._state)

    def _end_foreign(self, state: ShardState) -> None:
        self.is_foreign = self._is_foreign(state)
        if self.is_foreign:
            self.trips.end(ForeignLedgerError(state, self._warehouse, self._shards))

    # -- round trips (see TripUser) ---------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return self._core.waiting

    async def prepare(self, connection: AbstractConnection) -> None:
        loading = connection.pack_commands([("SCRIPT LOAD", it) for it in self._scripts.values()])
        await connection.send_packed_command(loading)
        for name in self._scripts:
            self._shas[name] = await connection.read_response()
        await connection.send_command(*self._evalsha(("begin", self._warehouse, self._shards)))
        self._state = state = ShardState.parse(await connection.read_response())
        self.former = state.former
        self.is_foreign = self._is_foreign(state)
        if self.is_foreign:
            raise ForeignLedgerError(state, self._warehouse, self._shards)
        asked_at = self._loop.time()
        replies: list[Any] = []
        for command in self._core.connect(asked_at):
            await connection.send_command(*self._evalsha(command))
            replies.append(await connection.read_response())
            if len(replies) == 1:
                answered_at = self._loop.time()
        await self.trips.confirm(connection, self._keys)
        self._core.begin(replies, asked_at, answered_at)
        self._report_given_up()

    def next_batch(self, now: float) -> list[Command]:
        return [self._evalsha(command) for command in self._core.next_batch(now)]

    def _evalsha(self, command: Command) -> tuple[Any, ...]:
        name, *arguments = command
        return ("EVALSHA", self._shas[name], 2, *self._keys.script_keys, *arguments)

    def receive(self, replies: list[Any], asked_at: float, now: float) -> None:
        self._core.receive(replies, asked_at, now)
        if self._core.given_up:
            self._report_given_up()
        if self._state is not None and self._core.epoch not in ("", self._state.epoch):
            self._state = self._state._replace(epoch=self._core.epoch, moved_from="")
            self._end_foreign(self._state)

    def expire(self, now: float, waited_s: float) -> None:
        self._core.expire(now, waited_s)

    def is_due(self, now: float) -> bool:
        return self._core.is_due(now)

    def disconnected(self) -> None:
        self._core.disconnect()

    def _report_given_up(self) -> None:
        for token in self._core.given_up:
            logger.warning(
                "gave up on process %(process)s, which sends no heartbeats: holds no longer wait"
                " for its notices",
                {"process": token},
            )
        self._core.given_up.clear()
