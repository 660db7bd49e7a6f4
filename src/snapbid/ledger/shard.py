"""Group commit to one shard of the ledger.

What concurrent requests want to remember or settle is gathered while the previous round trip is
under way, and sent as one batch: a script call for the bids and one for the notices. There is no
timer that a request waits for: an idle shard sends at once, a busy one forms larger batches by
itself. A clock that ticks beside it answers for those whose time is up, and gives up a connection
that has stalled.

A batch whose acknowledgement never came may have been applied, or may still be. Its requests were
answered without a bid, so the first thing that a new connection does is to take it back, which also
keeps Redis from applying it later (forget.lua). An idle connection is asked now and then, so that
its end is known before a bid needs it.
"""

import asyncio
import secrets
from collections.abc import Callable
from importlib import resources
from typing import Any, Final, TypeVar

import msgspec
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from snapbid.ledger.batch import Batch, Bids, make_batch, split
from snapbid.ledger.commits import Observe, unobserved
from snapbid.ledger.keys import ShardKeys
from snapbid.ledger.link import Link
from snapbid.ledger.records import Remembered, Reserved
from snapbid.ledger.segment import ShardState
from snapbid.ledger.wire import Wire

STALL_S: Final = 1.0  # without an answer, the connection is given up
IDLE_S: Final = 0.25  # then Redis is asked whether it is still there
MAX_WAITING: Final = 20_000  # requests; more are refused
TURNS: Final = 16  # of the loop that a batch may wait for company
ENOUGH: Final = 64  # in a batch, to wait no longer
MAX_BATCH: Final = 2_000  # records or notices in one script call, so that Redis is never held long
SHARED: Final = ("segment", "limits")
GRANULES: Final = 4  # a bid's time to live in pieces of this many: records expire piece by piece


class ForeignLedgerError(RedisError):
    """The ledger belongs to another warehouse."""

    def __init__(self, theirs: str, ours: str) -> None:
        super().__init__(f"the ledger belongs to the warehouse {theirs}, and this one is {ours}")


class Notice(msgspec.Struct, frozen=True):
    """A notice that waits to be settled."""

    packed: bytes
    done: "asyncio.Future[str | None]"
    deadline: float


T = TypeVar("T", Bids, Notice)


def scripts() -> dict[str, str]:
    """The Lua scripts by name; what they share stands before each."""
    folder = resources.files(__package__)
    parts = [(folder / f"{name}.lua").read_text(encoding="utf-8") for name in SHARED]
    shared = "".join(parts)
    return {
        name: shared + (folder / f"{name}.lua").read_text(encoding="utf-8")
        for name in ("begin", "remember", "forget", "settle", "look", "state")
    }


class Shard:
    """One shard. `clock` gives epoch seconds; `ttl_s` is how long a bid is remembered, `hold_s`
    how long its cost is held.
    """

    def __init__(
        self,
        number: int,
        connect: Callable[[], AbstractConnection],
        ttl_s: int,
        hold_s: int,
        clock: Callable[[], float],
        observe: Observe = unobserved,
    ) -> None:
        self._key = ShardKeys(number).epoch
        self._link = Link(connect, self, "Redis is away", STALL_S)
        self._ttl_s = ttl_s
        self._hold_s = hold_s
        self._granule_s = max(ttl_s // GRANULES, 1)
        self._clock = clock
        self._observe = observe
        self._writer = secrets.token_hex(8)
        self._numbers = 0
        self._bids: list[Bids] = []
        self._notices: list[Notice] = []
        self._sent_bids: list[Bids] = []
        self._sent_notices: list[Notice] = []
        self._sent_at: float | None = None  # loop time
        self._sent_ms = 0
        self._heard_at = 0.0  # loop time
        self._doubtful: Batch | None = None
        self._taking_back = False
        self._wire: Wire | None = None
        self._shas: dict[str, bytes] = {}
        self._gathering = False
        self._warehouse = self._expected = ""
        self.connected = False
        self.batches = 0

    def start(self) -> None:
        """Starts to connect; needs a running loop."""
        self._loop = asyncio.get_running_loop()
        self._link.open()

    async def stop(self) -> None:
        """Sends what waits, if Redis is there, and closes."""
        while self.connected and (self._sent_at is not None or self._bids or self._notices):
            await asyncio.sleep(0.001)
        await self._link.close()

    # -- what requests call ------------------------------------------------------------------

    def remember(
        self, ssp: int, bids: list[Remembered], deadline: float
    ) -> "asyncio.Future[bool] | None":
        """Gives what becomes True once the bids are remembered, False where they will not be.

        None: Redis is away, or too much waits for it.
        """
        if not self.connected or len(self._bids) >= MAX_WAITING:
            return None
        done: asyncio.Future[bool] = self._loop.create_future()
        self._bids.append(Bids(ssp, bids, None, done, deadline))
        if not self._gathering:
            self._stir()
        return done

    def reserve(
        self, ssp: int, bids: list[Reserved], counted: bool, deadline: float
    ) -> "asyncio.Future[str] | None":
        """As `remember`, for bids with limits; gives remember.lua's letters, "" for False.

        `counted`: the answer to which they belong has been counted.
        """
        if not self.connected or len(self._bids) >= MAX_WAITING:
            return None
        done: asyncio.Future[str] = self._loop.create_future()
        self._bids.append(Bids(ssp, bids, counted, done, deadline))
        if not self._gathering:
            self._stir()
        return done

    def settle(self, packed: bytes, deadline: float) -> "asyncio.Future[str | None] | None":
        """Gives what becomes the letter of settle.lua, or None where Redis did not answer."""
        if not self.connected or len(self._notices) >= MAX_WAITING:
            return None
        done: asyncio.Future[str | None] = self._loop.create_future()
        self._notices.append(Notice(packed, done, deadline))
        if not self._gathering:
            self._stir()
        return done

    def tick(self, now: float) -> None:
        """Answers for those whose deadline has passed; `now` is loop time."""
        if self._sent_at is None:
            if now - self._heard_at > IDLE_S and not self._gathering:
                self._stir()
            return
        for waiting in (self._sent_bids, self._bids):
            for bids in waiting:
                if bids.deadline <= now:
                    bids.refuse()
        for kept in (self._sent_notices, self._notices):
            for notice in kept:
                if notice.deadline <= now and not notice.done.done():
                    notice.done.set_result(None)
        if now - self._sent_at > STALL_S and self._wire is not None:
            self._wire.end(RedisError("it has stalled"))

    @property
    def is_foreign(self) -> bool:
        """Whether the ledger's numbers are those of another warehouse than ours."""
        return bool(self._warehouse and self._expected) and self._warehouse != self._expected

    def belong_to(self, warehouse: str) -> None:
        """Bid with the numbers of this warehouse, and on a ledger of its own alone."""
        self._expected = warehouse
        if self.is_foreign and self._wire is not None:
            self.connected = False
            self._wire.end(ForeignLedgerError(self._warehouse, warehouse))

    # -- the connection ----------------------------------------------------------------------

    async def prepare(self, connection: AbstractConnection) -> None:
        for name, text in scripts().items():
            await connection.send_command("SCRIPT LOAD", text)
            self._shas[name] = await connection.read_response()
        await connection.send_command("EVALSHA", self._shas["begin"], 1, self._key)
        state = ShardState.parse(await connection.read_response())
        self._warehouse = state.warehouse
        if self.is_foreign:
            raise ForeignLedgerError(state.warehouse, self._expected)
        if self._doubtful is not None:
            await connection.send_command(*self._forget(self._doubtful))
            await connection.read_response()
            self._doubtful = None

    async def use(self, connection: AbstractConnection) -> None:
        """Until the connection ends; raises how."""
        self._wire = Wire(connection, self._answered)
        self._heard_at = self._loop.time()
        self.connected = True
        await self._wire.ended

    def disconnected(self) -> None:
        """The connection is gone: nobody waits any longer."""
        self.connected = False
        self._wire = self._sent_at = None
        self._taking_back = False
        for bids in (*self._sent_bids, *self._bids):
            bids.refuse()
        for notice in (*self._sent_notices, *self._notices):
            if not notice.done.done():
                notice.done.set_result(None)
        self._sent_bids, self._bids, self._sent_notices, self._notices = [], [], [], []

    # -- a batch -----------------------------------------------------------------------------

    def _stir(self) -> None:
        """Begins a batch, unless one is under way."""
        if self._sent_at is None:
            self._gathering = True
            self._loop.call_soon(self._gather, 0, TURNS)

    def _gather(self, before: int, turns: int) -> None:
        """Lets what is ready to run come along: turns of the loop, while each brings more.

        An idle process goes on after one; a busy one, where a round trip costs more than a request,
        shares it among more of them.
        """
        waiting = len(self._bids) + len(self._notices)
        if turns and before < waiting < ENOUGH:
            self._loop.call_soon(self._gather, waiting, turns - 1)
            return
        self._gathering = False
        if self._wire is not None:
            self._commit(self._wire)

    def _commit(self, wire: Wire) -> None:
        """Sends all that waits; where nothing does, asks whether Redis is there."""
        self._sent_bids = bids = _waiting(self._bids[:MAX_BATCH])
        self._sent_notices = notices = _waiting(self._notices[:MAX_BATCH])
        self._bids, self._notices = self._bids[MAX_BATCH:], self._notices[MAX_BATCH:]
        self._sent_ms = now_ms = int(self._clock() * 1000)
        commands: list[tuple[Any, ...]] = []
        if bids:
            self._numbers += 1
            self._doubtful = make_batch(self._numbers, bids, now_ms, self._granule_s, self._ttl_s)
            commands.append(self._remember(self._doubtful))
        if notices:
            commands.append(self._settle(notices, now_ms))
        self._sent_at = self._loop.time()
        wire.send(*(commands or [("PING",)]))

    def _answered(self, replies: list[Any]) -> None:
        """The replies to a batch, or to the taking back of what was regretted of it, are there."""
        if self._taking_back:
            _expect(replies[0])
            self._taking_back, self._doubtful = False, None
        else:
            if self._sent_bids:
                self._accept(self._sent_bids, replies[0])
            if self._sent_notices:
                letters = _expect(replies[-1]).decode()
                for notice, letter in zip(self._sent_notices, letters, strict=True):
                    if not notice.done.done():
                        notice.done.set_result(letter)
            self._count()
            self._sent_bids, self._sent_notices = [], []
            if self._doubtful is not None and self._wire is not None:
                self._taking_back = True
                self._wire.send(self._forget(self._doubtful))
                return
        self._sent_at, self._heard_at = None, self._loop.time()
        if self._bids or self._notices:
            self._stir()

    def _count(self) -> None:
        bids, notices = len(self._sent_bids), len(self._sent_notices)
        if bids or notices:
            assert self._sent_at is not None
            self.batches += 1
            self._observe(bids, notices, self._loop.time() - self._sent_at)

    def _accept(self, bids: list[Bids], applied: Any) -> None:
        """Redis has answered a batch of bids, which is not doubtful then."""
        self._doubtful = None
        if not _expect(applied):
            raise RedisError("a batch was refused")
        verdicts = split(bids, applied[1:].decode())
        wanted = [one.accept(verdict) for one, verdict in zip(bids, verdicts, strict=True)]
        if not all(wanted):
            self._doubtful = self._regretted(bids, verdicts, wanted)

    def _regretted(self, bids: list[Bids], verdicts: list[str], wanted: list[bool]) -> Batch:
        """Those of the last batch that were answered without a bid in the meantime."""
        regretted = []
        kept: set[bytes] = set()
        for one, verdict, is_wanted in zip(bids, verdicts, wanted, strict=True):
            if is_wanted:
                kept.update(one.places(verdict))
            else:
                regretted.append((one, verdict))
        entries = [one for one, _ in regretted]
        letters = "".join(
            "r" if letter == "k" and bid.place in kept else letter
            for one, verdict in regretted
            for bid, letter in zip(one.bids, verdict, strict=False)  # no letters without limits
        )
        timing = (self._sent_ms, self._granule_s, self._ttl_s)
        return make_batch(self._numbers, entries, *timing, kept=kept, letters=letters)

    def _remember(self, batch: Batch) -> tuple[Any, ...]:
        return self._command(self._shas["remember"], secrets.token_hex(8), batch)

    def _forget(self, batch: Batch) -> tuple[Any, ...]:
        return self._command(self._shas["forget"], "", batch)

    def _command(self, sha: bytes, epoch: str, batch: Batch) -> tuple[Any, ...]:
        head = ("EVALSHA", sha, 1, self._key, epoch, self._writer, batch.number)
        bids = (batch.granule, batch.expires, batch.day, batch.records, batch.answers)
        return (*head, *bids, batch.now_ms, self._hold_s, batch.letters, batch.counters)

    def _settle(self, notices: list[Notice], now_ms: int) -> tuple[Any, ...]:
        packed = b"".join([notice.packed for notice in notices])
        head = ("EVALSHA", self._shas["settle"], 1, self._key, now_ms // 1000, self._ttl_s)
        return (*head, self._granule_s, packed, now_ms, self._hold_s)


def _expect(reply: Any) -> Any:
    """The reply, unless it is an error."""
    if isinstance(reply, ResponseError):
        raise reply
    return reply


def _waiting(entries: list[T]) -> list[T]:
    """Those that were not answered yet: what was given up need not be sent."""
    return [one for one in entries if not one.done.done()]
