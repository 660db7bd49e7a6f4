"""The self-audit of the auction log (contract 5.5 and 11): the reports have what the log has."""

import asyncio
import datetime
import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from support import books, logged
from support.books import Books, set_up, trade
from support.stack import Stack, connected

from snapbid.auctionlog.daily import CLOSED_MS, EDGE_MS, LoggedDay, count_day
from snapbid.auctionlog.files import files_of
from snapbid.drain.logged import LoggedAuctions
from snapbid.ledger.admin.audits import Difference

DAY = datetime.date(2026, 1, 2)
START_MS = 1_767_312_000_000  # of that day
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
AUCTIONS = 200


class Row(NamedTuple):
    ms: int  # since the start of DAY
    kind: str
    verdict: str | None
    auction: str | None
    campaign: str | None = None
    test: bool | None = None


def bid(ms: int, auction: str, campaign: str = "c-1", *, test: bool = False) -> Row:
    return Row(ms, "bid", None, auction, campaign, test)


def write(directory: Path, rows: Iterable[Row], name: str = "a") -> None:
    """Write a file of the log for each day that has rows, with the columns that matter here."""
    by_day: dict[datetime.date, list[Row]] = {}
    for row in rows:
        day = DAY + datetime.timedelta(days=row.ms // DAY_MS)
        by_day.setdefault(day, []).append(row)
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE log (ms BIGINT, kind VARCHAR, verdict VARCHAR, auction_id VARCHAR,"
            " campaign_id VARCHAR, test BOOLEAN)"
        )
        for day, of_day in by_day.items():
            folder = directory / f"date={day}"
            folder.mkdir(parents=True, exist_ok=True)
            database.execute("DELETE FROM log")
            database.executemany("INSERT INTO log VALUES ($1, $2, $3, $4, $5, $6)", of_day)
            database.execute(
                "COPY (SELECT make_timestamptz((ms + $start) * 1000) AS time, '1' AS imp_id, *"
                " EXCLUDE ms FROM log) TO $path (FORMAT parquet)",
                {"start": START_MS, "path": str(folder / f"{name}.parquet")},
            )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], LoggedDay({}, 0, 0)),
        ([bid(HOUR_MS, "a"), bid(HOUR_MS, "b", "c-2"), bid(HOUR_MS, "c")],
         LoggedDay({"c-1": 2, "c-2": 1}, 0, 0)),
        ([bid(HOUR_MS, "a", test=True)], LoggedDay({}, 0, 0)),
        ([bid(0, "a"), bid(DAY_MS - 1, "b"), bid(-1, "c"), bid(DAY_MS, "d")], LoggedDay({}, 0, 0)),
        ([bid(EDGE_MS, "a"), bid(DAY_MS - EDGE_MS, "b")], LoggedDay({"c-1": 2}, 0, 0)),
        # after two in the morning a notice that counts is of a bid of this day, or late
        ([Row(5 * HOUR_MS, "win", "counted", "a"), Row(5 * HOUR_MS, "billing", "late", "b"),
          Row(5 * HOUR_MS, "win", "duplicate", "a"), Row(5 * HOUR_MS, "win", "unknown", "c"),
          Row(5 * HOUR_MS, "loss", "counted", "d"), Row(5 * HOUR_MS, "win", "spooled", "e")],
         LoggedDay({}, 1, 1)),
        # before, the bid says of which
        ([bid(-HOUR_MS, "a"), Row(HOUR_MS, "win", "counted", "a")], LoggedDay({}, 0, 0)),
        ([bid(HOUR_MS, "a"), Row(HOUR_MS, "win", "counted", "a")], LoggedDay({"c-1": 1}, 1, 0)),
        ([bid(HOUR_MS, "a"), Row(DAY_MS + HOUR_MS, "win", "counted", "a")],
         LoggedDay({"c-1": 1}, 1, 0)),
        ([Row(HOUR_MS, "win", "late", "a")], LoggedDay({}, 1, 0)),
        # a bid of each day, an unknown one, and ids that a spool has kept
        ([bid(-HOUR_MS, "a"), bid(HOUR_MS, "a"), Row(HOUR_MS, "win", "counted", "a")],
         LoggedDay({"c-1": 1}, 0, 0)),
        ([Row(HOUR_MS, "win", "counted", "a")], LoggedDay({}, 0, 0)),
        ([Row(HOUR_MS, "win", "counted", None)], LoggedDay({}, 0, 0)),
    ],
)  # fmt: skip
def test_what_certainly_counts_on_a_day(
    rows: list[Row], expected: LoggedDay, tmp_path: Path
) -> None:
    write(tmp_path, rows)
    assert count_day(files_of(tmp_path, DAY, DAY), DAY) == expected


def test_nothing_counts_that_the_plain_rule_does_not_count(tmp_path: Path) -> None:
    """Each figure is that of the rule, less at most what is at the edges."""
    choose = random.Random(7)
    rows: list[Row] = []
    counted: Counter[tuple[str, int]] = Counter()
    at_edges: Counter[tuple[str, int]] = Counter()
    for number in range(3_000):
        at = choose.randrange(-DAY_MS // 2, 3 * DAY_MS // 2)
        rows.append(bid(at, f"a{number}"))
        note(counted, at_edges, "bid", at, at)
        if choose.random() < 0.5:
            came = at + choose.randrange(4 * HOUR_MS)
            closed = (at // DAY_MS + 1) * DAY_MS + CLOSED_MS
            is_late = came >= closed
            rows.append(Row(came, "win", "late" if is_late else "counted", f"a{number}"))
            note(counted, at_edges, "win", came if is_late else at, came)
    write(tmp_path, rows)
    found = count_day(files_of(tmp_path, DAY, DAY), DAY)
    for kind, figure in (("bid", found.bids["c-1"]), ("win", found.wins)):
        assert counted[kind, 0] - at_edges[kind, 0] <= figure <= counted[kind, 0]


def note(
    counted: Counter[tuple[str, int]],
    edges: Counter[tuple[str, int]],
    kind: str,
    at: int,
    came: int,
) -> None:
    """Count something on its day, and as one at an edge if either time is near midnight."""
    counted[kind, at // DAY_MS] += 1
    if any(min(ms % DAY_MS, -ms % DAY_MS) <= EDGE_MS for ms in (at, came)):
        edges[kind, at // DAY_MS] += 1


async def test_what_the_reports_lack_is_named(database: str, tmp_path: Path) -> None:
    noon = (START_MS + DAY_MS / 2) / 1000
    log = LoggedAuctions(tmp_path, lambda: noon)
    write(tmp_path, [bid(HOUR_MS + number, f"a{number}") for number in range(5)])
    async with connected(database) as connection:
        assert await log.compare(connection) == []  # it may be on its way
        lacking = [Difference("auctions", f"bids of c-1 in the auction log of {DAY}", 5, 0)]
        assert await log.compare(connection) == lacking
        await put(connection, bids=5, wins=1)
        assert await log.compare(connection) == []
        write(tmp_path, [Row(5 * HOUR_MS, "win", "counted", "a1"),
                         Row(5 * HOUR_MS, "win", "counted", "a2")], "b")  # fmt: skip
        assert await log.compare(connection) == []
        found = await log.compare(connection)
        assert found == [Difference("auctions", f"wins in the auction log of {DAY}", 2, 1)]


async def test_counts_on_their_way_are_no_difference(database: str, tmp_path: Path) -> None:
    """The reports come up to what the log had a minute ago, for ever behind."""
    noon = (START_MS + DAY_MS / 2) / 1000
    log = LoggedAuctions(tmp_path, lambda: noon)
    async with connected(database) as connection:
        for number in range(4):
            write(tmp_path, [bid(HOUR_MS, f"{number}-{n}") for n in range(10)], f"f{number}")
            assert await log.compare(connection) == []
            await put(connection, bids=10 * (number + 1), wins=0)


async def test_a_log_that_cannot_be_read_stops_no_audit(database: str, tmp_path: Path) -> None:
    folder = tmp_path / f"date={DAY}"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(b"PAR1 and no more")
    log = LoggedAuctions(tmp_path, lambda: (START_MS + DAY_MS / 2) / 1000)
    async with connected(database) as connection:
        assert await log.compare(connection) == []


async def put(connection: Any, *, bids: int, wins: int) -> None:
    await connection.execute(
        "insert into campaign_daily (day, campaign, bids, wins, imps, win_cpm_micros, spend_micros,"
        " counted) values ($1, 'c-1', $2, $3, 0, 0, 0, true)"
        " on conflict (day, campaign) where counted do update set bids = $2, wins = $3",
        DAY, bids, wins,
    )  # fmt: skip


def test_real_traffic_agrees(
    database: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    directory = tmp_path / "auctions"
    asyncio.run(set_up(database))
    served = start_stack(
        SNAPBID_BASE_URL=books.BASE_URL,
        SNAPBID_AUCTION_LOG=str(directory),
        SNAPBID_AUCTION_LOG_S="1",
    )
    own = Books(random.Random(11))
    asyncio.run(trade(own, served.port, auctions=AUCTIONS))
    served.close()
    bids = sum(row["kind"] == "bid" for row in logged.read(directory))
    with closing(Stack(served.environ, "drain")) as drain:
        drain.launch()
        assert asyncio.run(audited(database, directory, bids)) == []
    asyncio.run(lose_a_bid(database))
    assert len(asyncio.run(audited(database, directory, bids - 1))) == 1


async def audited(dsn: str, directory: Path, bids: int) -> list[Difference]:
    """Audit twice, once the reports have these bids."""
    log = LoggedAuctions(directory)
    async with connected(dsn) as connection:
        async with asyncio.timeout(120):
            while await connection.fetchval("select sum(bids) from campaign_daily") != bids:
                await asyncio.sleep(0.05)
        await log.compare(connection)
        return await log.compare(connection)


async def lose_a_bid(dsn: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute(
            "update campaign_daily set bids = bids - 1"
            " where campaign = (select min(campaign) from campaign_daily)"
        )
