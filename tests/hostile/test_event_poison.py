"""Events that no transaction can hold, or that end it: no other partner waits for them.

A partner's events fail by their number, by time or with the connection, not only by their values
(contract 7, "one partner's flood delays no other's events").
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support.event_bench import Bench
from support.sending import cashed_out, claimed, completed, event

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain import events as drain_events
from snapbid.events.outcomes import Product
from snapbid.warehouse.events import join

SHOP = Product("shop", frozenset())
ROUNDS = 60


@pytest.fixture
async def bench(database: str, fresh_redis: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(database, fresh_redis, tmp_path) as bench:
        yield bench


async def carry(bench: Bench, rounds: int = ROUNDS) -> int:
    """Do rounds as `snapbid drain` does, connecting anew where the connection has ended; until
    nothing waits. Give how many.
    """
    for number in range(1, rounds + 1):
        try:
            await bench.drain.round(bench.connection)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            if bench.connection.is_closed():
                bench.connection = await asyncpg.connect(bench.dsn)
                assert await join(bench.connection)
        if not await bench.redis.xlen(ShardKeys(0).events):
            return number
    raise AssertionError(f"events wait after {rounds} rounds")


async def stored(bench: Bench, where: str = "true") -> int:
    ((count,),) = await bench.rows(f"select count(*) from events where {where}")
    return int(count)


async def letters(bench: Bench) -> set[str]:
    return {reason for (reason,) in await bench.rows("select reason from event_dead_letters")}


# -- by their number ------------------------------------------------------------------------------


class Counting(asyncpg.Connection):  # type: ignore[misc]
    """A connection that records the most rows that a statement has read or written."""

    largest = 0

    async def fetch(self, *args: Any, **more: Any) -> Any:
        rows = await super().fetch(*args, **more)
        Counting.largest = max(Counting.largest, len(rows))
        return rows

    async def execute(self, *args: Any, **more: Any) -> Any:
        sizes = [len(arg) for arg in args[1:] if isinstance(arg, list)]
        Counting.largest = max([Counting.largest, *sizes])
        return await super().execute(*args, **more)


@pytest.mark.parametrize("late", [claimed("b"), completed("b")], ids=lambda late: late["event"])
async def test_a_bonus_with_many_cash_outs_is_never_loaded_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, late: dict[str, Any]
) -> None:
    monkeypatch.setattr(drain_events, "ROWS", 50)
    for start in range(0, 1_200, 600):
        await bench.accept(*(cashed_out("b", 1 + start + n) for n in range(600)))
    await carry(bench)
    await bench.connection.close()
    bench.connection = await asyncpg.connect(bench.dsn, connection_class=Counting)
    assert await join(bench.connection)
    monkeypatch.setattr(Counting, "largest", 0)
    await bench.accept(late)
    await bench.accept(event("login"), product=SHOP)
    await carry(bench)
    for _ in range(10):
        await bench.drain.round(bench.connection)
    assert 1 < Counting.largest < 200
    assert await stored(bench, "event = 'login'") == 1
    assert await stored(bench, "flags @> '{out_of_order}'") == 1_200
    assert not await bench.rows("select from event_revision")


async def test_an_interrupted_revision_is_resumed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_events, "ROWS", 100)
    await bench.accept(*(cashed_out("b", 1 + n) for n in range(500)))
    await carry(bench)
    monkeypatch.setattr(drain_events, "REVISE_S", 0.0)
    await bench.accept(claimed("b"))
    await carry(bench)
    assert await stored(bench, "flags @> '{out_of_order}'") == 0
    monkeypatch.undo()
    bench.drain = drain_events.EventDrain(bench.redis, bench.metrics, *bench.references)
    await bench.accept(completed("b"))
    await carry(bench)
    for _ in range(ROUNDS):
        await bench.drain.round(bench.connection)
    assert await stored(bench, "flags = '{out_of_order}'") == 500
    assert not await bench.rows("select from event_revision")


async def test_reflagging_of_one_bonus_is_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documented bound: the others keep the flags that they came with."""
    monkeypatch.setattr(drain_events, "ROWS", 50)
    monkeypatch.setattr("snapbid.drain.sequences.MEMBERS", 100)
    await bench.accept(*(cashed_out("b", 1 + n) for n in range(300)))
    await carry(bench)
    await bench.accept(claimed("b"))
    for _ in range(10):
        await bench.drain.round(bench.connection)
    cash_outs = "event = 'bonus_cashed_out' and flags"
    assert await stored(bench, f"{cash_outs} @> '{{out_of_order}}'") == 100
    assert await stored(bench, f"{cash_outs} = '{{reference_missing}}'") == 200
    assert not await bench.rows("select from event_revision")


# -- by time, or with the connection --------------------------------------------------------------

SLOWLY = "perform pg_sleep(60)"
FATALLY = "perform pg_terminate_backend(pg_backend_pid())"
WRONGLY = "raise exception using errcode = 'XX000'"


async def poison(bench: Bench, how: str) -> None:
    """Make the warehouse fail in some way on the events of a user called poison."""
    await bench.connection.execute(
        f"""
        create function fail() returns trigger language plpgsql as $$
        begin
            {how};
            return new;
        end $$;
        create trigger fail before insert on events for each row
            when (new.client_user_id like 'poison%') execute function fail();
        """
    )


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (SLOWLY, "fails: QueryCanceledError (57014)"),
        (FATALLY, "fails: ConnectionDoesNotExistError (08003)"),
        (WRONGLY, "fails: InternalServerError (XX000)"),
    ],
    ids=["slowly", "fatally", "wrongly"],
)
async def test_failing_events_alone_are_dead_lettered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str, reason: str
) -> None:
    if how == SLOWLY:
        monkeypatch.setattr(drain_events, "STATEMENT_S", 1.0)
    await poison(bench, how)
    names = [f"u{number}" for number in range(40)]
    names[13] = names[38] = "poison"
    await bench.accept(*(event("login", name, at=1_717_200_000_000 + place)
                         for place, name in enumerate(names)))  # fmt: skip
    await bench.accept(event("login", "other"), product=SHOP)
    for _ in range(3):  # whoever waits beside them waits for one attempt
        await carry_on(bench)
    assert await stored(bench, "product = 'shop'") == 1
    await carry(bench)
    assert await stored(bench, "product = 'casino'") == 38
    assert await letters(bench) == {reason}
    assert await bench.rows("select count(*) from event_dead_letters") == [(2,)]


async def carry_on(bench: Bench) -> None:
    """Run a round, whether it fails or not."""
    with contextlib.suppress(AssertionError):
        await carry(bench, 1)


async def test_an_unavailable_warehouse_dead_letters_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no event at all is taken nothing is halved, nor set aside, however long that lasts."""
    monkeypatch.setattr(drain_events, "STATEMENT_S", 0.3)
    await bench.accept(claimed("b"))
    for broken, mended in (
        ("alter table event_revision rename to gone", "alter table gone rename to event_revision"),
        ("alter table event_ids rename to gone", "alter table gone rename to event_ids"),
        ("set default_transaction_read_only = on", "set default_transaction_read_only = off"),
    ):
        await bench.connection.execute(broken)
        for _ in range(8):
            with pytest.raises(asyncpg.PostgresError):
                await bench.drain.round(bench.connection)
        await bench.connection.execute(mended)
        assert not await letters(bench)
    await carry(bench)
    assert await stored(bench) == 1


@pytest.mark.parametrize("state", ["53100", "57P01"])
async def test_a_slow_warehouse_dead_letters_nothing(bench: Bench, state: str) -> None:
    """A disk may have room for a plain event and none for another, for as long as it is full."""
    await poison(bench, f"raise exception using errcode = '{state}'")
    await bench.accept(event("login", "poison"))
    for _ in range(6):
        with contextlib.suppress(asyncpg.PostgresError):
            await bench.drain.round(bench.connection)
    assert not await letters(bench)
    await bench.connection.execute("drop trigger fail on events")
    await carry(bench)
    assert await stored(bench) == 1


async def test_a_warehouse_that_is_killed_again_and_again_loses_no_event(bench: Bench) -> None:
    """Each attempt ends with the connection, and so does the look whether it is well."""
    await poison(bench, FATALLY)
    await bench.connection.execute("drop trigger fail on events")
    await bench.connection.execute(
        "create trigger fail before insert on events for each row execute function fail()"
    )
    await bench.accept(event("login", "alone"))
    for _ in range(12):
        await carry_on(bench)
    assert not await letters(bench)
    await bench.connection.execute("drop trigger fail on events")
    await carry(bench)
    assert await stored(bench) == 1
