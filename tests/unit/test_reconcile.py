"""An SSP's log against ours: every discrepancy that was made is named, and none besides."""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from support.differing_logs import (
    CAUSES,
    HEADS,
    START_MS,
    Expected,
    Made,
    convert,
    make,
    mix,
    write_csv,
)
from support.one_by_one import Found, OneByOne, lines_of

from snapbid.auctionlog.files import FileSet, files_of
from snapbid.auctionlog.layout import BID, GAP, REPLAYED, LoggedRow
from snapbid.base.version import ROOT
from snapbid.ledger.bids.records import bid_digest
from snapbid.operations.reconcile import claims, compare, exports, result
from snapbid.operations.reconcile.claims import Form
from snapbid.operations.reconcile.compare import Comparison, Dispute, ReportedDay, Terms
from snapbid.operations.reconcile.exports import LogError
from snapbid.warehouse.registry import FamilySpan

TERMS = Terms("acme", frozenset({"acme", "acme-eu"}), convert)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    directory = tmp_path_factory.mktemp("auctions")
    return directory, make(directory, 10_000, 1_000, seed=7)


def run(log: Path, directory: Path, terms: Terms = TERMS) -> tuple[Comparison, list[Dispute]]:
    comparison = Comparison(terms)
    return comparison, list(comparison.disputes(log, Form({}), directory))


def named(disputes: list[Dispute]) -> list[Expected]:
    return sorted(Expected(each.cause, each.auction, each.imp or "") for each in disputes)


def write_json(path: Path, lines: list[list[str]]) -> None:
    names = ["auctionId", "impid", "ts", "cpm", "cur", "descriptor", "note"]
    path.write_text(
        "".join(json.dumps(dict(zip(names, line, strict=True))) + "\n" for line in lines)
    )


def write_parquet(path: Path, lines: list[list[str]]) -> None:
    with duckdb.connect() as database:
        columns = ", ".join(f'"{name}" VARCHAR' for name in HEADS)
        database.execute(f"CREATE TABLE lines ({columns})")
        with database.appender("lines") as rows:
            rows.append_rows(lines)
        database.execute("COPY lines TO $1 (FORMAT parquet)", [str(path)])


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("log.csv.gz", write_csv),
        ("log.tsv", lambda path, lines: write_csv(path, lines, "\t")),
        ("log.jsonl", write_json),
        ("log", write_parquet),
    ],
    ids=["csv", "tsv", "json", "parquet"],
)
def test_exactly_the_discrepancies_are_named(
    made: tuple[Path, Made],
    tmp_path: Path,
    name: str,
    write: Callable[[Path, list[list[str]]], None],
) -> None:
    directory, expected = made
    write(tmp_path / name, expected.lines)
    comparison, disputes = run(tmp_path / name, directory)
    assert named(disputes) == sorted(expected.expected)
    assert set(comparison.causes) == set(CAUSES) <= set(compare.CAUSES)
    assert comparison.lines == len(expected.lines)


def test_the_totals_add_up(made: tuple[Path, Made], tmp_path: Path) -> None:
    """Lines are agreed or in dispute; what is counted here is agreed, in dispute, or only here."""
    directory, expected = made
    write_csv(tmp_path / "log.csv", expected.lines)
    comparison, disputes = run(tmp_path / "log.csv", directory)
    rows = result.totals(comparison)
    only_here = sum(each.cause == "not_in_their_log" for each in disputes)
    disputed = {each.line for each in disputes if each.line is not None}
    assert sum(row.theirs for row in rows) == comparison.lines
    assert sum(row.agreed for row in rows) == comparison.lines - len(disputed)
    counted_here = {"price_differs", "other_day", "unknown_currency", "unknown_ssp",
                    "unreadable", "not_in_their_log"}  # fmt: skip
    also = sum(each.cause in counted_here for each in disputes)
    assert sum(row.logged for row in rows) == sum(row.agreed for row in rows) + also
    assert only_here > 0


def test_a_days_window_leaves_the_other_lines_out(made: tuple[Path, Made], tmp_path: Path) -> None:
    directory, expected = made
    write_csv(tmp_path / "log.csv", expected.lines)
    day = date(2026, 1, 2)
    comparison, disputes = run(tmp_path / "log.csv", directory, TERMS._replace(first=day, last=day))
    assert comparison.lines + comparison.outside == len(expected.lines)
    assert {each.cause for each in disputes} == {"other_day"}


def test_a_row_in_a_gap_is_among_those_that_the_report_has_more(tmp_path: Path) -> None:
    with FileSet(tmp_path / "auctions", "machine", "0" * 16) as files:
        files.add([LoggedRow(GAP, "k", 0, 0, 1, START_MS, START_MS - 1_000, 1, 0, [])])
        files.finish(1, 1)
    log = tmp_path / "log.csv"
    log.write_text(f"id,time\na,{START_MS}\nb,{START_MS + 60_000}\n")
    report = {("win", date(2026, 1, 1)): ReportedDay(1, 1_000_000)}
    comparison = Comparison(TERMS, lambda first, last: report)
    found = comparison.disputes(log, Form({"ssp": ""}), tmp_path / "auctions")
    assert [each.cause for each in found] == ["in_a_gap", "not_won_here"]


@pytest.mark.parametrize(
    ("times", "first", "taken"),
    [
        (["", ""], None, date(2026, 1, 9)),
        (["", ""], date(2026, 1, 2), date(2026, 1, 2)),
        (["", "2026-01-03T12:00:00Z"], None, date(2026, 1, 3)),
    ],
    ids=["no day at all", "a day that is named", "a day of another line"],
)
def test_lines_without_a_day_are_converted_at_a_known_rate(
    tmp_path: Path, times: list[str], first: date | None, taken: date
) -> None:
    """The rate of the first day compared, or else today's."""
    rates = {date(2026, 1, at): Fraction(at) for at in range(1, 10)}
    terms = Terms("acme", frozenset({"acme"}), lambda _, day: rates.get(day), first=first)
    comparison = Comparison(terms._replace(today=date(2026, 1, 9)))
    log = tmp_path / "log.csv"
    log.write_text("id,time,price,cur\n" + "".join(f"a,{time},1,EUR\n" for time in times))
    list(comparison.disputes(log, Form({}), tmp_path))
    nanos = 1_000_000 * taken.day
    assert comparison.totals["win", None].price_nanos == nanos * times.count("")


def test_named_currencies_without_a_rate_are_few(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    names = ["X\x1b", "X\x1b", *(f"X{at}" for at in range(29))]
    log.write_text("id,price,cur\n" + "".join(f"a,1,{name}\n" for name in names))
    comparison, _ = run(log, tmp_path)
    *_, lacking, _ = result.coverage(comparison, prices=True, times=False).missing
    assert lacking.startswith("the money of 31 lines, which is in no totals: there is no")
    assert lacking.isprintable()
    assert lacking.endswith("(1) and 25 more")


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_fields_of_json_that_first_occur_late_are_read(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """Exports may omit what is the default: the currency where it is USD."""
    lines = [{"id": f"a{at}", "price": 2} for at in range(1_500)]
    lines[1_200] |= {"currency": "EUR"}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "log").write_bytes(pack(text.encode()))
    with duckdb.connect() as database:
        seen = claims.load(database, tmp_path / "log", Form({}))
        sql = "SELECT line FROM claims_of_all_days WHERE currency = 'EUR'"
        assert database.execute(sql).fetchall() == [(1_201,)]
    assert seen.columns == {"auction": "id", "price": "price", "currency": "currency"}


@pytest.mark.parametrize("seed", range(4))
def test_sql_agrees_with_the_plain_comparison(tmp_path: Path, seed: int) -> None:
    directory, log = tmp_path / "auctions", tmp_path / "log.csv"
    rows, heads, lines = mix(directory, 400, seed)
    with log.open("w", newline="") as file:
        csv.writer(file).writerows([heads, *lines])
    comparison, disputes = run(log, directory)
    expected = OneByOne(rows, lines_of(lines), TERMS)
    found = [Found(each.cause, each.kind, each.auction, each.imp or "", each.line)
             for each in disputes]  # fmt: skip
    assert sorted(map(str, found)) == sorted(map(str, expected.found))
    totals = comparison.totals.values()
    assert sum(day.agreed for day in totals) == expected.agreed > 0
    assert sum(day.ours for day in totals) == expected.ours


def by_way_of_a_spool(row: LoggedRow) -> list[LoggedRow]:
    """Some notices, as rows: that it was spooled, and the verdict when it was settled."""
    ids = row.strings[2:4]
    if row.kind == BID or row.verdict not in "cd" or row.time_ms % 3:
        return [row]
    key = [*row.strings[:2], bid_digest(*ids), b"", *row.strings[4:]]
    return [row._replace(verdict="s"), row._replace(flags=REPLAYED, strings=key)]


@pytest.mark.parametrize("seed", range(4))
def test_views_of_the_page_agree_with_the_comparison(tmp_path: Path, seed: int) -> None:
    """Those of the auction log's page, with spooled notices and ids that are used twice."""
    directory, log = tmp_path / "auctions", tmp_path / "log.csv"
    rows, heads, lines = mix(tmp_path / "mixed", 400, seed)
    rows = [each for row in rows for each in by_way_of_a_spool(row)]
    with FileSet(directory, "machine", "0" * 16) as files:
        files.add(row._replace(sequence=number) for number, row in enumerate(rows, 1))
        files.finish(1, 10**9)
    with log.open("w", newline="") as file:
        csv.writer(file).writerows([heads, *lines])
    terms = TERMS._replace(first=date(2026, 1, 1), last=date(2026, 1, 9))  # all days of both logs
    comparison, _ = run(log, directory, terms)
    page = (ROOT / "src/snapbid/auctionlog/README.md").read_text()
    views = re.findall(r"^CREATE VIEW .*?;$", page, re.MULTILINE | re.DOTALL)
    with duckdb.connect() as database:
        for view in views:
            database.execute(view.replace("auctions/", f"{directory}/"))
        wins = "SELECT count(*), sum(cost_nanos)::BIGINT FROM wins WHERE ssp = 'acme'"
        found = database.execute(wins).fetchone()
    won = [day for (kind, _), day in comparison.totals.items() if kind == "win"]
    assert found == (sum(day.ours for day in won), sum(day.cost_nanos for day in won))
    assert found[0] > 100


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1767268800", START_MS),
        ("1767268800.25", START_MS + 250),
        ("1767268800250", START_MS + 250),
        ("1767268800250000", START_MS + 250),
        ("2026-01-01T12:00:00.25Z", START_MS + 250),
        ("2026-01-01 14:00:00+02:00", START_MS),
        ("2026-01-01 12:00:00 UTC", START_MS),
        ("2026-01-01T12:00:00", START_MS),
        ("20260101T120000Z", START_MS),
        ("1.7672688e9", START_MS),
        ("2026-01-01 12:00:00 PM", START_MS),
        ("2026-01-01 12:00:00.25\u202fp.m.", START_MS + 250),
        ("2026-01-01 12:00pm", START_MS),
        ("01-Jan-2026 12:00:00", START_MS),
        ("1 January 2026 12:00", START_MS),
        ("Jan. 1, 2026 12:00:00 PM", START_MS),
        ("January 1, 2026, 12:00 p.m.", START_MS),
        ("Thu, 01 Jan 2026 12:00:00 GMT", START_MS),
        ("Thursday, January 1, 2026, 12:00:00 PM", START_MS),
        ("01/Jan/2026:13:00:00 +0100", START_MS),
        ("2026-01-01 07:00:00 -0500", START_MS),
        ("2026-01-01 12:00:00.250000 +0000", START_MS + 250),
        ("01-JAN-2026", START_MS - 12 * 3_600_000),
        ("Jan 1, 2026", START_MS - 12 * 3_600_000),
        ("2026/01/01 12:00:00", START_MS),
        ("", None),
    ],
)
def test_times_are_read_in_any_unit(tmp_path: Path, text: str, time_ms: int | None) -> None:
    (claim,) = read(tmp_path, f'id,time\na,"{text}"\n')
    assert (claim.time_ms, claim.mistake) == (time_ms, None)


@pytest.mark.parametrize(
    "text",
    ["2026-01-01 13:00:00 PM", "2026-13-01 12:00:00", "1 Foo 2026 12:00:00", "Jan 32, 2026",
     "01/01/2026 12:00:00", "noon", "12:00:00"],
)  # fmt: skip
def test_malformed_times_are_unread(tmp_path: Path, text: str) -> None:
    times = claims_of_times(tmp_path, ["2026-01-01T12:00:00Z", text])
    assert times == [START_MS, None]


@pytest.mark.parametrize(
    ("order", "texts", "days"),
    [
        (None, ["01/02/2026 12:00:00", "13/02/2026 12:00:00"], ["02-01", "02-13"]),
        (None, ["01/02/2026 12:00:00", "02/13/2026 12:00:00"], ["01-02", "02-13"]),
        (None, ["1/2/2026 1:00 PM", "2/13/2026, 1:00:00 PM"], ["01-02", "02-13"]),
        (None, ["01-02-2026 12:00", "13-02-2026 12:00"], ["02-01", "02-13"]),
        (None, ["01/02/2026", "13/02/2026"], ["02-01", "02-13"]),
        ("dmy", ["01/02/2026 12:00:00", "03/02/2026 12:00:00"], ["02-01", "02-03"]),
        ("mdy", ["01/02/2026 12:00:00", "03/02/2026 12:00:00"], ["01-02", "03-02"]),
        ("mdy", ["13/02/2026 12:00:00", "03/02/2026 12:00:00"], [None, "03-02"]),
        (None, ["13/02/2026 12:00:00", "02/13/2026 12:00:00", "2026-01-01"], [None, None, "01-01"]),
        (None, ["01/02/2026 12:00:00", "03/02/2026 12:00:00", "2026-01-01"], [None, None, "01-01"]),
    ],
)  # fmt: skip
def test_the_order_of_day_and_month_is_named_or_shown(
    tmp_path: Path, order: str | None, texts: list[str], days: list[str | None]
) -> None:
    times = claims_of_times(tmp_path, texts, Form({}, day_order=order))
    found = [None if each is None else datetime.fromtimestamp(each / 1000, UTC) for each in times]
    assert [each and f"{each:%m-%d}" for each in found] == days


def claims_of_times(directory: Path, texts: list[str], form: Form | None = None) -> list[Any]:
    lines = "".join(f'a,"{text}"\n' for text in texts)
    return [claim.time_ms for claim in read(directory, f"id,time\n{lines}", form)]


@pytest.mark.parametrize(
    ("text", "form", "price"),
    [
        ("1.25", Form({}), 1_250_000),
        ('"1,25"', Form({}), 1_250_000),
        ("0.00125", Form({}, scale=claims.SCALES["impression"]), 1_250_000),
        ("1250000", Form({}, scale=claims.SCALES["micros"]), 1_250_000),
        ("1.25e0", Form({}), 1_250_000),
        ("1e300", Form({}), None),
        ("nan", Form({}), None),
        ("$1.25", Form({}), 1_250_000),
        ("-$1.25", Form({}), -1_250_000),
        ('"1,25 €"', Form({}), 1_250_000),
        ("€\u00a01.25", Form({}), 1_250_000),
        ("USD 1.25", Form({}), 1_250_000),
        ("1.25usd", Form({}), 1_250_000),
        ('"US$1,234.50"', Form({}), 1_234_500_000),
        ('"1.234,50 EUR"', Form({}), 1_234_500_000),
        ("1.25e0 EUR", Form({}), 1_250_000),
        ("$", Form({}), None),
        ("USD", Form({}), None),
        ("N/A", Form({}), None),
        ('"=""1.25"""', Form({}), 1_250_000),
    ],
)
def test_prices_are_read_in_any_unit(tmp_path: Path, text: str, form: Form, price: int) -> None:
    (claim,) = read(tmp_path, f"id,price\na,{text}\n", form)
    assert claim.price == price


def test_columns_may_be_named(tmp_path: Path) -> None:
    form = Form({"auction": "tx", "price": "paid"})
    (claim,) = read(tmp_path, "id,tx,price,paid,event\n1,a,9,2,billed\n", form)
    assert (claim.auction, claim.price, claim.kind) == ("a", 2_000_000, "billing")


def test_lines_that_cannot_be_read_keep_their_numbers(tmp_path: Path) -> None:
    text = "id;time;event\na;1767268800;win\nb;soon;win\nc\n;1767268800;win\nd;1767268800;refund\n"
    read_claims = read(tmp_path, text)
    assert [(claim.line, bool(claim.mistake)) for claim in read_claims] == [
        (2, False), (3, True), (4, True), (5, True), (6, True)
    ]  # fmt: skip


def zipped(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, "id\na\n")
    return packed.getvalue()


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (zipped("wins.csv"), "a ZIP archive or an Excel workbook: unpack it, or save the sheet"),
        (gzip.compress(zipped("xl/workbook.xml")), "a ZIP archive or an Excel workbook"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "an Excel workbook: save the sheet"),
        (bz2.compress(b"id\na\n"), "bunzip2"),
        (lzma.compress(b"id\na\n"), "unxz"),
        (b"\x28\xb5\x2f\xfd\x00", "unzstd"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"\xef\xbb\xbf\n<html><table><tr><td>id</table>", "HTML or XML"),
        (gzip.compress(b"id\n" + b"a\n" * 900)[:-9], "cut short"),
        (gzip.compress(b"id\na\n")[:12], "cut short"),
        (gzip.compress(b"id\na\n")[:-8] + bytes(8), "gzip data is damaged"),
    ],
    ids=[
        "zip",
        "xlsx, gzipped",
        "xls",
        "bzip2",
        "xz",
        "zstd",
        "pdf",
        "html",
        "gzip cut short",
        "gzip of a few bytes",
        "gzip with another checksum",
    ],
)
def test_unreadable_encodings_are_named_with_the_fix(tmp_path: Path, log: bytes, says: str) -> None:
    (tmp_path / "log").write_bytes(log)
    with pytest.raises(LogError, match=says):
        claims_of(tmp_path / "log")


def test_column_names_cannot_control_a_terminal(tmp_path: Path) -> None:
    """Neither control characters nor a thousand names."""
    with pytest.raises(LogError) as refused:
        read(tmp_path, "\x1b]0;title\x07,\u202eprice," + ",".join(f"c{n}" for n in range(900)))
    assert str(refused.value).isprintable()
    assert str(refused.value).endswith("'c17' and 882 more")


@pytest.mark.parametrize("text", ["", "no,such\n1,2\n", "{]\n"])
def test_a_log_without_auction_ids_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(LogError):
        read(tmp_path, text)


@pytest.mark.parametrize("first", "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
def test_the_csv_runs_nothing_in_a_spreadsheet(tmp_path: Path, first: str) -> None:
    nothing = None, None, ""
    dispute = Dispute("late", "win", f"{first}1+1", "x=1", 2, *nothing, *nothing, "", "")
    assert list(result.write_csv(tmp_path / "out.csv", [dispute])) == [dispute]
    with (tmp_path / "out.csv").open(newline="") as file:
        _, line = csv.reader(file)
    assert line[2:4] == [f"'{first}1+1", "x=1"]


def test_a_rerun_that_fails_keeps_the_earlier_result(tmp_path: Path) -> None:
    def failing() -> Iterator[Dispute]:
        yield disputes[0]._replace(auction="b")
        raise InterruptedError

    out, disputes = (
        tmp_path / "out.csv",
        [Dispute("late", "win", "a", "1", 2, *(None, None, "") * 2, "", "")],
    )
    assert list(result.write_csv(out, disputes)) == disputes
    written = out.read_bytes()
    with pytest.raises(InterruptedError):
        list(result.write_csv(out, failing()))
    assert out.read_bytes() == written
    assert list(tmp_path.iterdir()) == [out]


def test_the_page_has_totals_causes_and_no_markup_of_theirs(
    made: tuple[Path, Made], tmp_path: Path
) -> None:
    directory, expected = made
    write_csv(tmp_path / "log.csv", [*expected.lines, ["<b>", "1", "", "1", "USD", "acme", ""]])
    comparison, disputes = run(tmp_path / "log.csv", directory)
    shown = sorted(disputes, key=lambda each: each.auction != "<b>")
    covered = result.coverage(comparison, prices=True, times=True)
    page = result.page("acme", comparison, result.totals(comparison), shown, covered)
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    for cause in CAUSES:
        assert cause in page


class Claim(NamedTuple):
    line: int
    kind: str
    auction: str
    price: int | None
    time_ms: int | None
    mistake: str | None


def read(directory: Path, text: str, form: Any = None) -> list[Claim]:
    (directory / "log.csv").write_text(text)
    return claims_of(directory / "log.csv", form)


def claims_of(path: Path, form: Any = None) -> list[Claim]:
    with duckdb.connect() as database:
        claims.load(database, path, form or Form({}))
        sql = f"SELECT {', '.join(Claim._fields)} FROM claims_of_all_days ORDER BY line"
        return [Claim(*row) for row in database.execute(sql).fetchall()]


def test_bids_belong_to_the_family_of_their_day(tmp_path: Path) -> None:
    """An endpoint that has joined another family, and one that came from another."""
    first, last = (date(2026, 1, day) for day in (1, 2))
    moments = [datetime(2026, 1, at.day, hour, 59, 59, tzinfo=UTC) for at in (first, last)
               for hour in (0, 23)]  # fmt: skip
    times = [round(moment.timestamp() * 1000) for moment in moments]
    names = ["left"] * 4 + ["came"] * 4 + ["acme"] * 4
    family = [
        FamilySpan("acme", date.min, date.max),
        FamilySpan("left", date.min, first),
        FamilySpan("came", last, date.max),
    ]
    with FileSet(tmp_path, "machine", "0" * 16) as files:
        files.add(
            LoggedRow(BID, "", 0, 0, number, at_ms, number, 0, 0, [name.encode(), *[b"a"] * 7])
            for number, (name, at_ms) in enumerate(zip(names, times * 3, strict=True), 1)
        )
        files.finish(1, 12)
    with duckdb.connect() as database:
        (tmp_path / "log.csv").write_text("id\na\n")
        claims.load(database, tmp_path / "log.csv", Form({}))
        database.execute("CREATE TABLE claims AS FROM claims_of_all_days")
        database.execute("CREATE TABLE kinds AS SELECT 'win' AS kind")
        compare.load_own(database, files_of(tmp_path, None, None), family)
        found = database.execute("SELECT price FROM bids ORDER BY price").fetchall()
    assert [number for (number,) in found] == [1, 2, 7, 8, 9, 10, 11, 12]


# -- a log of anybody -----------------------------------------------------------------------------

LATE_COLUMNS = "".join(f'{{"c{n}":1}}\n' for n in range(5_000))


@pytest.mark.parametrize(
    ("bound", "text", "says"),
    [
        ("MOST_OF_LINE", "id,time\n" + "a" * 5_000 + ",1\n", "a line is over"),
        ("MOST_OF_LINE", "x" * 5_000, "a line is over"),
        ("MOST_OF_LINE", '{"id":"a"}\n{"id":"' + "a" * 5_000 + '"}\n', "line 2 is over"),
        ("MOST_COLUMNS", ",".join(f"c{n}" for n in range(5_000)) + "\n", "5000 columns"),
        ("MOST_COLUMNS", json.dumps({f"c{n}": 1 for n in range(5_000)}) + "\n", "5000 columns"),
        ("MOST_COLUMNS", '{"id":"a"}\n' * 1_000 + LATE_COLUMNS, "4097 columns"),
        ("MOST_BYTES", "id,time\n" + "a,1\n" * 5_000, "decompressed"),
        ("MOST_BYTES", '{"id":"a"}\n' * 5_000, "decompressed"),
    ],
    ids=[
        "line",
        "first line",
        "line of JSON",
        "columns",
        "columns of JSON",
        "late columns of JSON",
        "size",
        "size of JSON",
    ],
)
def test_input_size_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, text: str, says: str
) -> None:
    monkeypatch.setattr(exports, bound, 4_096)
    for pack in (bytes, gzip.compress):
        (tmp_path / "log").write_bytes(pack(text.encode()))
        with pytest.raises(LogError, match=says):
            claims_of(tmp_path / "log")


def test_decompression_bombs_are_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a line without an end, inflated, no more is held than a line may have."""
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    with (tmp_path / "log").open("wb") as file:
        for _ in range(256):
            file.write(packed.compress(b"x" * (1 << 20)))
        file.write(packed.flush())
    tracemalloc.start()
    with pytest.raises(LogError, match="a line is over 1 MiB"):
        claims_of(tmp_path / "log")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20


def test_a_parquet_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "log", [["a"] * len(HEADS)] * 5_000)
    for bound, most, says in (("MOST_COLUMNS", 3, "7 columns"), ("MOST_BYTES", 64, "over 0 GiB")):
        with monkeypatch.context() as patch:
            patch.setattr(exports, bound, most)
            with pytest.raises(LogError, match=says):
                claims_of(tmp_path / "log")


@pytest.mark.long
def test_parquet_that_repeats_a_long_text_is_bounded(tmp_path: Path) -> None:
    with duckdb.connect() as database:
        text = "SELECT repeat('x', 100_000) AS id FROM range(40_000)"
        database.execute(f"COPY ({text}) TO $1 (FORMAT parquet)", [str(tmp_path / "log")])
    assert (tmp_path / "log").stat().st_size < 1_000_000
    with pytest.raises(LogError, match="over 64 KiB"):
        claims_of(tmp_path / "log")
