"""Events over many days: stored once, kept for as long as is wanted."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from time import time

import pytest
from support.event_bench import GEO, HISTORY, Bench
from support.sending import cashed_out, claimed, event, money, offered
from support.stack import connected

from snapbid.drain import forgetting
from snapbid.drain.events import EventDrain
from snapbid.warehouse import events, products


def ago(days: int) -> int:
    """Epoch ms at noon of so many days ago, by UTC."""
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    return int((noon - timedelta(days=days)).timestamp() * 1000)


def keep(bench: Bench, days: int | None, clock: Callable[[], float] = time) -> None:
    """A drain that has just begun, and keeps events for so many days."""
    bench.drain = EventDrain(bench.redis, bench.metrics, GEO, HISTORY, clock, keep_days=days)


async def in_partitions(bench: Bench) -> dict[str, list[str]]:
    """The users whose events are in each partition that has some."""
    rows = await bench.rows(
        "select tableoid::regclass::text, array_agg(client_user_id order by client_user_id)"
        " from events group by 1 order by 1"
    )
    return dict(rows)


def of_day(days_ago: int) -> str:
    return f"events_{datetime.fromtimestamp(ago(days_ago) / 1000, UTC):%Y%m%d}"


async def test_an_id_is_stored_once_however_many_days_lie_between(bench: Bench) -> None:
    keep(bench, 30)
    for days in (5, 5, 3, 0):
        await bench.accept(event("login", "u"), claimed("b"), at=ago(days))
        await bench.accept(event("withdraw", transaction_id="t", **money(days)), at=ago(days))
        await bench.round()
    assert len(await bench.rows("select from events")) == 3
    assert {time for (time,) in await bench.rows("select received_at from events")} == {
        datetime.fromtimestamp(ago(5) / 1000, UTC)
    }
    amounts = "select (context ->> 'amount')::int from event_conflicts order by 1"
    assert await bench.rows(amounts) == [(0,), (3,)]
    await bench.accept(offered("b"), cashed_out("b", 1), at=ago(1))
    await bench.round()
    flags_of = await bench.flags()
    assert flags_of["bonus_claimed"] == ["out_of_order"]
    assert flags_of["bonus_cashed_out"] == ["reference_missing"]


async def test_days_are_dropped(bench: Bench) -> None:
    keep(bench, 30)
    for days in (9, 4, 3, 0):
        await bench.accept(event("login", f"u{days}"), at=ago(days))
        await bench.accept(event("withdraw", "w", transaction_id="t", **money(days)), at=ago(days))
    await bench.accept(event("login", "very old"), at=1_717_200_000_000)
    await bench.round()
    assert await in_partitions(bench) == {
        of_day(9): ["u9", "w"], of_day(4): ["u4"], of_day(3): ["u3"], of_day(0): ["u0"],
        "events_other": ["very old"],
    }  # fmt: skip
    keep(bench, 3)
    await bench.round()
    assert await in_partitions(bench) == {of_day(3): ["u3"], of_day(0): ["u0"]}
    ids = "select event_id from {} order by 1"
    assert await bench.rows(ids.format("event_ids")) == await bench.rows(ids.format("events"))
    assert len(await bench.rows("select from event_conflicts")) == 2
    ahead = await bench.rows("select max(next) - now() > interval '7 days' from event_partitions")
    assert ahead == [(True,)]


async def test_dead_letters_are_kept_as_long(bench: Bench) -> None:
    letters = [events.DeadLetter(f"e{days}", "p", None, "why", b"%d" % days) for days in (9, 4, 2)]
    await events.dead_letter(bench.connection, letters)
    await bench.connection.execute(
        "update event_dead_letters set failed_at = now() - right(event_id, 1)::int * interval '1 d'"
    )
    left = "select event_id from event_dead_letters order by number"
    for days, kept in ((None, ["e9", "e4", "e2"]), (30, ["e9", "e4", "e2"]), (3, ["e2"])):
        keep(bench, days)
        await bench.round()
        assert [id for (id,) in await bench.rows(left)] == kept


async def test_events_kept_for_ever_are_in_months(bench: Bench) -> None:
    """Days that follow them, and months that follow these, begin where the others end."""
    made: list[str] = []
    for kept, day, more in (
        (None, 15, ["events_203006"]),
        (30, 25, ["events_20300701", "events_20300702"]),
        (None, 26, ["events_203007"]),
    ):
        now = datetime(2030, 6, day, tzinfo=UTC).timestamp()
        keep(bench, kept, lambda now=now: now)  # type: ignore[misc]
        await bench.accept(event("login", f"u{day}"), at=int(now * 1000))
        await bench.round()
        made += more
        names = "select name from event_partitions where first >= '2030-06-01' order by first"
        assert [name for (name,) in await bench.rows(names)] == made
    assert await in_partitions(bench) == {"events_203006": ["u15", "u25", "u26"]}
    spans = await bench.rows("select first, next from event_partitions order by first")
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert spans[-1][1] == datetime(2030, 8, 1, tzinfo=UTC)


async def test_a_failed_partition_stops_no_event(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    keep(bench, 30)
    async with connected(bench.dsn) as reader, reader.transaction():
        await reader.fetch("select from events")
        await bench.accept(event("login", "u"), event("login", "v"), at=ago(0))
        await bench.round()
        assert await in_partitions(bench) == {"events_other": ["u", "v"]}
        assert ": LockNotAvailableError; retrying in 60 s" in caplog.text
    keep(bench, 30)
    await bench.accept(event("login", "u"), at=ago(0))
    await bench.round()
    assert await in_partitions(bench) == {of_day(0): ["u", "v"]}


async def test_a_partition_that_is_read_is_dropped_later(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    keep(bench, 30)
    await bench.accept(event("login", "old"), at=ago(9))
    await bench.round()
    keep(bench, 3)
    async with connected(bench.dsn) as reader, reader.transaction():
        await reader.fetch(f"select from {of_day(9)}")
        await bench.accept(event("login", "u"), at=ago(0))
        await bench.round()
        assert f"drop the partition {of_day(9)}" in caplog.text
        assert ": LockNotAvailableError; retrying in 60 s" in caplog.text
        assert (await in_partitions(bench))[of_day(0)] == ["u"]
    keep(bench, 3)
    await bench.round()
    assert await in_partitions(bench) == {of_day(0): ["u"]}


async def test_a_person_is_forgotten_whatever_the_day(bench: Bench) -> None:
    keep(bench, 30)
    await bench.accept(event("login", "gone"), event("login", "stays"), at=ago(9))
    await bench.accept(
        event("withdraw", "gone", transaction_id="t", **money(1)),
        offered("b", user="gone"),
        at=ago(2),
    )
    await bench.round()
    async with bench.connection.transaction():
        await products.add(bench.connection, "casino", ("igaming",))
        done = await forgetting.forget(bench.connection, forgetting.Asked(["gone"]))
    assert done.removed["events"] == 3
    kept = await bench.rows("select client_user_id from events where context <> '{}'")
    assert kept == [("stays",)]
    await bench.accept(claimed("b", user="gone"), event("login", "gone"), at=ago(0))
    await bench.round()
    assert len(await bench.rows("select from events where context = '{}'")) == 4
    assert not await bench.rows("select from event_ids where sequence is not null")
