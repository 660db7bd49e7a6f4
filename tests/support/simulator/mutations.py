"""Defects put back on purpose, one at a time: the simulator must find each of them."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple

from redis.exceptions import ResponseError

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain import confirm, ownership
from snapbid.drain import fence as fence_module
from snapbid.drain.counters import ShardCounters
from snapbid.drain.events import EventDrain
from snapbid.drain.fence import Fence
from snapbid.drain.streams import EventStream
from snapbid.events import attribution
from snapbid.ledger import scripts
from snapbid.ledger.bids import ledger as ledger_module
from snapbid.ledger.bids.segment import ShardState
from snapbid.ledger.bids.shard import LedgerShard
from snapbid.ledger.caps.outbox import _EMPTY as EMPTY
from snapbid.ledger.caps.outbox import OutboxSweeper
from snapbid.operations import preflight
from snapbid.queues import queue
from snapbid.queues.queue import EventQueue
from snapbid.redisclient import connection
from snapbid.redisclient.connection import Connections
from snapbid.redisclient.replicas import ReplicaDemand, Replication
from snapbid.warehouse import audiences, conversions, events
from snapbid.warehouse import fence as warehouse_fence
from snapbid.warehouse.events import EventRow
from support.simulator import snapshot
from support.simulator.servers import PostgresServer
from support.simulator.system import replaced

FOLDER: Final = Path(scripts.__file__).parent


class Mutation(NamedTuple):
    """`text` of a Lua file of the ledger becomes `other`; so do pairs of `more`."""

    file: str
    text: str
    other: str
    more: tuple[tuple[str, str], ...] = ()

    def applied(self, script: str) -> str:
        """Raises ValueError where the script has no such text."""
        for text, other in ((self.text, self.other), *self.more):
            if text not in script:
                raise ValueError(f"{self.file} has no {text!r}")
            script = script.replace(text, other)
        return script


SCRIPTS: Final = {
    # A bid that is taken back takes with it what it had replaced.
    "nothing restored": Mutation(
        "forget.lua", "if older and record.current and not older.current then", "if false then"
    ),
    # A bid that is taken back takes with it a notice that was meant for the one after it.
    "nothing passed on": Mutation("forget.lua", "older or newer)", "older)"),
    # Holds end by the clock, whatever is spooled.
    "holds by the clock": Mutation(
        "clock.lua", "mark = math.min(mark, tonumber(settled))", "mark = mark"
    ),
    # The hold clock follows the time of Redis' machine.
    "hold clock is set": Mutation(
        "clock.lua", "step and step > 0 and step <= LARGEST_STEP_MS", "step"
    ),
    # A worker bids in an adopted ledger until it learns whose that is.
    "adoption unchecked": Mutation("remember.lua", "owner ~= warehouse", "false"),
    # A notice from the spool counts for the record that is there when it is replayed.
    "spooled as live": Mutation(
        "settle.lua", "if record and spooled then", "if record and spooled then elseif false then"
    ),
    # A notice that its worker has spooled meanwhile counts for the record that is there when it
    # arrives after all.
    "late as live": Mutation(
        "settle.lua", "record.made_ms > came_ms and is_late(record, came_ms)", "false"
    ),
    # A notice that was under way for a while counts for the bid before the one that is there, if
    # that seems to be in the future, since the clock was set back.
    "slow as late": Mutation("settle.lua", " and record.made_ms <= time\n", "\n"),
    # A notice from the spool whose bid was lost with older data counts for a later one.
    "lost as oldest": Mutation(
        "settle.lua",
        "began_between(known_ms, made_ms) or is_expired(oldest, since_ms)",
        "false",
    ),
    # A record is known for as long as the worker that has the notice says.
    "own TTL": Mutation("settle.lua", "longest_ttl(tonumber(ARGV[2]))", "tonumber(ARGV[2])"),
    # A notice from the spool came when it is replayed.
    "time of replay": Mutation(
        "settle.lua", "seconds * 1000 + ms, run *", "now_ms, run *"
    ),
    # A hold ends in the second before.
    "short holds": Mutation(
        "allowances.lua",
        "math.ceil(hold_clock() / 1000 + hold_s)",
        "math.floor(hold_clock() / 1000 + hold_s) - 1",
    ),
    # Budgets begin anew with the data.
    "unconfirmed budgets": Mutation("segment.lua", "return confirmed\n", "return true\n"),
    # Another run of Redis counts on where the last one, or an older copy of it, stood.
    "one segment": Mutation("segment.lua", "if state[1] == run and", "if state[2] and"),
    # Redis that gets older data without a restart counts on where that stood.
    "same origin": Mutation(
        "segment.lua", "redis.call('INFO', 'replication'):find(origin, 1, true) and state[1]",
        "state[1]", (("state[3] == origin", "true"),),
    ),
    # Workers and holds do not follow the clock of Redis.
    "own clocks": Mutation(
        "clock.lua",
        "  local time = redis.call('TIME')\n"
        "  return time[1] * 1000 + math.floor(time[2] / 1000)\n",
        "  return now_ms\n",
        (("clock = tonumber(set[1] or 0)", "clock = now_ms"),),
    ),
    # A process that was signed off is there again with a heartbeat that comes late.
    "signed off once": Mutation(
        "heartbeat.lua", "not redis.call('ZSCORE', base .. 'spools:left', token)", "true"
    ),
    # A bid from before Redis' clock was set back seems to be one of the next run of Redis.
    "steps back forgotten": Mutation(
        "clock.lua", "return time > tonumber(redis.call('HGET', base .. 'h', 'back') or 0)",
        "return true",
    ),
    # An allocator that another has overtaken grants its money, too.
    "overtaken allocators": Mutation(
        "account.lua", "(redis.call('GET', key) or '') == ARGV[i + 1]", "true"
    ),
    # Holds of users' impressions end while an outbox has wins that make them impressions.
    "undelivered wins": Mutation("caps.lua", "if SHARDS > 1 then", "if false then"),
    # Repeats count.
    "repeats count": Mutation("notices.lua", "return 'd'", "local again = true"),
}  # fmt: skip


def _script(mutation: Mutation) -> Callable[[], AbstractContextManager[None]]:
    @contextlib.contextmanager
    def apply() -> Iterator[None]:
        really = Path.read_text
        path = FOLDER / mutation.file
        mutation.applied(path.read_text("utf-8"))

        def read_text(self: Path, *args: Any, **more: Any) -> str:
            text = really(self, *args, **more)
            return mutation.applied(text) if self == path else text

        Path.read_text = read_text  # type: ignore[method-assign]
        _forget_scripts()
        try:
            yield
        finally:
            Path.read_text = really  # type: ignore[method-assign]
            _forget_scripts()

    return apply


def _forget_scripts() -> None:
    """They are read once in a process."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith(("snapbid.ledger", "snapbid.redisclient")):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


@contextlib.contextmanager
def _doubts_forgotten() -> Iterator[None]:
    """A process that stops leaves its late bids to nobody to roll back."""
    ledger = ledger_module.Ledger
    with (
        replaced(ledger, _leave_unconfirmed=lambda self: None),
        replaced(ledger_module, STOP_S=0.0),
    ):
        yield


async def _nothing(*args: Any, **more: Any) -> list[str]:
    return []


@contextlib.contextmanager
def _nothing_carried() -> Iterator[None]:
    """What the warehouse knows to be spent is not added to budgets."""
    with replaced(confirm, carry=_nothing):
        yield


_COUNTED_UP: Final = """
create or replace function number_of(name text, attempt int) returns int stable language sql as $$
    select attempt + 1 + greatest(
        (select max(number) from ssp_number), (select max(number) from campaign_number), 0
    )
$$
"""


@contextlib.contextmanager
def _old_numbers() -> Iterator[None]:
    """A restored warehouse gives numbers again that the ledger knows already."""
    really, changed = snapshot.register, list[tuple[PostgresServer, str]]()

    def register(postgres: PostgresServer, *args: Any) -> None:
        if not changed:
            fetched = postgres.admin.fetchval("select pg_get_functiondef('number_of'::regproc)")
            changed.append((postgres, postgres.run(fetched)))
            postgres.run(postgres.admin.execute(_COUNTED_UP))
        really(postgres, *args)

    try:
        with replaced(snapshot, register=register):
            yield
    finally:
        for postgres, function in changed:
            postgres.run(postgres.admin.execute(function))


@contextlib.contextmanager
def _any_warehouse() -> Iterator[None]:
    """Numbers are taken to be those of whatever warehouse there is, and each counts them up."""
    with (
        _old_numbers(),
        replaced(Fence, _check_identity=_nothing),
        replaced(ownership, check_warehouse=lambda *_: None),
        replaced(LedgerShard, _is_foreign=lambda _: False),
    ):
        yield


@contextlib.contextmanager
def _events_not_awaited() -> Iterator[None]:
    """Events are answered 202 before Redis has them."""
    really, running = EventQueue.put, list[asyncio.Task[bool]]()

    async def put(self: EventQueue, *args: Any) -> bool:
        running.append(asyncio.create_task(really(self, *args)))
        return True

    with replaced(EventQueue, put=put):
        yield


@contextlib.contextmanager
def _events_removed_first() -> Iterator[None]:
    """Events leave the stream before the warehouse has them."""
    really = EventStream.read

    async def read(
        self: EventStream, *span: bytes
    ) -> Sequence[tuple[bytes, Mapping[bytes, bytes]]]:
        entries = await really(self, *span)
        if entries:
            await self.remove([id for id, _ in entries])
        return entries

    with replaced(EventStream, read=read):
        yield


@contextlib.contextmanager
def _outboxes_lost() -> Iterator[None]:
    """What an outbox has is taken out of it before it is delivered."""
    really = OutboxSweeper._deliver

    async def deliver(self: OutboxSweeper, shard: int, outboxes: Any) -> None:
        for number, outbox in outboxes.items():
            if outbox.entries:
                self._delivered[number] += (shard, outbox.entries)
        await really(self, shard, dict.fromkeys(outboxes, EMPTY))

    with replaced(OutboxSweeper, _deliver=deliver):
        yield


@contextlib.contextmanager
def _after_absorbed() -> Iterator[None]:
    """The drain goes on after the last batch that the warehouse has, whatever else it has read."""
    really = fence_module._compare

    async def compare(connection: Any, shard: ShardCounters, state: ShardState) -> ShardState:
        state = await really(connection, shard, state)
        absorbed = await warehouse_fence.absorbed_batch(connection, state.epoch, shard.number)
        return state._replace(read=min(state.read, absorbed.number))

    with replaced(fence_module, _compare=compare):
        yield


@contextlib.contextmanager
def _any_ledger() -> Iterator[None]:
    """Whatever ledger is there is the warehouse's own."""
    with replaced(preflight, judge=lambda *_: preflight.Finding("")):
        yield


@contextlib.contextmanager
def _numbers_alone() -> Iterator[None]:
    """Batches of the same number are taken for the same, whichever copy was read."""
    really = warehouse_fence.absorbed_batch

    async def absorbed_batch(*args: Any) -> warehouse_fence.Batch:
        return (await really(*args))._replace(segment="")

    with replaced(warehouse_fence, absorbed_batch=absorbed_batch):
        yield


@contextlib.contextmanager
def _wait() -> Iterator[None]:
    """What is acknowledged has reached the primary alone."""
    with replaced(Connections, demand=ReplicaDemand(0)):
        yield


@contextlib.contextmanager
def _grace() -> Iterator[None]:
    """A shard goes on without a replica at once, which takes over all the same."""
    with replaced(connection, GRACE_S=0.0):
        yield


@contextlib.contextmanager
def _carried_unconfirmed() -> Iterator[None]:
    """The drain carries what has reached no replica."""
    with replaced(ShardCounters, _await_replicas=_nothing):
        yield


@contextlib.contextmanager
def _refused_as_done() -> Iterator[None]:
    """Events count as stored, whatever a node has said to them."""

    def expect(reply: Any) -> Any:
        return None if isinstance(reply, ResponseError) else reply

    def take(self: Replication, replies: list[Any], now: float) -> list[Any]:
        return replies[: len(replies) - len(self._asked)]

    with replaced(queue, expect=expect), replaced(Replication, take=take):
        yield


@contextlib.contextmanager
def _half_moved() -> Iterator[None]:
    """Scripts go on where their slot is moving."""
    really = ShardKeys.__init__

    def init(self: ShardKeys, number: int) -> None:
        really(self, number)
        self.script_keys = (self.epoch, self.epoch)

    with replaced(ShardKeys, __init__=init):
        yield


@contextlib.contextmanager
def _cash_outs_not_revised() -> Iterator[None]:
    """Cash-outs keep the flags that they came with."""
    with replaced(events, revise_later=_nothing):
        yield


@contextlib.contextmanager
def _conversions_apart() -> Iterator[None]:
    """Conversions are counted once their events are stored, in a transaction of their own."""
    later = list[tuple[Any, ...]]()
    really, store = attribution.count, EventDrain._store_all

    async def count(connection: Any, key: Any, new: list[EventRow], clicks: Any) -> list[EventRow]:
        later.append((connection, key, new, clicks))
        return new

    async def store_all(
        self: EventDrain, connection: Any, rows: Sequence[EventRow]
    ) -> list[EventRow]:
        later.clear()
        new = await store(self, connection, rows)
        async with connection.transaction():
            for args in later:
                await really(*args)
        return new

    with replaced(attribution, count=count), replaced(EventDrain, _store_all=store_all):
        yield


@contextlib.contextmanager
def _counted(
    change: Callable[[Sequence[EventRow], list[EventRow]], list[EventRow]],
) -> Iterator[None]:
    """Of the events that were to be stored, others count for their clicks than those stored."""
    claim, count = events.claim, attribution.count
    all_rows: Sequence[EventRow] = ()

    async def claim_all(connection: Any, rows: Sequence[EventRow]) -> list[EventRow]:
        nonlocal all_rows
        all_rows = rows
        return await claim(connection, rows)

    async def count_changed(
        connection: Any, key: Any, new: list[EventRow], clicks: Any
    ) -> list[EventRow]:
        await count(connection, key, change(all_rows, new), clicks)
        return new

    with replaced(events, claim=claim_all), replaced(attribution, count=count_changed):
        yield


def _repeats_convert() -> AbstractContextManager[None]:
    """Events count for their clicks whenever they are sent."""
    return _counted(lambda rows, new: list(rows))


def _order_of_repeats() -> AbstractContextManager[None]:
    """Events count in the order of their last repeats."""

    def reorder(rows: Sequence[EventRow], new: list[EventRow]) -> list[EventRow]:
        ids = [row.event_id for row in rows]
        return sorted(new, key=lambda row: len(ids) - ids[::-1].index(row.event_id))

    return _counted(reorder)


@contextlib.contextmanager
def _first_users() -> Iterator[None]:
    """An anonymous id is that of the user who was first seen last."""
    with replaced(audiences, _ALIAS=_FIRST_USERS):
        yield


_FIRST_USERS: Final = """
insert into person_alias (anonymous, person)
select a, p from unnest($1::bigint[], $2::bigint[]) as i (a, p) where $3::bigint[] is not null
on conflict do nothing returning anonymous, person, true as is_new
"""


@contextlib.contextmanager
def _keys_kept() -> Iterator[None]:
    """Each key that ever signed click ids stays valid."""

    async def rotate_keys(connection: Any) -> None:
        await connection.execute("insert into click_key default values")

    with replaced(conversions, rotate_keys=rotate_keys):
        yield


MUTATIONS: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {
    **{name: _script(mutation) for name, mutation in SCRIPTS.items()},
    "doubts forgotten": _doubts_forgotten,
    "nothing carried": _nothing_carried,
    "any warehouse": _any_warehouse,
    "old numbers": _old_numbers,
    "events not awaited": _events_not_awaited,
    "events removed first": _events_removed_first,
    "cash-outs not revised": _cash_outs_not_revised,
    "outboxes lost": _outboxes_lost,
    "after absorbed": _after_absorbed,
    "any ledger": _any_ledger,
    "numbers alone": _numbers_alone,
    "WAIT": _wait,
    "grace": _grace,
    "carried unconfirmed": _carried_unconfirmed,
    "refused as done": _refused_as_done,
    "half moved": _half_moved,
    "conversions apart": _conversions_apart,
    "repeats convert": _repeats_convert,
    "order of repeats": _order_of_repeats,
    "first users": _first_users,
    "keys kept": _keys_kept,
}
