"""The auction log's chunks and files: nothing lost but what gaps admit, nothing twice."""

import asyncio
import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.logged import files, missing, read
from support.remembered import until

import snapbid
from snapbid.auctionlog import chunks, writer
from snapbid.auctionlog import files as log_files
from snapbid.auctionlog.chunks import spool_of
from snapbid.auctionlog.layout import ChunkState, note_converted
from snapbid.auctionlog.log import AuctionLog
from snapbid.auctionlog.writer import LogWriter
from snapbid.bidding.request import BidRequest, decode
from snapbid.bidding.response import Bid, Template
from snapbid.ledger.bids.records import LOSS, NOTICE, SPOOLED, WIN, bid_digest, family_of
from snapbid.metrics import Metrics

PAGE = Path(snapbid.__file__).parent / "auctionlog" / "README.md"
SOURCE = "acme-eu", "acme"
LOSING = Template(8, 1_500_000, b"", (b"",), b"", None, "summer", "c1", 1_390_000)
TEMPLATE = Template(7, 1_500_000, b"", (b"",), b"", None, "spring", "c1", 1_390_000)
NOON_MS = 1_767_268_800_000  # of 2026-01-01
DAY_MS = 86_400_000


@pytest.fixture
def metrics(tmp_path: Path) -> Metrics:
    return Metrics(tmp_path / "metrics")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "log"


def convert(directory: Path) -> None:
    log_writer = LogWriter(directory, 0)
    log_writer.open()
    try:
        log_writer.look()
    finally:
        log_writer.close()


@contextlib.asynccontextmanager
async def opened(directory: Path, metrics: Metrics) -> AsyncIterator[AuctionLog]:
    """A log; in the end it is closed, and what it has is converted."""
    log = AuctionLog(directory, metrics)
    await log.open()
    yield log
    await log.close()
    convert(directory)


def asked(auction: str, imp: dict[str, Any] | None = None, **fields: Any) -> BidRequest:
    return decode(
        json.dumps({"id": auction, "imp": [{"id": "1", **(imp or {})}], **fields}).encode()
    )


async def write(log: AuctionLog, auctions: int, first: int = 0, at_ms: int = NOON_MS) -> None:
    for number in range(first, first + auctions):
        log.rows.begin()
        log.rows.bids(at_ms, SOURCE, asked(f"a{number}"), [Bid("1", TEMPLATE, None)], "USD")
        log.rows.end()
        if number % 500 == 0:
            await asyncio.sleep(0.001)


async def test_bids_round_trip(directory: Path, metrics: Metrics) -> None:
    async with opened(directory, metrics) as log:
        began = log.rows.begin()
        bids = [Bid("1", TEMPLATE, None), Bid("é\n2", TEMPLATE, "deal-9", 21_300_000)]
        log.rows.bids(NOON_MS, SOURCE, asked('a "b"/☃'), bids, "EUR")
        log.rows.bids(NOON_MS, SOURCE, asked("t"), bids[:1], "USD", True)
        log.rows.end()
        assert began > NOON_MS - DAY_MS
    plain, dear, test = read(directory)
    assert plain["time"].timestamp() * 1000 == NOON_MS
    assert [plain[name] for name in ("kind", "verdict", "descriptor", "ssp")] == [
        "bid", None, "acme-eu", "acme"
    ]  # fmt: skip
    assert (plain["auction_id"], plain["imp_id"], plain["deal_id"]) == ('a "b"/☃', "1", None)
    assert (plain["campaign_id"], plain["creative_id"]) == ("spring", "c1")
    assert (plain["price_micros"], plain["cost_nanos"]) == (1_500_000, 1_500_000)
    assert (plain["sent_micros"], plain["currency"]) == (1_390_000, "EUR")
    assert (dear["imp_id"], dear["deal_id"], dear["cost_nanos"]) == (
        "é\n2", "deal-9", 21_300_000
    )  # fmt: skip
    assert (plain["test"], test["test"]) == (False, True)
    assert [row["sequence"] for row in (plain, dear, test)] == [1, 2, 3]
    assert plain["machine"] == chunks.machine()


SITE = {"site": {"domain": "news.example", "page": "https://news.example/a"}}
APP = {"app": {"bundle": "com.example.game"}}
PHONE = {"devicetype": 4, "os": "Android", "geo": {"country": "DEU"}}
BANNER = {"banner": {"w": 320, "h": 50}, "bidfloor": 0.5}
NO_CONTEXT = dict.fromkeys(
    ("inventory", "publication", "country", "os", "device_type", "w", "h", "floor",
     "floor_currency")
)  # fmt: skip
CONTEXTS: list[tuple[BidRequest, dict[str, Any]]] = [
    (asked("a"), NO_CONTEXT),
    (
        asked("a", BANNER, **SITE, device=PHONE),
        {"inventory": "site", "publication": "news.example", "country": "DEU", "os": "Android",
         "device_type": 4, "w": 320, "h": 50, "floor": 0.5, "floor_currency": "USD"},
    ),
    (
        asked("a", {"video": {"mimes": ["video/mp4"], "w": 640, "h": 360}, "bidfloor": 0,
                    "bidfloorcur": "EUR"}, **APP, user={"geo": {"country": "FRA"}}),
        {**NO_CONTEXT, "inventory": "app", "publication": "com.example.game", "country": "FRA",
         "w": 640, "h": 360, "floor": 0.0, "floor_currency": "EUR"},
    ),
    (
        asked("a", {"banner": {"format": [{"w": 300, "h": 250}, {"w": 1, "h": 1}]}}, dooh={},
              device={"os": "☃", "devicetype": 2**80, "geo": {"country": "D" * 3_000}}),
        {**NO_CONTEXT, "inventory": "dooh", "w": 300, "h": 250, "os": "☃"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "logged"),
    [
        ({"site": {"domain": "https://news.example/?email=ann@example.com&ip=203.0.113.9"}},
         ("news.example", None, None)),
        ({"site": {"domain": "news.example/account?uid=ann@example.com"}},
         ("news.example", None, None)),
        ({"site": {"domain": "news.example:443, www.news.example"}}, ("news.example", None, None)),
        ({"site": {"domain": "ann@example.com"}}, (None, None, None)),
        ({"site": {"domain": "https://ann:secret@news.example/"}}, (None, None, None)),
        ({"site": {"domain": "überall.example"}}, ("überall.example", None, None)),
        ({"app": {"bundle": "553834731"}}, ("553834731", None, None)),
        ({"app": {"bundle": "https://apps.apple.com/us/app/x/id553834731?uid=ann"}},
         ("553834731", None, None)),
        ({"app": {"bundle": "https://play.google.com/store/apps/details?id=com.shoes.app&u=ann"}},
         ("com.shoes.app", None, None)),
        ({"device": {"os": "ann@example.com", "geo": {"country": "Jane Doe"}}}, (None, None, None)),
        ({"device": {"os": "iOS 17.2", "geo": {"country": "de"}}}, (None, "de", "iOS 17.2")),
    ],
)  # fmt: skip
async def test_addresses_of_pages_and_persons_are_not_logged(
    directory: Path, metrics: Metrics, sent: Any, logged: tuple[str | None, ...]
) -> None:
    async with opened(directory, metrics) as log:
        log.rows.bids(
            NOON_MS, SOURCE, asked("a", BANNER, **sent), [Bid("1", TEMPLATE, None)], "USD"
        )
    (bid,) = read(directory)
    assert (bid["publication"], bid["country"], bid["os"]) == logged


@pytest.mark.parametrize(("request_", "expected"), CONTEXTS)
async def test_bids_carry_request_context(
    directory: Path, metrics: Metrics, request_: BidRequest, expected: dict[str, Any]
) -> None:
    async with opened(directory, metrics) as log:
        log.rows.bids(NOON_MS, SOURCE, request_, [Bid("1", TEMPLATE, None)], "USD")
        log.rows.notice(NOON_MS, WIN, "c", 0, b"a", b"1")
    bid, win = read(directory)
    assert {name: bid[name] for name in expected} == expected
    assert bid["hour"] == 12
    assert {name: win[name] for name in (*expected, "hour")} == {**NO_CONTEXT, "hour": None}


async def test_notices_round_trip(directory: Path, metrics: Metrics) -> None:
    digest = bid_digest(b"a", b"1")
    async with opened(directory, metrics) as log:
        log.rows.notice(NOON_MS, WIN, "s", 0, b"a", b"1")
        log.replayed(NOTICE.pack(WIN | SPOOLED, 0, digest, NOON_MS // 1000, 5, 0, 0), "c")
        log.rows.notice(NOON_MS, LOSS, "d", 102, b"\xff", b"2")
    spooled, replayed, loss = read(directory)
    assert (spooled["kind"], spooled["verdict"]) == ("win", "spooled")
    assert (spooled["auction_id"], spooled["imp_id"], spooled["notice_key"]) == ("a", "1", digest)
    assert (replayed["kind"], replayed["verdict"]) == ("win", "counted")
    assert (replayed["auction_id"], replayed["notice_key"]) == (None, digest)
    assert replayed["time"].microsecond == 5_000
    assert (loss["kind"], loss["verdict"], loss["loss_reason"]) == ("loss", "duplicate", 102)
    assert (loss["auction_id"], loss["notice_key"]) == ("�", None)


async def test_a_signed_notice_from_the_spool_has_the_key_of_its_outcome(
    directory: Path, metrics: Metrics
) -> None:
    digest = bid_digest(family_of("acme") + b"a", b"1")
    async with opened(directory, metrics) as log:
        log.rows.notice(NOON_MS, WIN, "s", 0, b"a", b"1", ssp="acme")
        log.replayed(NOTICE.pack(WIN | SPOOLED, 0, digest, NOON_MS // 1000, 5, 0, 0), "c")
    spooled, replayed = read(directory)
    assert (spooled["ssp"], spooled["auction_id"]) == ("acme", "a")
    assert spooled["notice_key"] == replayed["notice_key"] == digest


async def test_spooled_notices_are_logged_on_the_day_they_count(
    directory: Path, metrics: Metrics
) -> None:
    digest, began = bid_digest(b"a", b"1"), datetime.now(UTC)
    async with opened(directory, metrics) as log:
        log.replayed(NOTICE.pack(WIN | SPOOLED, 0, digest, NOON_MS // 1000, 5, 0, 0), "l")
    (late,) = read(directory)
    assert late["verdict"] == "late"
    assert began - timedelta(seconds=1) <= late["time"] <= datetime.now(UTC)


async def test_long_ids_are_cut(directory: Path, metrics: Metrics) -> None:
    async with opened(directory, metrics) as log:
        log.rows.bids(NOON_MS, SOURCE, asked("a"), [Bid("1", TEMPLATE, "d" * 70_000)], "USD")
    (row,) = read(directory)
    assert row["deal_id"] == "d" * 1024


async def test_rows_of_many_chunks_and_days(
    directory: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks follow each other without a row lost, and each day has its directory."""
    monkeypatch.setattr(chunks, "CHUNK_SIZE", 65_536)
    monkeypatch.setattr(writer, "MOST_BYTES", 120_000)
    async with opened(directory, metrics) as log:
        for day in range(3):
            for start in range(0, 2_000, 100):
                await until(lambda: log.rows.has_next)
                await write(log, 100, day * 2_000 + start, NOON_MS + day % 2 * DAY_MS)
    rows = read(directory)
    assert [row["auction_id"] for row in rows] == [f"a{number}" for number in range(6_000)]
    assert {path.parent.name for path in files(directory)} == {"date=2026-01-01", "date=2026-01-02"}
    assert not list(spool_of(directory).glob("*.rows"))


async def test_a_growing_chunk_is_converted_in_steps(directory: Path, metrics: Metrics) -> None:
    async with opened(directory, metrics) as log:
        log_writer = LogWriter(directory, 0)
        log_writer.open()
        for step in range(3):
            await write(log, 10, step * 10)
            log_writer.look()
            assert len(read(directory)) == (step + 1) * 10
        log_writer.close()
        await write(log, 10, 30)
        convert(directory)  # another writer goes on where the first one stopped
    rows = read(directory)
    assert [row["auction_id"] for row in rows] == [f"a{number}" for number in range(40)]
    assert len(files(directory)) == 4


ANSWERS: list[list[tuple[Any, ...]]] = [
    [("acme-eu", 2, 0.003)],
    [("spring", 11, 2, 0.182), ("summer", 1, 0, 0.0)],
    [("DEU", 1, 1.5), (None, 1, 1.5)],
    [("site", "news.example", 0.0015), (None, None, 0.0015)],
    [(None, None, 11, 1), (4, "Android", 1, 1)],
    [(None, None, 11), (320, 50, 1)],
    [("news.example", 1.0)],
    [("d-1", 1, 0.0015)],
    [(12, 2)],
    [("spring", 102, 1)],
]


async def test_the_page_queries_run_in_duckdb(
    directory: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    views, *queries = [
        block.partition("```")[0] for block in PAGE.read_text().split("```sql\n")[1:]
    ]
    async with opened(directory, metrics) as log:
        await write(log, 10)
        request = asked("b", BANNER, **SITE, device=PHONE)
        log.rows.bids(NOON_MS, SOURCE, request, [Bid("1", TEMPLATE, "d-1")], "USD")
        log.rows.bids(NOON_MS, SOURCE, asked("e"), [Bid("1", LOSING, None)], "USD")
        log.rows.notice(NOON_MS + DAY_MS, WIN, "c", 0, b"a0", b"1")
        log.rows.notice(NOON_MS + DAY_MS, WIN, "d", 0, b"a0", b"1")
        log.rows.notice(NOON_MS + DAY_MS, WIN, "l", 0, b"b", b"1")
        log.rows.notice(NOON_MS + DAY_MS, WIN, "u", 0, b"a3", b"1")
        log.rows.notice(NOON_MS + DAY_MS, LOSS, "c", 102, b"a4", b"1")
    monkeypatch.chdir(directory.parent)
    directory.rename("auctions")
    with duckdb.connect() as connection:
        connection.execute(views)
        assert [connection.execute(query).fetchall() for query in queries] == ANSWERS


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from unit_log import write, AuctionLog, Metrics
async def main():
    log = AuctionLog(Path(sys.argv[1]), Metrics(sys.argv[1] + "-metrics"))
    await log.open()
    await write(log, 5_000)
    log.rows.begin(); log.rows.begin(2)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def killed(directory: Path) -> None:
    """Write 5,000 bids in a process that dies with three bids or notices in flight."""
    script = KILLED.replace("unit_log", Path(__file__).stem)
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    process = subprocess.run(
        [sys.executable, "-c", script, str(directory)], env=os.environ | {"PYTHONPATH": paths}
    )
    assert process.returncode == -signal.SIGKILL


def test_a_killed_worker_loses_only_what_was_in_flight_and_logs_it(directory: Path) -> None:
    killed(directory)
    convert(directory)
    *rows, gap = read(directory)
    assert [row["auction_id"] for row in rows] == [f"a{number}" for number in range(5_000)]
    assert (gap["kind"], gap["verdict"], gap["missing"]) == ("gap", "killed", 3)
    assert gap["since"] < gap["time"]
    assert gap["sequence"] == 5_001
    convert(directory)
    assert len(read(directory)) == 5_001


@pytest.mark.parametrize("step", ["publish", "note_converted"])
def test_interrupted_conversions_are_repeated(
    directory: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was interrupted before the files had their names, or before that was noted."""
    killed(directory)

    def interrupt(*arguments: Any) -> None:
        raise InterruptedError

    target = log_files if step == "publish" else writer
    with monkeypatch.context() as patched:
        patched.setattr(target, step, interrupt)
        with pytest.raises(InterruptedError):
            convert(directory)
    convert(directory)
    assert len(read(directory)) == 5_001
    assert len(files(directory)) == 2  # of noon on another day, and of the gap
    assert not list(directory.rglob("*.tmp"))


async def fill_a_chunk(log: AuctionLog, directory: Path) -> int:
    """Write rows until a second chunk has some; return how many."""
    auctions = 0
    while sum(1 for chunk in open_chunks(directory) if ChunkState.read(chunk.mapped).first) < 2:
        await write(log, 50, auctions)
        auctions += 50
        await until(lambda: log.rows.has_next)
    return auctions


def open_chunks(directory: Path) -> list[chunks.RowChunk]:
    return list(chunks.open_all(spool_of(directory), set()))


@pytest.mark.parametrize("conversions", [1, 2])
async def test_files_stay_complete_if_the_record_of_their_conversion_is_lost(
    directory: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch, conversions: int
) -> None:
    """A machine stops after a chunk was removed, and the others' headers are old again.

    After two conversions, the first file ends within the removed chunk.
    """
    monkeypatch.setattr(chunks, "CHUNK_SIZE", 65_536)
    async with opened(directory, metrics) as log:
        if conversions == 2:
            await write(log, 10)
            convert(directory)
        written = 10 * (conversions - 1) + await fill_a_chunk(log, directory)
        convert(directory)
        assert min(chunk.number for chunk in open_chunks(directory)) == 2
        complete = {path: path.read_bytes() for path in files(directory)}
        assert len(complete) == conversions
        for chunk in open_chunks(directory):
            note_converted(chunk.mapped, 0)
        await write(log, 10, written)
    assert {path: path.read_bytes() for path in complete} == complete
    assert [row["sequence"] for row in read(directory)] == list(range(1, written + 11))


class SyncedMap(mmap.mmap):
    """A mapping that keeps what it had when it was last synced."""

    synced = b""

    def flush(self, *arguments: int) -> None:
        super().flush(*arguments)
        self.synced = self[:]


async def test_rows_and_their_conversion_are_synced_before_what_relies_on_them(
    directory: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_SIZE", 65_536)
    publish, remove = log_files.publish, chunks.RowChunk.remove

    log = AuctionLog(directory, metrics)
    await log.open()
    written = await fill_a_chunk(log, directory)
    monkeypatch.setattr(mmap, "mmap", SyncedMap)
    log_writer = LogWriter(directory, 0)
    log_writer.open()

    def mappings() -> list[Any]:
        return [chunk.mapped for chunk in log_writer._workers[log._token].chunks]

    def checked_publish(path: Path, target: Path) -> None:
        assert all(each.synced == each[:] for each in mappings())
        publish(path, target)

    def checked_remove(chunk: chunks.RowChunk) -> None:
        assert {ChunkState.read(each.synced).converted for each in mappings()} == {written}
        remove(chunk)

    with monkeypatch.context() as patched:
        patched.setattr(log_files, "publish", checked_publish)
        patched.setattr(chunks.RowChunk, "remove", checked_remove)
        log_writer.look()
    log_writer.close()
    await log.close()
    assert len(read(directory)) == written


async def test_unwritable_rows_are_counted(directory: Path, metrics: Metrics) -> None:
    directory.write_text("not a directory")
    async with opened(directory, metrics) as log:
        await write(log, 25)
        directory.unlink()
        await until(lambda: log.rows.has_next)
        await write(log, 10, 25)
    gap, *rows = read(directory)
    assert (gap["verdict"], gap["missing"], gap["sequence"]) == ("unwritten", 25, 26)
    assert [row["sequence"] for row in rows] == list(range(27, 37))
    assert metrics.counter("snapbid_auction_log_lost_total").value == 25


async def test_full_spools_refuse_rows(
    directory: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no writer runs the disk is not filled."""
    monkeypatch.setattr(chunks, "CHUNK_SIZE", 65_536)
    monkeypatch.setattr(chunks, "MOST_CHUNKS", 1)
    async with opened(directory, metrics) as log:
        await write(log, 2_000)
        assert log.rows.lost > 0

        def has_next() -> bool:
            convert(directory)
            return log.rows.has_next

        await until(has_next)
    rows = read(directory)
    assert len([row for row in rows if row["kind"] == "bid"]) + missing(rows) == 2_000


async def test_chunks_that_workers_hold_do_not_wait(directory: Path, metrics: Metrics) -> None:
    """However many workers there are, a spool in which nobody has written is empty."""
    logs = [AuctionLog(directory, metrics, 3) for _ in range(3)]
    for log in logs:
        await log.open()
    assert len(open_chunks(directory)) >= 3
    assert chunks.count_waiting(spool_of(directory), 3) == 0
    for log in logs:
        await log.close()


@pytest.mark.long
async def test_many_workers_do_not_crowd_the_spool(
    directory: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the writer keeps up, no row is lost, long before a row is due."""
    monkeypatch.setattr(chunks, "CHUNK_SIZE", 65_536)
    monkeypatch.setattr(chunks, "MOST_CHUNKS", 6)

    logs = [AuctionLog(directory, metrics, 3) for _ in range(3)]
    for log in logs:
        await log.open()
    log_writer = LogWriter(directory, 3_600)
    log_writer.open()
    for _ in range(40):
        for log in logs:
            await write(log, 100)
        log_writer.look()
        assert chunks.count_waiting(spool_of(directory), 3) < chunks.MOST_CHUNKS
        for log in logs:
            while not log.rows.has_next:
                await asyncio.sleep(0.001)
    assert [log.rows.lost for log in logs] == [0] * 3
    for log in logs:
        await log.close()
    log_writer.look(everything=True)
    log_writer.close()
    assert len(read(directory)) == 12_000


def test_only_one_writer_converts(directory: Path) -> None:
    first, second = LogWriter(directory, 0), LogWriter(directory, 0)
    first.open()
    with pytest.raises(OSError, match="another"):
        second.open()
    first.close()
    second.open()
    second.close()


@pytest.mark.parametrize("module", ["snapbid.server.worker", "snapbid.server.serve"])
def test_serving_does_not_import_duckdb(module: str) -> None:
    code = f"import sys, {module}; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_chunk_sizes_have_a_minimum(metrics: Metrics, directory: Path) -> None:
    small: Callable[[], bytearray] = lambda: bytearray(4_096)  # noqa: E731
    with pytest.raises(ValueError, match="too small"):
        AuctionLog(directory, metrics).rows.offer(small())
