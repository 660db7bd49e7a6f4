"""`snapbid reconcile` as the operator runs it: exit status, files, the report's figures."""

import asyncio
import csv
from datetime import date
from pathlib import Path

import pytest
from support.books import set_up
from support.commands import invoke
from support.differing_logs import CAUSES, make, write_csv
from support.stack import execute

from snapbid.auctionlog.files import FileSet
from snapbid.auctionlog.layout import BID, LoggedRow
from snapbid.ledger.bids.records import BILLING, LOSS, WIN
from snapbid.operations.reconcile.compare import CAUSES as CAUSE_NAMES

AT_MS = 1_767_268_800_000  # noon of 2026-01-01
KINDS = {"win": WIN, "billing": BILLING, "loss": LOSS}
ADD_IMPS = "insert into impression_daily values ($1, 'acme', $2)"
ADD_DAY = "insert into bid_daily values ($1, 'acme-eu', 100, $2, $3)"


@pytest.fixture
def environ(database: str, tmp_path: Path) -> dict[str, str]:
    asyncio.run(set_up(database))
    return {"SNAPBID_DATABASE_URL": database, "SNAPBID_HOME": str(tmp_path / "home")}


def test_disputes_are_named_and_the_report_compared(
    environ: dict[str, str], database: str, tmp_path: Path
) -> None:
    auctions, log, out, page = (tmp_path / name for name in ("a", "log.csv", "out.csv", "x.html"))
    made = make(auctions, 60, len(CAUSES), seed=3, others=("USD",))
    write_csv(log, made.lines)
    files = ("--out", str(out), "--page", str(page), "--auctions", str(auctions))
    done = invoke(environ, "reconcile", "acme", str(log), *files)
    assert done.returncode == 1, done.stderr
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    named = sorted((row["cause"], row["auction_id"], row["imp_id"]) for row in rows)
    assert named == sorted(map(tuple, made.expected))
    assert "not_in_their_log" in done.stdout
    assert "<!doctype html>" in page.read_text()


def test_agreement_is_status_0(environ: dict[str, str], database: str, tmp_path: Path) -> None:
    auctions, log = tmp_path / "a", tmp_path / "log.csv"
    made = make(auctions, 60, 0, seed=4, others=("USD",))
    write_csv(log, made.lines)
    environ["SNAPBID_AUCTION_LOG"] = str(auctions)
    done = invoke(environ, "reconcile", "acme", str(log))
    assert done.returncode == 1, done.stderr  # the report has nothing
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("win\t")]
    _, day, theirs, their_usd, agreed, logged, usd, reported, _ = line.split("\t")
    assert (theirs, agreed, logged, reported) == ("60", "60", "60", "0")
    assert float(their_usd) == pytest.approx(float(usd), rel=0.1)  # by the bank's rates
    nanos = round(float(usd) * 1e9)
    asyncio.run(execute(database, ADD_DAY, date.fromisoformat(day), 60, nanos))
    done = invoke(environ, "reconcile", "acme", str(log), "--date", day)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is in dispute" in done.stdout


def test_money_that_differs_within_the_tolerance_is_named(
    environ: dict[str, str], database: str, tmp_path: Path
) -> None:
    """20 wins at 0.008 USD that the SSP logs at 0.013: no line is in dispute, but 62% is."""
    auctions, log, page = tmp_path / "a", tmp_path / "log.csv", tmp_path / "page.html"
    write_alike(auctions, log, "win", 20, micros=8_000)
    log.write_text(log.read_text().replace(f"{AT_MS},0.008\n", f"{AT_MS},0.013\n"))
    asyncio.run(execute(database, ADD_DAY, date(2026, 1, 1), 20, 20 * 8_000))
    named = ("--auctions", str(auctions), "--page", str(page))
    done = invoke(environ, "reconcile", "acme", str(log), *named)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict, drift = done.stdout.splitlines()[-2:]
    assert verdict == "nothing is in dispute"
    says = "0.00026 USD by their prices and 0.00016 USD by ours (+62.5%), though each is within"
    assert says in drift
    assert says in page.read_text()


def write_alike(
    auctions: Path, log: Path, kind: str, count: int, missing: int = 0, micros: int = 10**6
) -> None:
    """Write an SSP's log of a kind, and the auction log without the last of it."""
    rows = []
    for number in range(count - missing):
        ids = [f"a{number}".encode(), b"1"]
        names = [b"acme-eu", b"acme", *ids, b"campaign", b"creative", b"", b"USD"]
        rows.append(LoggedRow(BID, "", 0, 0, 0, AT_MS, micros, micros, micros, names))
        if kind in KINDS:
            names = [b"", b"", *ids, b"", b"", b"", b""]
            rows.append(LoggedRow(KINDS[kind], "c", 0, 0, 0, AT_MS + 10, 0, 0, 0, names))
    with FileSet(auctions, "machine", "0" * 16) as files:
        files.add(row._replace(sequence=number) for number, row in enumerate(rows, 1))
        files.finish(1, 10**9)
    lines = [f"a{number},1,{AT_MS},{micros / 1e6}\n" for number in range(count)]
    log.write_text("auction,imp,time,price\n" + "".join(lines))


@pytest.mark.parametrize(
    ("kind", "reported"),
    [("win", ["30", "0.03"]), ("billing", ["30", ""]), ("bid", ["", ""]), ("loss", ["", ""])],
)
def test_the_report_has_wins_their_money_and_impressions(
    environ: dict[str, str], database: str, tmp_path: Path, kind: str, reported: list[str]
) -> None:
    """It counts answers, not bids, and no losses: those cells are blank, and nothing differs."""
    auctions, log = tmp_path / "a", tmp_path / "log.csv"
    write_alike(auctions, log, kind, 30)
    asyncio.run(execute(database, ADD_DAY, date(2026, 1, 1), 30, 30 * 10**6))
    asyncio.run(execute(database, ADD_IMPS, date(2026, 1, 1), 30))
    named = ("--auctions", str(auctions), "--kind", kind)
    done = invoke(environ, "reconcile", "acme", str(log), *named)
    (line,) = [each for each in done.stdout.splitlines() if each.startswith(f"{kind}\t")]
    assert line.split("\t")[-2:] == reported
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is in dispute" in done.stdout


@pytest.mark.parametrize(
    ("kind", "wins", "nanos", "says"),
    [
        ("win", 29, 29 * 10**6, "win on 2026-01-01: our log 30 (0.03 USD), report 29 (0.029 USD)"),
        ("win", 30, 10**6, "win on 2026-01-01: our log 30 (0.03 USD), report 30 (0.001 USD)"),
        ("billing", 30, 30 * 10**6, "billing on 2026-01-01: our log 30, report 0"),
    ],
    ids=["number", "money", "impressions"],
)
def test_what_differs_in_the_report_is_named(
    environ: dict[str, str],
    database: str,
    tmp_path: Path,
    kind: str,
    wins: int,
    nanos: int,
    says: str,
) -> None:
    auctions, log, page = tmp_path / "a", tmp_path / "log.csv", tmp_path / "page.html"
    write_alike(auctions, log, kind, 30)
    asyncio.run(execute(database, ADD_DAY, date(2026, 1, 1), wins, nanos))
    named = ("--auctions", str(auctions), "--kind", kind, "--page", str(page))
    done = invoke(environ, "reconcile", "acme", str(log), *named)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"the report differs: {says}" in done.stdout
    assert f"the report differs: {says}" in page.read_text()
    assert "no line is in dispute" in done.stdout
    assert "nothing is in dispute" not in done.stdout


@pytest.mark.parametrize(
    ("kind", "missing", "reported", "causes"),
    [
        ("win", 10, 30, {"in_a_gap": 10}),
        ("win", 30, 30, {"in_a_gap": 30}),
        ("win", 10, 25, {"in_a_gap": 5, "not_won_here": 5}),
        ("win", 10, 20, {"not_won_here": 10}),
        ("win", 30, 10, {"no_id_fits": 1}),
        ("billing", 10, 30, {"in_a_gap": 10}),
    ],
)
def test_what_our_log_lacks_of_the_report_is_not_disputed(
    environ: dict[str, str],
    database: str,
    tmp_path: Path,
    kind: str,
    missing: int,
    reported: int,
    causes: dict[str, int],
) -> None:
    """Rows that are not yet in Parquet, or whose files are missing."""
    auctions, log, page = tmp_path / "a", tmp_path / "log.csv", tmp_path / "page.html"
    auctions.mkdir()
    write_alike(auctions, log, kind, 30, missing)
    asyncio.run(execute(database, ADD_DAY, date(2026, 1, 1), reported, reported * 10**6))
    asyncio.run(execute(database, ADD_IMPS, date(2026, 1, 1), reported))
    named = ("--auctions", str(auctions), "--kind", kind, "--page", str(page))
    done = invoke(environ, "reconcile", "acme", str(log), *named)
    assert done.returncode == 1, done.stdout + done.stderr
    cells = [line.split("\t") for line in done.stdout.splitlines()]
    found = {line[0]: int(line[1]) for line in cells if len(line) == 3 and line[0] in CAUSE_NAMES}
    assert found == causes
    if lacking := reported - (30 - missing):
        says = f"our log lacks {lacking} of the report"
        assert says in done.stdout
        assert says in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nobody",), "canonical"),
        (("acme-eu",), "canonical"),
        (("acme", "--from", "2026-01-02", "--to", "2026-01-01"), "before"),
        (("acme", "--date", "yesterday"), "2026-01-31"),
        (("acme", "--column", "price=paid"), "paid"),
        (("acme", "--column", "colour=red"), "must be FIELD=NAME, where FIELD is one of auction"),
        (("acme", "--column", "price=a", "--column", "price=b"), "found several for price"),
        (("acme", "--date", "2026-01-02", "--to", "2026-01-02"), "--date cannot be combined"),
        (("acme", "--tolerance", "nan"), "'--tolerance': must be from 0"),
        (("acme", "--tolerance", "inf"), "'--tolerance': must be from 0"),
        (("acme", "--currency", "EURO!"), "'--currency': must be a code like EUR"),
        (("acme", "--out", "/proc/none/out.csv"), "/proc/none/out.csv: No such file"),
        (("acme", "--page", "/proc/none/page.html"), "/proc/none/page.html: No such file"),
        (("acme", "--timezone", "Mars"), "Europe/Paris"),
        (("acme", "--column", "auction="), "must be FIELD=NAME"),
    ],
)
def test_misuse_is_status_2(
    environ: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("id\na\n")
    ssp, *options = arguments
    done = invoke(environ, "reconcile", ssp, str(log), "--auctions", str(tmp_path), *options)
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--out", "log.csv"), "--out must not be the same file as LOG"),
        (("--page", "log.csv"), "--page must not be the same file as LOG"),
        (("--out", "link.csv"), "--out must not be the same file as LOG"),
        (("--out", "new", "--page", "new"), "--page must not be the same file as --out"),
    ],
)
def test_no_file_is_written_over_the_log_or_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    log = Path("log.csv")
    log.write_text("id\na\n")
    Path("link.csv").symlink_to(log)
    done = invoke({}, "reconcile", "acme", "log.csv", "--auctions", ".", *options)
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
    assert log.read_text() == "id\na\n"
    assert not Path("new").exists()


def test_without_duckdb_it_says_what_to_install(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapbid.cli.reconcile.find_spec", lambda name: None)
    log = tmp_path / "log.csv"
    log.write_text("id\na\n")
    done = invoke(environ, "reconcile", "acme", str(log))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "reconcile needs duckdb: pip install 'snapbid[parquet]'\n"


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        ((), 1, "not compared: prices: name their column"),
        (("--no-prices",), 0, "no dispute in what was compared"),
        (("--column", "price=net_revenue"), 1, "price_differs"),
        (("--column", "price="), 1, "not compared: prices: name their column"),
        (("--column", "time=", "--no-prices"), 1, "not compared: the report"),
    ],
    ids=["guessed", "no prices", "named", "turned off", "no days"],
)
def test_omissions_are_named(
    environ: dict[str, str],
    database: str,
    tmp_path: Path,
    options: tuple[str, ...],
    status: int,
    says: str,
) -> None:
    """A price column of another name, at three times our prices, is no agreement."""
    auctions, log, page = tmp_path / "a", tmp_path / "log.csv", tmp_path / "page.html"
    made = make(auctions, 30, 0, seed=5, others=("USD",))
    lines = [
        [auction, imp, time, str(float(price) * 3)] for auction, imp, time, price, *_ in made.lines
    ]
    with log.open("w", newline="") as file:
        csv.writer(file).writerows([["auction", "imp", "time", "net_revenue"], *lines])
    asyncio.run(execute(database, ADD_DAY, date(2026, 1, 1), 30, 0))
    arguments = ("reconcile", "acme", str(log), "--auctions", str(auctions), "--page", str(page))
    if status == 0:  # the report has the same money
        done = invoke(environ, *arguments, *options)
        (line,) = [each for each in done.stdout.splitlines() if each.startswith("win\t")]
        nanos = round(float(line.split("\t")[6]) * 1e9)
        sql = "update bid_daily set win_cpm_micros = $1"
        asyncio.run(execute(database, sql, nanos))
    done = invoke(environ, *arguments, *options)
    assert done.returncode == status, done.stdout + done.stderr
    assert says in done.stdout
    assert "nothing is in dispute" not in done.stdout
    assert "columns: 'auction' as auction, 'imp' as imp" in done.stdout
    assert "columns: &#x27;auction&#x27; as auction" in page.read_text()


@pytest.mark.parametrize(
    ("lines", "options"),
    [("", ("--date", "2026-01-01")), ("a,1,2025-12-01T12:00:00Z,2\n", ("--date", "2026-01-01")),
     ("", ())],
    ids=["no lines", "of another day", "no lines, and no day named"],
)  # fmt: skip
def test_a_log_without_our_wins_is_no_agreement(
    environ: dict[str, str], database: str, tmp_path: Path, lines: str, options: tuple[str, ...]
) -> None:
    """An export that came out empty, or of another day, has none of what was counted here."""
    auctions, log = tmp_path / "a", tmp_path / "log.csv"
    make(auctions, 30, 0, seed=6, others=("USD",))
    log.write_text(f"auction,imp,time,price\n{lines}")
    done = invoke(environ, "reconcile", "acme", str(log), "--auctions", str(auctions), *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "not_in_their_log\t30" in done.stdout
    assert "nothing is in dispute" not in done.stdout
