"""Which family a day is reported for, whatever becomes of its SSPs (document 1; contract 5.5)."""

import asyncio
import random
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, date, datetime, timedelta

import asyncpg
import pytest
from support.commands import succeed
from support.processes import eventually
from support.stack import JWT_SECRET, Stack, connected

from snapbid.embedded import demo
from snapbid.report import tokens
from snapbid.warehouse import absorb, audit, diagnosis, registry, reports
from snapbid.warehouse.absorb import CounterValue, SourceCounters
from snapbid.warehouse.reports import DayFigures

COST = 1_500_000
FAMILIES = ("acme", "nova", "solo")


class Books:
    """Counts of SSPs, absorbed as the drain does; the day of the test is over soon enough."""

    def __init__(self, connection: asyncpg.Connection, source: int) -> None:
        self.connection = connection
        self.today = datetime.now(UTC).date()
        self.closed, self.tomorrow = self.today - timedelta(2), self.today + timedelta(1)
        self._source = source
        self._counts: Counter[tuple[date, str, int]] = Counter()

    async def number(self, descriptor: str) -> int:
        found = await self.connection.fetchval(
            "select number from ssp_number where descriptor = $1", descriptor
        )
        return int(found)

    async def count(self, descriptor: str, day: date, times: int = 1) -> None:
        """So many bids that are won and billed."""
        number = await self.number(descriptor)
        for kind, by in (("b", 1), ("w", 1), ("p", COST), ("i", 1)):
            self._counts[day, kind, number] += by * times
        counters = [CounterValue(day, 0, kind, number, 0, value)
                    for (day, kind, number), value in self._counts.items()]  # fmt: skip
        await absorb.absorb(self.connection, [SourceCounters(self._source, counters)])

    async def reported(self, ssp: str) -> dict[date, DayFigures]:
        days = await reports.fetch(self.connection, ssp, self.closed, self.tomorrow)
        return {day: figures for day, figures in days.items() if any(figures)}

    async def all_reported(self) -> dict[str, dict[date, DayFigures]]:
        return {ssp: await self.reported(ssp) for ssp in FAMILIES}


def figures(times: int) -> DayFigures:
    return DayFigures(times, times, COST * times, times)


@pytest.fixture
async def books(database: str) -> AsyncIterator[Books]:
    async with connected(database) as connection:
        await registry.add(connection, "acme")
        await registry.add(connection, "acme-eu", "acme")
        await registry.add(connection, "nova")
        source = await absorb.source_of(connection, "epoch", "segment", 0, datetime.now(UTC).date())
        yield Books(connection, source)


async def count_all(books: Books, descriptors: Iterable[str]) -> None:
    for descriptor in descriptors:
        for times, day in enumerate((books.closed, books.today), 1):
            await books.count(descriptor, day, times)


async def test_a_variant_that_was_added_by_itself_keeps_its_days(books: Books) -> None:
    await registry.add(books.connection, "solo")
    await count_all(books, ("acme", "acme-eu", "solo"))
    before = await books.all_reported()
    assert before["acme"] == {books.closed: figures(2), books.today: figures(4)}
    assert before["solo"] == {books.closed: figures(1), books.today: figures(2)}
    done = await registry.add(books.connection, "solo", "acme")
    assert (done.family, done.until) == ("solo", books.today)
    assert await books.all_reported() == before
    await books.count("solo", books.closed)  # the warehouse was behind
    await books.count("solo", books.today)
    await books.count("solo", books.tomorrow)
    after = await books.all_reported()
    assert after["acme"] == {**before["acme"], books.tomorrow: figures(1)}
    assert after["solo"] == {books.closed: figures(2), books.today: figures(3)}
    assert await registry.fetch_former(books.connection) == ["solo"]


async def test_open_days_change_where_that_is_asked_for(books: Books) -> None:
    await registry.add(books.connection, "solo")
    await count_all(books, ("acme", "solo"))
    done = await registry.add(books.connection, "solo", "acme", open_days=True)
    assert done.until is None
    await books.count("solo", books.today, 4)
    assert await books.reported("acme") == {
        books.closed: figures(1),
        books.today: figures(2 + 2 + 4),
    }
    assert await books.reported("solo") == {books.closed: figures(1)}


async def test_a_change_that_is_pending_holds_for_open_days_once_asked_for(books: Books) -> None:
    await count_all(books, ("acme-eu",))
    assert (await registry.add(books.connection, "acme-eu", "nova")).until == books.today
    again = await registry.add(books.connection, "acme-eu", "nova", open_days=True)
    assert (again.outcome, again.until) == ("unchanged", None)
    assert await books.reported("acme") == {books.closed: figures(1)}
    assert await books.reported("nova") == {books.today: figures(2)}
    rows = await audit.fetch(books.connection, kind="ssp", object="acme-eu")
    regrouped = [row for row in rows if row.action == "regrouped"]
    assert len(regrouped) == 1


async def test_yesterday_changes_while_it_is_open(books: Books) -> None:
    yesterday = books.today - timedelta(1)
    await books.connection.execute(
        "create or replace function first_open_day() returns date stable language sql as"
        " 'select utc_today() - 1'"
    )
    await books.count("acme-eu", yesterday)
    await registry.add(books.connection, "acme-eu", "nova", open_days=True)
    assert await books.reported("nova") == {yesterday: figures(1)}
    assert await books.reported("acme") == {}


@pytest.mark.parametrize("hour", [0, 1, 2, 23])
async def test_a_day_closes_at_two(books: Books, hour: int) -> None:
    body = await books.connection.fetchval("select prosrc from pg_proc where proname = $1",
                                           "first_open_day")  # fmt: skip
    at = f"timestamptz '2026-05-31 {hour}:59:59Z'"
    day = await books.connection.fetchval(str(body).replace("now()", at))
    assert day == date(2026, 5, 30 if hour < 2 else 31)


async def test_removed_and_moved_variants_keep_their_days(books: Books) -> None:
    await count_all(books, ("acme", "acme-eu"))
    before = await books.all_reported()
    await registry.remove(books.connection, "acme-eu")
    assert await books.all_reported() == before
    await books.count("acme-eu", books.today)  # a notice that came late
    await registry.add(books.connection, "acme-eu", "nova")
    await books.count("acme-eu", books.tomorrow)
    after = await books.all_reported()
    assert after["acme"] == {books.closed: figures(2), books.today: figures(5)}
    assert after["nova"] == {books.tomorrow: figures(1)}


async def test_one_that_was_removed_before_begins_anew_at_once(books: Books) -> None:
    await count_all(books, ("acme-eu",))
    await registry.remove(books.connection, "acme-eu")
    await books.connection.execute(
        "update ssp_number set removed_on = $1 where descriptor = 'acme-eu'",
        books.today - timedelta(1),
    )
    await registry.add(books.connection, "acme-eu", "nova")
    await books.count("acme-eu", books.today)
    assert await books.reported("acme") == {books.closed: figures(1)}
    assert await books.reported("nova") == {books.today: figures(3)}


async def test_plain_sql_is_held_to_the_same(books: Books) -> None:
    await count_all(books, ("acme-eu", "nova"))
    before = await books.all_reported()
    await books.connection.execute("update ssp set canonical = 'nova' where descriptor = 'acme-eu'")
    assert await books.all_reported() == before
    await books.connection.execute("truncate ssp cascade")
    await books.connection.execute("insert into ssp values ('acme-eu', 'acme-eu')")
    assert await books.all_reported() == before


async def test_the_diagnosis_of_a_day_is_the_familys_of_that_day(
    books: Books, database: str
) -> None:
    await count_all(books, ("acme-eu",))
    await registry.add(books.connection, "acme-eu", "nova")
    async with asyncpg.create_pool(database, min_size=1, max_size=1) as pool:
        seen = {
            ssp: {
                (notice.day, notice.kind): notice.times
                for notice in (
                    await diagnosis.fetch(pool, ssp, (books.closed, books.today), 5)
                ).notices
            }
            for ssp in ("acme", "nova")
        }
    assert seen["acme"] == {
        (day, kind): times
        for times, day in enumerate((books.closed, books.today), 1)
        for kind in ("bids", "win", "billing")
    }
    assert seen["nova"] == {}


async def test_nothing_is_lost_while_the_drain_is_at_work(books: Books, database: str) -> None:
    """Counts that are absorbed while days change hands are in one family or the other."""

    async def regroup() -> None:
        async with connected(database) as other:
            for canonical in ("nova", "acme") * 8:
                await registry.add(other, "acme-eu", canonical, open_days=True)

    moving = asyncio.create_task(regroup())
    times = 0
    while not moving.done():
        await books.count("acme-eu", books.today)
        times += 1
    await moving
    assert await books.reported("acme") == {books.today: figures(times)}
    assert await books.reported("nova") == {}


@pytest.mark.parametrize("seed", range(12))
async def test_any_history(books: Books, seed: int) -> None:
    """Against a plain list of whose each day is."""
    rng = random.Random(seed)
    every_day = (books.closed, books.today, books.tomorrow)
    whose: dict[tuple[str, date], str] = {}
    canonical: dict[str, str] = {}
    counts: defaultdict[str, Counter[date]] = defaultdict(Counter)

    def give(descriptor: str, to: str, days: Iterable[date]) -> None:
        for day in days:
            whose[descriptor, day] = to

    for descriptor, to in (await registry.fetch_all(books.connection)).items():
        canonical[descriptor] = to
        give(descriptor, to, every_day)
    for _ in range(40):
        descriptor = rng.choice(("acme-eu", "solo", "a-x", "a-y"))
        is_family = any(of == descriptor != name for name, of in canonical.items())
        match rng.randrange(6):
            case 0 if descriptor in canonical and not is_family:
                await registry.remove(books.connection, descriptor)
                del canonical[descriptor]
            case 1 | 2 if not is_family:
                to = rng.choice(("acme", "nova", descriptor))
                open_days = rng.random() < 0.4
                await registry.add(books.connection, descriptor, to, open_days=open_days)
                is_new = (descriptor, books.closed) not in whose
                still_open = every_day[1:] if open_days else every_day[2:]
                give(descriptor, to, every_day if is_new else still_open)
                canonical[descriptor] = to
            case _ if (descriptor, books.closed) in whose:
                day, times = rng.choice(every_day), rng.randrange(1, 5)
                await books.count(descriptor, day, times)
                counts[descriptor][day] += times
        expected: defaultdict[str, Counter[date]] = defaultdict(Counter)
        for name, days in counts.items():
            for day, times in days.items():
                expected[whose[name, day]][day] += times
        for family in ("acme", "nova", "solo", "acme-eu", "a-x", "a-y"):
            assert await books.reported(family) == {
                day: figures(times) for day, times in expected[family].items()
            }, family


def status(stack: Stack, ssp: str, token: str) -> int:
    today = datetime.now(UTC).date()
    target = f"{stack.base_url}/api/v1/ssp/{ssp}/report?from={today}&to={today}"
    asked = urllib.request.Request(target, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_token_of_a_former_family_reads_its_own_days(
    database: str, start_stack: Callable[..., Stack]
) -> None:
    """A token stays valid until the secret changes (document 1, Authentication 5)."""
    asyncio.run(demo.seed(database))
    stack = start_stack()
    key, claims = JWT_SECRET.encode(), "snapbid"
    variant, solo = (tokens.issue(name, key, claims) for name in ("acme-eu", "solo"))
    succeed(stack.environ, "ssp", "add", "solo")
    eventually(lambda: status(stack, "solo", solo) == 200, "the new SSP has reports")
    succeed(stack.environ, "ssp", "add", "solo", "--canonical", "acme")
    succeed(stack.environ, "ssp", "add", "later", "--canonical", "acme")
    later = tokens.issue("later", key, claims)
    path = f"{stack.base_url}/api/v1/openrtb2/later/bid"
    eventually(lambda: stack.get("/readyz")[0] == 200 and is_known(path), "the catalog is there")
    assert [status(stack, "solo", solo), status(stack, "later", later)] == [200, 401]
    assert status(stack, "acme-eu", variant) == 401
    assert succeed(stack.environ, "token", "issue", "solo")


def is_known(path: str) -> bool:
    asked = urllib.request.Request(path, b"{}", {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(asked, timeout=60).close()
    except urllib.error.HTTPError as error:
        with error:
            return error.code != 404
    return True
