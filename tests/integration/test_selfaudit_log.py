"""The self-audit of the auction log (contract 5.5 and 11): the reports have what the log has."""

import asyncio
import datetime
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
import redis
from redis.asyncio import Redis
from support import books, logged
from support.books import Books, set_up, trade
from support.stack import Stack, connected, draining

from snapbid.auctionlog.daily import CLOSED_MS, EDGE_MS, LoggedDay, count_day
from snapbid.auctionlog.files import files_of
from snapbid.base.redis_keys import ShardKeys, shard_of
from snapbid.drain.logged import LoggedAuctions
from snapbid.ledger.admin.audits import Difference
from snapbid.ledger.bids.records import WIN, bid_digest, family_of

DAY = datetime.date(2026, 1, 2)
START_MS = 1_767_312_000_000  # of that day
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
AUCTIONS = 200
KINDS_AT = 18  # in a record


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
                "COPY (SELECT make_timestamptz((ms + $start) * 1000) AS time, '1' AS imp_id,"
                " NULL::VARCHAR AS ssp, *"
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
def test_entries_that_certainly_count_on_a_day(
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


@pytest.fixture
async def log(fresh_redis: str, tmp_path: Path) -> AsyncIterator[LoggedAuctions]:
    """The log of an empty ledger, at noon of DAY."""
    async with Redis.from_url(fresh_redis) as redis:
        yield LoggedAuctions(tmp_path, redis, 1, lambda: (START_MS + DAY_MS / 2) / 1000)


async def test_figures_missing_from_the_reports_are_named(
    database: str, log: LoggedAuctions, tmp_path: Path
) -> None:
    write(tmp_path, [bid(HOUR_MS + number, f"a{number}") for number in range(5)])
    async with connected(database) as connection:
        assert await log.compare(connection) == []  # it may be on its way
        lacking = [Difference("auctions", f"bids of c-1 on {DAY}", 5, 0)]
        assert await log.compare(connection) == lacking
        await put(connection, bids=5, wins=1)
        assert await log.compare(connection) == []
        write(tmp_path, [Row(5 * HOUR_MS, "win", "counted", "a1"),
                         Row(5 * HOUR_MS, "win", "counted", "a2")], "b")  # fmt: skip
        assert await log.compare(connection) == []
        found = await log.compare(connection)
        assert found == [Difference("auctions", f"wins on {DAY}", 2, 1)]


async def test_lost_auctions_of_the_last_half_hour_are_named(
    database: str, log: LoggedAuctions, tmp_path: Path
) -> None:
    half_past_eleven = 23 * HOUR_MS // 2
    write(tmp_path, [bid(half_past_eleven - 1, "early"), bid(half_past_eleven, "z", test=True),
                     bid(half_past_eleven, "b", "c-2"),
                     *(bid(half_past_eleven + n, f"a{n}") for n in range(3, -1, -1))])  # fmt: skip
    async with connected(database) as connection:
        await put(connection, bids=0, wins=0)
        await log.compare(connection)
        found = await log.compare(connection)
    assert [each.what for each in found] == [
        f"bids of c-1 on {DAY}, not in the ledger: a0/1, a1/1, a2/1",
        f"bids of c-2 on {DAY}, not in the ledger: b/1",
    ]


async def test_a_file_that_goes_while_it_is_read_stops_no_audit(
    database: str, fresh_redis: str, tmp_path: Path
) -> None:
    """The retention may delete a file after its rows were counted, before any is named."""
    write(tmp_path, [bid(HOUR_MS, "a")])
    times = iter([False, False, True])

    def clock() -> float:
        if next(times):
            for path in tmp_path.rglob("*.parquet"):
                path.unlink()
        return (START_MS + DAY_MS / 2) / 1000

    async with Redis.from_url(fresh_redis) as redis, connected(database) as connection:
        log = LoggedAuctions(tmp_path, redis, 1, clock)
        assert await log.compare(connection) == []
        lacking = [Difference("auctions", f"bids of c-1 on {DAY}", 1, 0)]
        assert await log.compare(connection) == lacking


async def test_counts_on_their_way_are_no_difference(
    database: str, log: LoggedAuctions, tmp_path: Path
) -> None:
    """The reports come up to what the log had a minute ago, for ever behind."""
    async with connected(database) as connection:
        for number in range(4):
            write(tmp_path, [bid(HOUR_MS, f"{number}-{n}") for n in range(10)], f"f{number}")
            assert await log.compare(connection) == []
            await put(connection, bids=10 * (number + 1), wins=0)


async def test_a_log_that_cannot_be_read_stops_no_audit(
    database: str, log: LoggedAuctions, tmp_path: Path
) -> None:
    folder = tmp_path / f"date={DAY}"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(b"PAR1 and no more")
    async with connected(database) as connection:
        assert await log.compare(connection) == []


async def put(connection: Any, *, bids: int, wins: int) -> None:
    await connection.execute(
        "insert into campaign_daily (day, campaign, bids, wins, imps, win_cpm_micros, spend_micros,"
        " counted) values ($1, 'c-1', $2, $3, 0, 0, 0, true)"
        " on conflict (day, campaign) where counted do update set bids = $2, wins = $3",
        DAY, bids, wins,
    )  # fmt: skip


@pytest.mark.parametrize(("shards", "signed"), [(1, False), (3, True)])
def test_real_traffic_agrees(
    shards: int,
    signed: bool,
    database: str,
    fresh_redis: str,
    start_stack: Callable[..., Stack],
    tmp_path: Path,
) -> None:
    directory = tmp_path / "auctions"
    asyncio.run(set_up(database))
    served = start_stack(
        SNAPBID_BASE_URL=books.BASE_URL,
        SNAPBID_AUCTION_LOG=str(directory),
        SNAPBID_AUCTION_LOG_S="1",
        SNAPBID_LEDGER_SHARDS=str(shards),
        SNAPBID_SIGNED_NOTICES=str(int(signed)),
    )
    own = Books(random.Random(11))
    asyncio.run(trade(own, served.port, auctions=AUCTIONS))
    served.close()
    rows = logged.read(directory)
    bids = [row for row in rows if row["kind"] == "bid"]
    wins = [row for row in rows if row["kind"] == "win" and row["verdict"] == "counted"]
    audit = partial(audited, database, fresh_redis, shards, directory)
    with draining(served):
        assert asyncio.run(audit(len(bids))) == []
    lost = bids[0]
    unwon = next(bid for bid in bids if name(bid) == name(wins[-1]))
    asyncio.run(lose(database, lost["campaign_id"]))
    found = asyncio.run(audit(len(bids) - 1))
    assert [each.what.split(" on ")[0] for each in found] == [
        f"bids of {lost['campaign_id']}",
        "wins",
    ]
    assert not any("not in the ledger" in each.what for each in found)
    change_record(fresh_redis, shards, signed, lost, None)
    change_record(fresh_redis, shards, signed, unwon, WIN)
    of_bids, of_wins = asyncio.run(audit(len(bids) - 1))
    assert lacking(of_bids) == {name(lost)}
    assert lacking(of_wins) == {name(unwon), *({name(lost)} & set(map(name, wins)))}


def name(row: dict[str, Any]) -> str:
    return f"{row['auction_id']}/{row['imp_id']}"


def lacking(difference: Difference) -> set[str]:
    return set(difference.what.partition(", not in the ledger: ")[2].split(", "))


async def audited(
    dsn: str, redis_url: str, shards: int, directory: Path, bids: int
) -> list[Difference]:
    """Audit twice, once the reports have these bids."""
    async with Redis.from_url(redis_url) as redis, connected(dsn) as connection:
        log = LoggedAuctions(directory, redis, shards)
        async with asyncio.timeout(120):
            while await connection.fetchval("select sum(bids) from campaign_daily") != bids:
                await asyncio.sleep(0.05)
        await log.compare(connection)
        return await log.compare(connection)


async def lose(dsn: str, campaign: str) -> None:
    """Take a bid and all wins of a campaign out of the reports."""
    async with connected(dsn) as connection:
        await connection.execute(
            "update campaign_daily set bids = bids - 1, wins = 0 where campaign = $1", campaign
        )


def change_record(
    redis_url: str, shards: int, signed: bool, row: dict[str, Any], kind: int | None
) -> None:
    """Take a kind of notice out of a bid's record, or remove it."""
    auction = (family_of(row["ssp"]) if signed else b"") + row["auction_id"].encode()
    shard = ShardKeys(shard_of(auction, shards))
    field = bid_digest(auction, row["imp_id"].encode())[2:]
    with closing(redis.Redis.from_url(redis_url)) as client:
        keys: Any = client.keys(f"{shard.prefix}r:*")
        (key,) = [key for key in keys if client.hexists(key, field)]
        if kind is None:
            client.hdel(key, field)
        else:
            value: Any = client.hget(key, field)
            record = bytearray(value)
            record[KINDS_AT] &= ~kind
            client.hset(key, field, bytes(record))
