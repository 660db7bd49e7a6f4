"""One shard of the ledger over its connection: when to send, and what to time out.

An idle shard sends at once. A busy one forms larger batches by itself, since requests that arrive
during a round trip wait for the next; none waits for a timer. If many requests are ready at once,
the first of them are sent early, so that Redis works while this process does. A ticker times out
overdue requests and closes a stalled connection. An idle connection gets heartbeats, so that its
loss is noticed before a bid needs it.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.bids import commit
from snapbid.ledger.bids.batch import AnswerBids, BidBatch, LedgerBid, Verdicts
from snapbid.ledger.bids.clock import LedgerClock
from snapbid.ledger.bids.commit import Command, GroupCommit, PendingHold, PendingNotice, Rollback
from snapbid.ledger.bids.segment import FormerLedger, ShardState
from snapbid.ledger.scripts import of_worker
from snapbid.redisclient.connection import Connector
from snapbid.redisclient.link import Link
from snapbid.redisclient.replicas import confirmed, waiting
from snapbid.redisclient.replies import Reply, Turn
from snapbid.redisclient.wire import Wire

ITERATIONS: Final = 16  # iterations of the loop for which a batch may grow
ENOUGH: Final = 32  # requests with which a batch is sent at once

logger = logging.getLogger("snapbid")


class LedgerName(NamedTuple):
    """The warehouse whose numbers a shard uses, its data set, and the one it was moved from.

    Unknown parts are "".
    """

    warehouse: str = ""
    epoch: str = ""
    moved_from: str = ""


class ForeignLedgerError(RedisError):
    """The ledger belongs to another warehouse, or is not the warehouse's own."""

    def __init__(self, name: LedgerName, warehouse: str) -> None:
        if name.warehouse not in ("", warehouse):
            text = f"the ledger belongs to the warehouse {name.warehouse}, and this one is"
            super().__init__(f"{text} {warehouse}")
        else:
            super().__init__(f"the ledger ({name.epoch}) is not the warehouse's own")


class LedgerShard:
    """A shard for one worker; `core` decides what is sent, `sent` is called after each send."""

    def __init__(
        self,
        number: int,
        connect: Connector,
        core: GroupCommit,
        clock: LedgerClock,
        simulated: bool = False,
        shards: int = 1,
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        self._keys = ShardKeys(number)
        self._connect = connect
        self._replicas = 0
        self._waiting: tuple[Command, ...] = ()
        self._link = Link(connect, self, f"ledger shard {number} unavailable", commit.STALL_S)
        self._core = core
        self._clock = clock
        self._sent = sent
        self._scripts = of_worker(simulated, shards)
        self._shas: dict[str, bytes] = {}
        self._answers = secrets.randbits(24)  # identities
        self._wire: Wire | None = None
        self._gathering = False
        self._number, self._shards = number, shards
        self._name = LedgerName()
        self._warehouse = ""
        self._own: Sequence[str] = ()
        self.former: Sequence[FormerLedger] = ()

    @property
    def connected(self) -> bool:
        """Whether requests are taken."""
        return self._core.connected

    @property
    def is_busy(self) -> bool:
        """Whether a round trip is under way."""
        return self._core.is_busy

    @property
    def batches(self) -> int:
        """Round trips that carried bids or notices."""
        return self._core.batches

    @property
    def unconfirmed(self) -> list[BidBatch]:
        """Batches that may have been applied and are not rolled back yet."""
        return self._core.unconfirmed

    def open(self) -> None:
        """Start connecting; needs a running loop."""
        self._loop = asyncio.get_running_loop()
        self._turn = Turn(self._loop)
        self._link.open()

    async def close(self, until: float) -> None:
        """Send queued requests if connected, and roll back unconfirmed batches, until `until`.

        `until` is loop time.
        """
        core = self._core
        while core.connected and (core.is_busy or core.waiting):
            await asyncio.sleep(0.001)
        while core.unconfirmed and self._loop.time() < until:
            await asyncio.sleep(0.005)
        await self._link.close()

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
        """See `Ledger.remember`; `answer`: the identity of the answer, if it has one already."""
        core = self._core
        if not core.connected:
            return None
        now = self._loop.time()
        time = self._clock.now(now)
        if answer is None:
            answer = self.next_answer()
        done: Reply[Verdicts] = self._turn.reply()
        waiting = core.remember(
            AnswerBids(auction_id, ssp, bids, user, time, answer, counted, done, now + within_s)
        )
        if not waiting:
            return None
        self._schedule(waiting)
        return done

    def next_answer(self) -> int:
        """Return an identity for an answer (24 bits)."""
        self._answers = answer = (self._answers + 1) & 0xFFFFFF
        return answer

    def hold(self, packed: bytes, within_s: float, *, ends: bool = False) -> "Reply[str] | None":
        """Hold an impression of a capped user, or end a hold (PendingHold); None if unavailable."""
        done: Reply[str] = self._turn.reply()
        hold = PendingHold(packed, done, self._loop.time() + within_s, ends)
        waiting = self._core.hold(hold)
        if not waiting:
            return None
        self._schedule(waiting)
        return done

    def settle(
        self,
        packed: bytes,
        *,
        from_spool: bool = False,
        otherwise: tuple[int, bytes] | None = None,
    ) -> "Reply[str | None] | None":
        """Settle a notice; see PendingNotice. None if Redis is unavailable."""
        done: Reply[str | None] = self._turn.reply()
        notice = PendingNotice(packed, done, from_spool, otherwise)
        waiting = self._core.settle(notice)
        if not waiting:
            return None
        self._schedule(waiting)
        return done

    def roll_back(self, batch: BidBatch) -> "asyncio.Future[bool] | None":
        """Roll back another process' unconfirmed batch. None if Redis is unavailable."""
        done: asyncio.Future[bool] = self._loop.create_future()
        if not self._core.roll_back(Rollback(batch, done)):
            return None
        self._schedule()
        return done

    def tick(self, now: float, busy_s: float = 0.0) -> None:
        """Time out overdue requests; `now` is loop time.

        `busy_s`: by how much the loop was late for this tick.
        """
        if self._core.expire(now, busy_s) and self._wire is not None:
            self._wire.end(RedisError(f"no reply for {commit.STALL_S:g} s"))
        elif self._wire is not None and self._core.is_due(now):
            self._schedule()

    @property
    def is_foreign(self) -> bool:
        """Whether the shard belongs to another warehouse, or not to the warehouse's own ledger."""
        name, own = self._name, self._own
        if name.warehouse and self._warehouse not in ("", name.warehouse):
            return True
        if not any(own) or not name.epoch or name.moved_from in own:
            return False
        return len(own) != self._shards or own[self._number] not in ("", name.epoch)

    def belong_to(self, warehouse: str, epochs: Sequence[str] = ()) -> None:
        """Accept only this warehouse's own ledger; see Ledger."""
        self._warehouse, self._own = warehouse, epochs
        self._end_foreign()

    def _end_foreign(self) -> None:
        if self.is_foreign and self._wire is not None:
            self._core.connected = False
            self._wire.end(ForeignLedgerError(self._name, self._warehouse))

    # -- the connection (see LinkUser) ------------------------------------------------------------

    async def prepare(self, connection: AbstractConnection) -> None:
        loading = connection.pack_commands([("SCRIPT LOAD", it) for it in self._scripts.values()])
        await connection.send_packed_command(loading)
        for name in self._scripts:
            self._shas[name] = await connection.read_response()
        await connection.send_command(*self._evalsha(("begin", self._warehouse)))
        state = ShardState.parse(await connection.read_response())
        self._name = LedgerName(state.warehouse, state.epoch, state.moved_from)
        self.former = state.former
        if self.is_foreign:
            raise ForeignLedgerError(self._name, self._warehouse)
        asked_at = self._loop.time()
        replies: list[Any] = []
        for command in self._core.connect(asked_at):
            await connection.send_command(*self._evalsha(command))
            replies.append(await connection.read_response())
            if len(replies) == 1:
                answered_at = self._loop.time()
        self._replicas = self._connect.replicas
        self._waiting = waiting(self._keys.mark, self._replicas)
        await self._confirm(connection)
        self._core.begin(replies, asked_at, answered_at)
        self._report_given_up()

    async def _confirm(self, connection: AbstractConnection) -> None:
        """Wait until replicas have all writes of the shard."""
        replies: list[Any] = []
        for command in self._waiting:
            await connection.send_command(*command)
            replies.append(await connection.read_response())
        confirmed(replies, self._replicas)

    async def use(self, connection: AbstractConnection) -> None:
        self._wire = Wire(connection, self._answered)
        await self._wire.ended

    def disconnected(self) -> None:
        self._wire = None
        self._core.disconnect()

    def _schedule(self, waiting: int = 0) -> None:
        """Schedule a batch unless one is under way; send it now if enough requests wait."""
        if self._core.is_busy:
            return
        if waiting >= ENOUGH:
            self._send()
        elif not self._gathering:
            self._gathering = True
            self._loop.call_soon(self._gather, 0, ITERATIONS)

    def _gather(self, before: int, iterations: int) -> None:
        """Let requests that are ready join the batch: wait while each loop iteration brings more.

        An idle process sends after one iteration. A busy one, where a round trip costs more than a
        request, shares it among more requests.
        """
        waiting = self._core.waiting
        if iterations and before < waiting < ENOUGH:
            self._loop.call_soon(self._gather, waiting, iterations - 1)
            return
        self._gathering = False
        self._send()

    def _send(self) -> None:
        if self._wire is not None:
            commands = self._core.send(self._loop.time())
            if commands:
                self._wire.send(*map(self._evalsha, commands), *self._waiting)
                self._sent()

    def _evalsha(self, command: Command) -> tuple[Any, ...]:
        name, *arguments = command
        return ("EVALSHA", self._shas[name], 2, *self._keys.script_keys, *arguments)

    def _answered(self, replies: list[Any]) -> None:
        """Handle the replies to the last round trip."""
        now = self._loop.time()
        self._turn.begin()
        try:
            self._core.receive(confirmed(replies, self._replicas), now)
        finally:
            self._turn.end()
        if self._core.given_up:
            self._report_given_up()
        if self._core.epoch not in ("", self._name.epoch):
            self._name = self._name._replace(epoch=self._core.epoch, moved_from="")
            self._end_foreign()
        if self._core.has_to_roll_back:
            self._send()
        elif self._core.waiting:
            self._schedule(self._core.waiting)

    def _report_given_up(self) -> None:
        for token in self._core.given_up:
            logger.warning(
                "gave up on process %s: no heartbeat; holds no longer wait for its notices", token
            )
        self._core.given_up.clear()
