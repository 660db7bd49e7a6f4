"""Move the ledger to another Redis, or to a different number of shards, while `serve` runs.

The old ledger is closed: workers treat it as unavailable, and spool notices. It is copied into the
new one (copying.py), which stays closed until the copy has been compared. Then the operator
restarts `serve` and `drain` with the new settings, and workers settle the spooled notices.

The shards of the new ledger are `filling` during the copy. Then shard 0 becomes `filled`, which
completes the move, and all shards are opened. If the command is killed before shard 0 is `filled`,
running it again starts over; if it is killed later, running it again finishes the move.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import time
from typing import Any, Final, NamedTuple, TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base import addresses
from snapbid.base.reasons import address
from snapbid.base.redis_keys import ShardKeys
from snapbid.base.words import counted
from snapbid.ledger.admin import closing, parts
from snapbid.ledger.admin.copying import Copy, Moved, ShardClocks, merged_clocks
from snapbid.ledger.bids.segment import ShardState
from snapbid.ledger.caps.outbox import OutboxSweeper
from snapbid.ledger.scripts import script
from snapbid.queues.queues import fetch_leftovers
from snapbid.redisclient.connection import Connections, scan

CARRIED_S: Final = 60.0  # without progress, before giving up
LOOK_S: Final = 0.1
GONE: Final = 1000  # keys removed in one command

_MOVING: Final = "being moved to "
_MOVED: Final = "moved to "

T = TypeVar("T")


class MoveError(RedisError):
    """The ledger cannot be moved, or its move cannot be undone.

    Shards that `move` has closed stay closed.
    """


class LedgerPlace(NamedTuple):
    """The URL of a ledger and its number of shards; `replicas`: see Connections."""

    url: str
    shards: int
    replicas: int | None = None

    @property
    def keys(self) -> list[ShardKeys]:
        return [ShardKeys(number) for number in range(self.shards)]

    @property
    def name(self) -> str:
        """The address (without password), database and number of shards, for messages."""
        parts = (addresses.database(self.url), counted(self.shards, "shard"))
        return f"{address(self.url)} ({', '.join(filter(None, parts))})"


class LedgerSide:
    """One of the two ledgers in a move."""

    def __init__(self, place: LedgerPlace) -> None:
        self.connections = Connections(place.url, place.replicas)
        self.redis: Redis = self.connections.client()
        self.place = place
        self.shards = place.shards
        self.keys = place.keys
        self._begin = self.redis.register_script(script("begin"))

    async def epoch(self) -> str:
        """Fetch the epoch of shard 0, which identifies the ledger; "" if there is none."""
        epoch: Any = await self.redis.get(self.keys[0].epoch)
        return (epoch or b"").decode()

    async def closed(self) -> str:
        return await closing.closed(self.redis, self.keys[0])

    async def close(self, why: str) -> None:
        for keys in self.keys:
            await closing.close(self.redis, keys, why)

    async def reopen(self) -> None:
        """Open the shards, shard 0 last, since its state shows the progress of the move."""
        for keys in reversed(self.keys):
            await closing.reopen(self.redis, keys)

    async def states(self) -> list[ShardState]:
        """Fetch the states of the shards; begin a run where none has begun since Redis started."""
        return [ShardState.parse(await self._begin(keys=keys.script_keys)) for keys in self.keys]

    async def begin(self, keys: ShardKeys, warehouse: str) -> ShardState:
        """Begin a run of Redis in a shard that is being filled; return the shard's state.

        `warehouse`: the id of the warehouse that gives the ledger's SSPs and campaigns numbers.
        """
        answer = await self._begin(keys=keys.script_keys, args=[warehouse, self.shards, "fills"])
        return ShardState.parse(answer)

    async def wipe(self) -> None:
        """Delete all data of the ledger, except for the marks that keep its shards closed."""
        for keys in self.keys:
            kept = closing.marks(keys)
            async for batch in scan(self.redis, keys.prefix, GONE):
                if gone := [key for key in batch if key not in kept]:
                    await self.redis.unlink(*gone)

    async def replicate(self) -> None:
        for keys in self.keys:
            await self.connections.replicate(self.redis, keys)

    async def aclose(self) -> None:
        await self.redis.aclose()


async def count_shards(url: str, least: int) -> int:
    """Return the number of shards of the ledger at `url`.

    A new ledger gets one shard per primary, and at least `least`. Raises RedisError or OSError.
    """
    connections = Connections(url)
    redis = connections.client()
    try:
        recorded = await parts.fetch_count(redis)
        return recorded or max(await connections.count_primaries(), least)
    finally:
        await redis.aclose()


Tell = Callable[[str], None]


async def move(
    old: LedgerPlace, new: LedgerPlace, tell: Tell, *, leave_unknown: bool = False
) -> Moved | None:
    """Move the ledger; return None if it has already been moved.

    `tell`: receives progress messages; `leave_unknown`: leave behind counters that the drain cannot
    carry because the warehouse does not know their campaign or SSP. Raises MoveError, another
    RedisError, or OSError.
    """
    source, target = LedgerSide(old), LedgerSide(new)
    try:
        return await _move(source, target, tell, leave_unknown=leave_unknown)
    finally:
        await source.aclose()
        await target.aclose()


async def undo(old: LedgerPlace, new: LedgerPlace) -> None:
    """Reopen the old ledger, give it the events of the new one, and remove that.

    Raises MoveError if the new ledger is in use, has itself been moved, or was not moved from the
    old one.
    """
    source, target = LedgerSide(old), LedgerSide(new)
    try:
        epoch, why = await _epoch(source), await target.closed()
        if await _origin(target) == epoch:
            if why and not why.startswith((closing.FILLING, closing.FILLED)):
                raise MoveError(f"the ledger at --to is {why}: undo that move first")
            await _check_shards(target)
            await target.close(f"{closing.FILLED}from {epoch}")
            if await _is_in_use(target):
                await target.reopen()
                raise MoveError(
                    "the new ledger is in use and has counted bids or notices: the move can no"
                    " longer be undone"
                )
            # Events that were accepted there; those that were copied there are dropped as repeats.
            back = Copy(target.redis, target.shards, source.redis, source.shards)
            for keys in target.keys:
                await back.events(closing.events_key(keys))
            await source.replicate()
        elif await target.epoch() and not await _is_filled_from(target, epoch):
            raise MoveError("the ledger at --to was not moved from this one: check the URL")
        else:
            await _check_destination(source, new)
        await target.close(f"{closing.FILLING}from {epoch}")
        await target.wipe()
        await source.reopen()
    finally:
        await source.aclose()
        await target.aclose()


async def _move(
    source: LedgerSide, target: LedgerSide, tell: Tell, *, leave_unknown: bool
) -> Moved | None:
    epoch = await _epoch(source)
    if await target.epoch() == epoch:
        raise MoveError("the ledger is already at --to: choose another Redis or database")
    why, origin = await target.closed(), await _origin(target)
    if why.startswith(closing.FILLED) or (not why and origin == epoch):
        if origin != epoch:
            raise MoveError("another ledger is moving to --to: choose another Redis or database")
        await _check_shards(target)
        await _finish(source, target)
        return None
    await _check_destination(source, target.place)
    if (why or await target.epoch()) and not await _is_filled_from(target, epoch):
        raise MoveError(
            f"another ledger is already at --to{f' ({why})' if why else ''}: choose another Redis"
            " or database"
        )
    states = await source.states()
    _check_source(states)
    if why:
        await target.wipe()
    await target.close(f"{closing.FILLING}from {epoch}")
    await source.close(f"{_MOVING}{target.place.name}")
    tell("the old ledger is closed: bids get a 204, notices are spooled")
    moved = await _fill(source, target, states, tell)
    if leave_unknown:
        await _await_rounds(source)
    else:
        await _await_drain(source, tell)
    after = await source.states()
    if [state.segment for state in after] != [state.segment for state in states]:
        raise MoveError("the old Redis was restarted meanwhile: run the move again")
    batches = " ".join(f"{state.epoch}:{state.released}" for state in after)
    await target.redis.hset(target.keys[0].state, "moved_batches", batches)
    await target.replicate()
    await closing.close(target.redis, target.keys[0], f"{closing.FILLED}from {epoch}")
    await _finish(source, target)
    return moved


async def _epoch(source: LedgerSide) -> str:
    """Fetch the epoch of the old ledger. Raises MoveError if there is none."""
    if epoch := await source.epoch():
        return epoch
    raise MoveError("there is no ledger to move: set SNAPBID_REDIS_URL to the Redis that has it")


async def _check_destination(source: LedgerSide, new: LedgerPlace) -> None:
    """Raise MoveError if the ledger was moved, or began to move, to any place other than `new`.

    Two copies would each count the same notices.
    """
    why = await source.closed()
    unnumbered = f"{address(new.url)} ({counted(new.shards, 'shard')})"  # as 0.1.0 wrote it
    if why and why not in (_MOVING + new.name, _MOVED + new.name, _MOVING + unnumbered):
        raise MoveError(
            f"this ledger is {why}: set SNAPBID_REDIS_URL to the new ledger, or run or undo that"
            " move with its --to and --shards"
        )


async def _check_shards(target: LedgerSide) -> None:
    """Raise MoveError if the new ledger already has a number of shards other than --shards."""
    count = await parts.fetch_count(target.redis)
    if count not in (0, target.shards):
        raise MoveError(
            f"the ledger at --to has {counted(count, 'shard')}, not {target.shards}: leave out"
            " --shards"
        )


def _check_source(states: Iterable[ShardState]) -> None:
    for number, state in enumerate(states):
        if not state.is_confirmed:
            raise MoveError(
                f"shard {number} is waiting for the drain to restore its budgets: make sure that"
                " snapbid drain is running"
            )


async def _fill(
    source: LedgerSide, target: LedgerSide, states: list[ShardState], tell: Tell
) -> Moved:
    await _deliver_outboxes(source)
    clocks = [await _clocks(source.redis, keys) for keys in source.keys]
    now = int(time())
    copy = Copy(source.redis, source.shards, target.redis, target.shards)
    await copy.time_buckets(now)
    for number in range(source.shards):
        await copy.shard(number, clocks)
        tell(f"copied shard {number} of {source.shards}")
    for keys in source.keys:
        await copy.events(closing.events_key(keys))
    for number in await fetch_leftovers(source.redis, source.shards):
        await copy.events(ShardKeys(number).events)
    await copy.golive()
    moved = await copy.check()
    former = [of for of in states[0].former if of.until > now]
    fields: dict[Any, Any] = {
        "carried": 1,
        "moved_from": states[0].epoch,
        "moved": " ".join(f"{of.shards}:{of.until}" for of in former),
    }
    if copy.expires and source.shards != target.shards:
        fields["moved"] = f"{fields['moved']} {source.shards}:{copy.expires}".strip()
    fields["adopted"] = await _began(source)
    for keys, own in zip(target.keys, merged_clocks(clocks, target.shards), strict=True):
        await target.begin(keys, states[0].warehouse)
        await _set_clocks(target, keys, own)
        await target.redis.hset(keys.state, mapping=fields)
    return moved


async def _finish(source: LedgerSide, target: LedgerSide) -> None:
    """Record in the old ledger that it has moved, and open the new one."""
    await source.close(f"{_MOVED}{target.place.name}")
    await target.reopen()


# -- the state of ledgers -------------------------------------------------------------------------


async def _origin(ledger: LedgerSide) -> str:
    """Fetch the epoch of the ledger from which this one was moved; "" if it was not moved."""
    origin: Any = await ledger.redis.hget(ledger.keys[0].state, "moved_from")
    return (origin or b"").decode()


async def _is_filled_from(ledger: LedgerSide, epoch: str) -> bool:
    """Whether a move from the ledger `epoch` into `ledger` is unfinished or was undone."""
    return await ledger.closed() == f"{closing.FILLING}from {epoch}"


async def _is_in_use(ledger: LedgerSide) -> bool:
    """Whether bids or notices have been counted in a closed ledger."""
    for keys in ledger.keys:
        if await ledger.redis.hexists(closing.time_buckets_key(keys), "current"):
            return True
        if await ledger.redis.exists(keys.changed, keys.taken):
            return True
        if await ledger.redis.hexists(keys.state, "read"):  # the drain has read counters
            return True
    return False


async def _began(source: LedgerSide) -> str:
    """Return the latest time at which a run of Redis began or the ledger was adopted (epoch s).

    In the new ledger, notices from before this time never count for bids made after it.
    """
    times = list[Any]()
    for keys in source.keys:
        times += await source.redis.hvals(keys.segments)
        times.append(await source.redis.hget(keys.state, "adopted") or b"0")
    latest: bytes = max(times, key=float)
    return latest.decode()


async def _clocks(redis: Redis, keys: ShardKeys) -> ShardClocks:
    now: Any = await redis.hget(f"{keys.prefix}h", "clock")
    spools: Any = await redis.hgetall(f"{keys.prefix}spools")
    processes = {token: tuple(map(int, times.split())) for token, times in spools.items()}
    return ShardClocks(int(now or 0), processes)  # type: ignore[arg-type]


async def _set_clocks(target: LedgerSide, keys: ShardKeys, clocks: ShardClocks) -> None:
    """Set a new shard's hold clock (clock.lua).

    A hold does not end while a notice from before its end may be in an outbox, or in the spool of
    one of `clocks.processes`.
    """
    redis = target.redis
    settled = min([clocks.now, *(settled for settled, _ in clocks.processes.values())])
    names = ("h", "spools", "outboxes", "delivered")
    clock, spools, outboxes, delivered = (f"{keys.prefix}{name}" for name in names)
    await redis.unlink(clock, spools, outboxes, delivered)
    await redis.hset(clock, "clock", str(clocks.now))
    if clocks.processes:
        for token, (at, seen) in clocks.processes.items():
            await redis.hset(spools, token, f"{at} {seen}")
    if target.shards > 1:
        mark = f"{settled} {clocks.now}"
        await redis.hset(outboxes, mapping={str(n): mark for n in range(target.shards)})
        await redis.hset(delivered, "mark", mark)


# -- waiting --------------------------------------------------------------------------------------


async def _deliver_outboxes(source: LedgerSide) -> None:
    """Deliver all outbox entries to the users' shards. Raises MoveError if delivery stalls."""
    if source.shards == 1:
        return
    sweeper = OutboxSweeper(source.connections, source.shards, time)
    try:

        async def left() -> int:
            await sweeper.sweep()
            return await _sum(source, lambda keys: _entries(source, keys))

        await _until_none(left, "outbox entries have not been delivered")
    finally:
        await sweeper.close()


async def _entries(source: LedgerSide, keys: ShardKeys) -> int:
    pipe = source.redis.pipeline(transaction=False)
    for number in range(source.shards):
        pipe.scard(f"{keys.prefix}o:{number}")
    return int(sum(await pipe.execute()))


async def _await_drain(source: LedgerSide, tell: Tell) -> None:
    """Wait until the drain has carried all counters to the warehouse."""

    async def left() -> int:
        return await _sum(source, lambda keys: _changed(source.redis, keys))

    if await left():
        tell("waiting for the drain to carry all counters")
    await _until_none(
        left,
        "counters have not been drained: make sure that snapbid drain runs on the old ledger, or"
        " pass --leave-unknown to skip those whose campaign or SSP is unknown to the warehouse",
    )


async def _await_rounds(source: LedgerSide) -> None:
    """Wait for two rounds of the drain in each shard, so the second one begins after this call."""
    for _ in range(2):
        before = {keys: await source.redis.get(keys.drained_at) for keys in source.keys}

        async def left(before: Mapping[ShardKeys, object] = before) -> int:
            return sum([await source.redis.get(k.drained_at) == at for k, at in before.items()])

        await _until_none(
            left, "shards have not been drained: make sure that snapbid drain is running"
        )


async def _changed(redis: Redis, keys: ShardKeys) -> int:
    """Count the counters that wait for the drain.

    The drain moves the names of counters from one key to another, so a script reads both keys in
    one step.
    """
    count: Any = await redis.eval(script("changed"), 2, keys.changed, keys.taken)
    return int(count)


async def _sum(ledger: LedgerSide, count: Callable[[ShardKeys], Awaitable[int]]) -> int:
    return sum([await count(keys) for keys in ledger.keys])


async def _until_none(left: Callable[[], Awaitable[int]], what: str) -> None:
    """Wait until `left` returns 0. Raises MoveError after CARRIED_S without progress.

    The error's message is the number that is left, followed by `what`.
    """
    loop = asyncio.get_running_loop()
    least, since = await left(), loop.time()
    while least:
        await asyncio.sleep(LOOK_S)
        now = await left()
        if now < least:
            least, since = now, loop.time()
        elif loop.time() - since > CARRIED_S:
            raise MoveError(f"{now:,} {what}")
