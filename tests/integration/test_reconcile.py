"""`snapbid reconcile` as the operator runs it: exit status, files, the report's figures."""

import asyncio
import csv
from datetime import date
from pathlib import Path

import pytest
from support.books import set_up
from support.commands import invoke
from support.disputed import CAUSES, make, write_csv
from support.stack import execute

ADD_DAY = "insert into bid_daily values ($1, 'acme-eu', 100, $2, $3)"


@pytest.fixture
def environ(database: str, tmp_path: Path) -> dict[str, str]:
    asyncio.run(set_up(database))
    return {"SNAPBID_DATABASE_URL": database, "SNAPBID_HOME": str(tmp_path / "home")}


def test_it_names_the_disputes_and_compares_the_report(
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


def test_what_agrees_with_the_report_is_status_0(
    environ: dict[str, str], database: str, tmp_path: Path
) -> None:
    auctions, log = tmp_path / "a", tmp_path / "log.csv"
    made = make(auctions, 60, 0, seed=4, others=("USD",))
    write_csv(log, made.lines)
    environ["SNAPBID_AUCTION_LOG"] = str(auctions)
    done = invoke(environ, "reconcile", "acme", str(log))
    assert done.returncode == 1, done.stderr  # the report has nothing
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("win\t")]
    _, day, theirs, agreed, logged, usd, reported, _ = line.split("\t")
    assert (theirs, agreed, logged, reported) == ("60", "60", "60", "0")
    nanos = round(float(usd) * 1e9)
    asyncio.run(execute(database, ADD_DAY, date.fromisoformat(day), 60, nanos))
    done = invoke(environ, "reconcile", "acme", str(log), "--date", day)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is in dispute" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nobody",), "canonical"),
        (("acme-eu",), "canonical"),
        (("acme", "--from", "2026-01-02", "--to", "2026-01-01"), "before"),
        (("acme", "--date", "yesterday"), "2026-01-31"),
        (("acme", "--column", "price=paid"), "paid"),
        (("acme", "--column", "colour=red"), "auction=NAME"),
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
