"""One shard of the ledger over its connection: checks which ledger it is, and sends requests.

An idle connection gets heartbeats, so that its loss is noticed before a bid needs it.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.bids.batch import AnswerBids, BidBatch, LedgerBid, Verdicts
from snapbid.ledger.bids.clock import LedgerClock
from snapbid.ledger.bids.commit import GroupCommit, PendingHold, PendingNotice, Rollback
from snapbid.ledger.bids.segment import FormerLedger, ShardState
from snapbid.ledger.scripts import of_worker
from snapbid.redisclient.connection import Connector
from snapbid.redisclient.replicas import Command
from snapbid.redisclient.replies import Reply
from snapbid.redisclient.trips import RoundTrips

STALL_S: Final = 1.0  # without a reply, the connection is closed

logger = logging.getLogger(__name__)


class LedgerName(NamedTuple):
    """The warehouse whose numbers a shard uses, its data set, and the one it was moved from.

    Unknown parts are "". `shards`: the ledger's number of shards, 0 if unknown.
    """

    warehouse: str = ""
    epoch: str = ""
    moved_from: str = ""
    shards: int = 0


class ForeignLedgerError(RedisError):
    """The ledger belongs to another warehouse, or is not the warehouse's own."""

    def __init__(self, name: LedgerName, warehouse: str, shards: int) -> None:
        if name.warehouse not in ("", warehouse):
            text = f"the ledger belongs to the warehouse {name.warehouse}, and this one is"
            super().__init__(f"{text} {warehouse}")
        elif name.shards not in (0, shards):
            text = f"the ledger has {name.shards} shards, and this process {shards}: restart it"
            super().__init__(text)
        else:
            super().__init__(f"the ledger ({name.epoch}) is not the warehouse's own")


class LedgerShard:
    """A shard for one worker; `core` decides what is sent."""

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
        self.trips = RoundTrips(connect, self, f"ledger shard {number} unavailable", STALL_S)
        self._core = core
        self._clock = clock
        self._scripts = of_worker(simulated, shards)
        self._shas: dict[str, bytes] = {}
        self._answers = secrets.randbits(24)  # identities
        self._number, self._shards = number, shards
        self._name = LedgerName()
        self._warehouse = ""
        self._own: Sequence[str] = ()
        self.former: Sequence[FormerLedger] = ()

    @property
    def connected(self) -> bool:
        """Whether requests are taken."""
        return self.trips.connected

    @property
    def is_unreplicated(self) -> bool:
        """Whether it acknowledges writes without the replica that there should be."""
        return self.trips.replication.is_unreplicated

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
        self.trips.open()

    async def close(self, until: float) -> None:
        """Send queued requests if connected, and roll back unconfirmed batches, by `until`.

        `until` is loop time.
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
        """See `Ledger.remember`; `answer`: the identity of the answer, if it has one already."""
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
        """Return an identity for an answer (24 bits)."""
        self._answers = answer = (self._answers + 1) & 0xFFFFFF
        return answer

    def hold(self, packed: bytes, within_s: float, *, ends: bool = False) -> "Reply[str] | None":
        """Hold an impression of a capped user, or end a hold (PendingHold); None if unavailable."""
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
        """Settle a notice; see PendingNotice. None if Redis is unavailable."""
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
        """Roll back another process' unconfirmed batch. None if Redis is unavailable."""
        if not self.connected:
            return None
        done: asyncio.Future[bool] = self._loop.create_future()
        self._core.roll_back(Rollback(batch, done))
        self.trips.schedule()
        return done

    @property
    def is_foreign(self) -> bool:
        """Whether the shard belongs to another warehouse, or not to the warehouse's own ledger."""
        name, own = self._name, self._own
        if name.warehouse and self._warehouse not in ("", name.warehouse):
            return True
        if name.shards not in (0, self._shards):
            return True
        if not any(own) or not name.epoch or name.moved_from in own:
            return False
        return len(own) != self._shards or own[self._number] not in ("", name.epoch)

    def belong_to(self, warehouse: str, epochs: Sequence[str] = ()) -> None:
        """Accept only this warehouse's own ledger; see Ledger."""
        self._warehouse, self._own = warehouse, epochs
        self._end_foreign()

    def _end_foreign(self) -> None:
        if self.is_foreign:
            self.trips.end(ForeignLedgerError(self._name, self._warehouse, self._shards))

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
        state = ShardState.parse(await connection.read_response())
        self._name = LedgerName(state.warehouse, state.epoch, state.moved_from, state.shards)
        self.former = state.former
        if self.is_foreign:
            raise ForeignLedgerError(self._name, self._warehouse, self._shards)
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
        if self._core.epoch not in ("", self._name.epoch):
            self._name = self._name._replace(epoch=self._core.epoch, moved_from="")
            self._end_foreign()

    def expire(self, now: float, waited_s: float) -> None:
        self._core.expire(now, waited_s)

    def is_due(self, now: float) -> bool:
        return self._core.is_due(now)

    def disconnected(self) -> None:
        self._core.disconnect()

    def _report_given_up(self) -> None:
        for token in self._core.given_up:
            logger.warning(
                "gave up on process %(process)s: no heartbeat; holds no longer wait for its"
                " notices",
                {"process": token},
            )
        self._core.given_up.clear()
