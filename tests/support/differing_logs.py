"""An auction log and an SSP's log that differ where they are made to, each in a known way.

    PYTHONPATH=tests .venv/bin/python -m support.differing_logs 1000000 1000

makes logs of so many auctions and discrepancies, compares them, and prints time and memory.
"""

import csv
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple

from snapbid.auctionlog.files import FileSet
from snapbid.auctionlog.layout import BID, GAP, REPLAYED, TEST, LoggedRow
from snapbid.ledger.bids.records import BILLING, WIN, bid_digest
from snapbid.operations.reconcile.claims import Form
from snapbid.operations.reconcile.compare import Comparison, Terms

START_MS = 1_767_268_800_000  # noon of 2026-01-01
SPAN_MS = 6 * 3_600_000
DAY_MS = 86_400_000
EUR = Fraction(125, 100)  # USD
CAUSES = (
    "not_won_here", "notice_missing", "late", "duplicate", "price_differs", "other_day",
    "unknown_currency", "unknown_ssp", "unreadable", "not_in_their_log", "test", "pending",
    "in_a_gap",
)  # fmt: skip
HEADS = ("Auction ID", "imp_id", "Timestamp", "price", "Currency", "endpoint", "comment")


class Expected(NamedTuple):
    """A dispute that must be named."""

    cause: str
    auction: str
    imp: str


class Made(NamedTuple):
    """The lines of the SSP's log, and what must be found."""

    lines: list[list[str]]
    expected: list[Expected]


def convert(currency: str, day: date) -> Fraction | None:
    """Return a rate as the bank's table would: it begins in 1999, and the last one stays."""
    return {"EUR": EUR, "JPY": Fraction(1, 150)}.get(currency) if day.year >= 1999 else None


def make(
    directory: Path,
    auctions: int,
    discrepancies: int,
    seed: int,
    others: tuple[str, ...] = ("USD", "JPY"),
) -> Made:
    """Write an auction log below `directory`; the lines have one discrepancy each, at random.

    `others`: currencies that the SSP converts some of our EUR prices to.
    """
    rng = random.Random(seed)
    odd = rng.sample(range(auctions), discrepancies)
    causes = {number: CAUSES[at % len(CAUSES)] for at, number in enumerate(odd)}
    made = Made([], [])
    with FileSet(directory, "machine", "0" * 16) as files:
        files.add(_numbered(_rows(rng, auctions, causes, made, others)))
        files.finish(1, 10**9)
    return made


def _numbered(rows: Iterator[LoggedRow]) -> Iterator[LoggedRow]:
    for number, row in enumerate(rows, 1):
        yield row._replace(sequence=number)


def _rows(
    rng: random.Random, auctions: int, causes: dict[int, str], made: Made, others: tuple[str, ...]
) -> Iterator[LoggedRow]:
    for number in range(auctions):
        cause = causes.get(number, "")
        auction, imp = f"{number:x}-{rng.getrandbits(48):012x}", rng.choice(("1", "2", "é"))
        ids = [auction.encode(), imp.encode()]
        at_ms = START_MS + number * SPAN_MS // auctions
        if cause == "in_a_gap":
            at_ms += SPAN_MS  # where nothing else may be taken for what is missing
        currency = rng.choice(("USD", "USD", "EUR"))
        usd = rng.randrange(100_000, 9_000_000, 10_000)
        sent = usd if currency == "USD" else round(usd / EUR)
        names = [b"acme-eu", b"acme", *ids, b"campaign", b"creative", b"", currency.encode()]
        has_bid = cause not in ("not_won_here", "in_a_gap")
        flags = TEST if cause == "test" else 0
        bid = LoggedRow(BID, "", flags, 0, 0, at_ms, usd, usd, sent, names)
        if has_bid:
            yield bid
        if number % 7 == 0:  # somebody else's auction of the same ids' form
            other = [b"nova", b"nova", b"x" + ids[0], ids[1], *names[4:]]
            yield bid._replace(strings=other)
            yield _notice("c", at_ms, [b"x" + ids[0], ids[1]])
        yield from _notices(rng, cause, at_ms, ids)
        if cause == "in_a_gap":
            yield LoggedRow(GAP, "k", 0, 0, 0, at_ms, at_ms - 1_000, 1, 0, [])
        if cause:
            made.expected.append(Expected(cause, auction, imp))
        if cause != "not_in_their_log":
            line = _line(rng, cause, auction, imp, at_ms, sent, usd, currency, others)
            made.lines.extend([line] * (2 if cause == "duplicate" else 1))


def _notices(rng: random.Random, cause: str, at_ms: int, ids: list[bytes]) -> Iterator[LoggedRow]:
    came_ms = at_ms + rng.randrange(50, 60_000)
    if cause in ("not_won_here", "in_a_gap", "notice_missing"):
        return
    if cause == "late":
        yield _notice("u", at_ms + 3 * 3_600_000, ids)
    elif cause == "test":
        yield _notice("u", came_ms, ids)
    elif cause == "pending":
        yield _notice("s", came_ms, ids)
    elif rng.random() < 0.01:  # by way of a spool, which is no discrepancy
        yield _notice("s", came_ms, ids)
        yield _notice("c", came_ms, [bid_digest(*ids), b""])._replace(flags=REPLAYED)
    else:
        yield _notice("c", came_ms, ids)
        if rng.random() < 0.01:
            yield _notice("d", came_ms + 5, ids)


def _notice(verdict: str, at_ms: int, ids: list[bytes]) -> LoggedRow:
    return LoggedRow(WIN, verdict, 0, 0, 0, at_ms, 0, 0, 0, [b"", b"", *ids, b"", b"", b"", b""])


def _line(
    rng: random.Random,
    cause: str,
    auction: str,
    imp: str,
    at_ms: int,
    sent: int,
    usd: int,
    currency: str,
    others: tuple[str, ...],
) -> list[str]:
    if cause == "other_day":
        at_ms += DAY_MS
    moment = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    time = rng.choice((str(at_ms), str(at_ms / 1000), moment, moment.replace("+00:00", "Z")))
    price = Fraction(sent, 1_000_000)
    if currency == "EUR" and rng.random() < 0.3:
        currency = rng.choice(others)
        price = Fraction(usd if currency == "USD" else usd * 150, 1_000_000)
    if cause == "price_differs":
        price = price * 2 + 1
    if cause == "unknown_currency":
        currency = "XQQ"
    shown = "dear" if cause == "unreadable" else f"{float(price):.4f}"
    endpoint = "other" if cause == "unknown_ssp" else rng.choice(("acme", "acme-eu"))
    return [auction, imp, time, shown, currency, endpoint, rng.choice(("", 'a "quoted", one'))]


def mix(
    directory: Path, auctions: int, seed: int
) -> tuple[list[LoggedRow], list[str], list[list[str]]]:
    """Write an auction log in which anything may come; also return an SSP's heads and lines.

    An auction has up to two bids, three notices and three lines, of any kind, day and price.
    """
    rng = random.Random(seed)
    rows: list[LoggedRow] = []
    heads = ["auction", "imp", "time", "price", "currency", "kind", "ssp"]
    lines = []
    for number in range(auctions):
        auction, imps = f"é{number}", [rng.choice(("1", "2")) for _ in range(2)]
        alike = number % 10 == 0  # ids which only what is between them tells from ours
        at_ms = START_MS + rng.randrange(3 * DAY_MS)
        for imp in imps[: rng.choice((0, 1, 1, 1, 2))]:
            names = [b"acme", b"acme", auction.encode(), imp.encode()]
            if alike:
                names[2:] = [f"{auction}\0b".encode(), b"1"]
                imps = ["b\0" + "1"]
            names += [b"campaign", b"creative", b"", rng.choice((b"USD", b"EUR"))]
            test = rng.choice((0, 0, 0, 0, TEST))
            sent = 1_000_000 if names[-1] == b"USD" else 800_000
            at = at_ms + rng.randrange(60_000)
            rows.append(LoggedRow(BID, "", test, 0, 0, at, 1_000_000, 1_000_000, sent, names))
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            ids = [auction.encode(), rng.choice(imps).encode()]
            notice = _notice(rng.choice("cccclud"), at_ms + rng.randrange(2 * DAY_MS), ids)
            rows.append(notice._replace(kind=rng.choice((WIN, WIN, BILLING))))
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            time = at_ms + rng.choice((0, 0, 0, 0, DAY_MS))
            price = rng.choice(("1", "1.004", "0.8", "1.01", "1.02", "150", "", "2", "dear"))
            lines.append(
                [
                    auction, rng.choice((*imps, "")), rng.choice((str(time), str(time), "")), price,
                    rng.choice(("USD", "EUR", "JPY", "XQQ")), rng.choice(("win", "win", "bill")),
                    rng.choice(("acme", "acme", "acme", "", "other")),
                ]
            )  # fmt: skip
    with FileSet(directory, "machine", "0" * 16) as files:
        files.add(_numbered(iter(rows)))
        files.finish(1, 10**9)
    return rows, heads, lines


def write_csv(path: Path, lines: list[list[str]], delimiter: str = ",") -> None:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(HEADS)
        writer.writerows(lines)


def main(auctions: int, discrepancies: int) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        made = make(directory, auctions, discrepancies, seed=1)
        path = directory / "ssp.csv.gz"
        write_csv(path, made.lines)
        (directory / "expected.json").write_text(json.dumps(made.expected))
        command = [sys.executable, "-m", "support.differing_logs", "compare", name]
        subprocess.run(command, check=True)  # so that its memory is measured alone


def compare(directory: Path, expected: set[Expected]) -> None:
    began, used = perf_counter(), process_time()
    terms = Terms("acme", frozenset({"acme", "acme-eu"}), convert)
    comparison = Comparison(terms)
    seen = {
        Expected(dispute.cause, dispute.auction, dispute.imp or "")
        for dispute in comparison.disputes(directory / "ssp.csv.gz", Form({}), directory)
    }
    status = Path("/proc/self/status").read_text()  # ru_maxrss would be the parent's, if higher
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    print(f"{comparison.lines:,} lines: {perf_counter() - began:.1f} s", end="")
    print(f" ({process_time() - used:.1f} s of processor time), {peak:.0f} MiB;", end="")
    print(f" {len(expected & seen)} of {len(expected)} named, {len(seen - expected)} besides")


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        given = json.loads((Path(sys.argv[2]) / "expected.json").read_text())
        compare(Path(sys.argv[2]), {Expected(*entry) for entry in given})
    else:
        main(int(sys.argv[1]), int(sys.argv[2]))
