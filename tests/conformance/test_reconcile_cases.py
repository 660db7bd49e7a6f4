"""Every case of `cases/reconcile`: an SSP's log as it may come, against a small log of ours.

ours      bids: auction, imp, when, CPM (as `sent` in a `currency`), the `multiplier` of their cost,
          whether they were `won` or `lost`, or are `lacking`
log       the SSP's, as text, in an `encoding`
first, last, zone, options, columns_named, price_in, tolerance (micros)    as the command has them
disputes  cause, auction and impression of each; `details` begin with these
report    kind, day, number and nano-USD; `reported`: its number in each row of the totals
totals    kind, day, lines, their USD, agreed, ours, our USD
columns, unused, missing, notes    what is said to have been compared; all that was to: `complete`
drifts    what is said of the money of agreed lines
refused   why the log is not read at all
"""

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from support.differing_logs import convert

from snapbid.auctionlog.files import FileSet
from snapbid.auctionlog.layout import BID, LoggedRow
from snapbid.bidding.cost import cost_of
from snapbid.ledger.bids.records import LOSS, WIN
from snapbid.operations.reconcile import result
from snapbid.operations.reconcile.claims import SCALES, Form
from snapbid.operations.reconcile.compare import CAUSES, Comparison, ReportedDay, Terms
from snapbid.operations.reconcile.exports import LogError

CASES = Path(__file__).parent / "cases" / "reconcile" / "logs.json"
SSP = frozenset({"acme", "acme-eu"})


def cases() -> list[Any]:
    return [pytest.param(case, id=case["case"]) for case in json.loads(CASES.read_text())["cases"]]


def write_ours(directory: Path, ours: list[dict[str, Any]]) -> None:
    rows = []
    for bid in ours:
        at_ms = round(datetime.fromisoformat(bid["at"]).timestamp() * 1000)
        price = round(bid["price"] * 1_000_000)
        ids = [bid["auction"].encode(), bid["imp"].encode()]
        currency = bid.get("currency", "USD").encode()
        names = [b"acme", b"acme", *ids, b"campaign", b"creative", b"", currency]
        cost, sent = cost_of(price, bid.get("multiplier", 1)), bid.get("sent", bid["price"])
        sent_micros = round(sent * 1_000_000)
        if not bid.get("lacking", False):
            rows.append(LoggedRow(BID, "", 0, 0, 0, at_ms, price, cost, sent_micros, names))
        none = [b"", b"", *ids, b"", b"", b"", b""]
        for kind, happened in ((WIN, bid["won"]), (LOSS, bid.get("lost", False))):
            if happened:
                rows.append(LoggedRow(kind, "c", 0, 0, 0, at_ms + 10, 0, 0, 0, none))
    with FileSet(directory, "machine", "0" * 16) as files:
        files.add(row._replace(sequence=number) for number, row in enumerate(rows, 1))
        files.finish(1, 10**9)


def day(text: str | None) -> date | None:
    return None if text is None else date.fromisoformat(text)


@pytest.mark.parametrize("case", cases())
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    write_ours(tmp_path / "auctions", case["ours"])
    log = tmp_path / "log"
    log.write_bytes(case["log"].encode(case.get("encoding", "utf-8")))
    wanted = {what: f"no_{what}" not in case.get("options", ()) for what in ("prices", "times")}
    named = dict(case.get("columns_named", {}))
    named |= {what[:-1]: "" for what, is_wanted in wanted.items() if not is_wanted}
    form = Form(named, scale=SCALES[case.get("price_in", "cpm")])
    if "zone" in case:
        form = form._replace(zone=ZoneInfo(case["zone"]))
    terms = Terms("acme", SSP, convert, first=day(case.get("first")), last=day(case.get("last")))
    terms = terms._replace(tolerance=case.get("tolerance", terms.tolerance))
    report = {(kind, date.fromisoformat(on)): ReportedDay(*figures)
              for kind, on, *figures in case.get("report", ())}  # fmt: skip
    comparison = Comparison(terms, lambda first, last: report)
    disputes = comparison.disputes(log, form, tmp_path / "auctions")
    if "refused" in case:
        with pytest.raises(LogError, match=case["refused"]):
            list(disputes)
        return
    found = list(disputes)
    disputed = sorted([each.cause, each.auction, each.imp or ""] for each in found)
    assert disputed == sorted(case["disputes"])
    assert set(comparison.causes) <= set(CAUSES)
    for expected in case.get("details", ()):
        assert any(each.detail.startswith(expected) for each in found), found
    covered = result.coverage(comparison, **wanted)
    for name in ("columns", "unused", "missing", "notes"):
        if name in case:
            assert getattr(covered, name) == case[name]
    assert result.is_complete(comparison, **wanted) is case["complete"]
    if "drifts" in case:
        assert result.drifts(comparison) == case["drifts"]
    if "totals" in case:
        rows = [
            [row.kind, str(row.day), row.theirs, row.theirs_usd, row.agreed, row.logged,
             row.logged_usd]
            for row in result.totals(comparison)
        ]  # fmt: skip
        assert rows == case["totals"]
    if "reported" in case:
        assert [row.reported for row in result.totals(comparison)] == case["reported"]
