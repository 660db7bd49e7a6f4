"""Compares an SSP's claims with the auction log, auction by auction (contract 11).

A claim agrees where the auction log has the bid and a counted notice of its kind, on the same UTC
day and at the same price. Everything else is a dispute, with one of the causes below; a claim may
have two. What counts is the rule of contract 5: a notice belongs to the day of its bid, or, where
that was closed, to the day of its row in the log (`late` there).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from snapbid.reconcile import agreed, claims, own
from snapbid.reconcile.agreed import Rows
from snapbid.reconcile.claims import BID, CLAIMS, LOSS, WIN, Claim
from snapbid.reconcile.own import BIDS, DAY_MS, EPOCH, NOTICES, LogGap, OwnBid, OwnNotice
from snapbid.reconcile.parts import PARTS, Parts
from snapbid.reconcile.prices import Terms, day_of, difference

CAUSES: Final = {
    "unreadable": "the line cannot be read",
    "unknown_ssp": "the line names an endpoint that is none of this SSP's",
    "unknown_currency": "there is no exchange rate for the line's currency",
    "not_won_here": "no bid of ours in this auction for this impression",
    "test": "our bid answered a test request, which is not counted",
    "notice_missing": "we have bid, and no notice reached us",
    "late": "the notice came when the bid was no longer remembered",
    "pending": "the notice waits in a spool until Redis is back",
    "duplicate": "the auction is in the SSP's log more often than it was counted",
    "price_differs": "the prices differ",
    "other_day": "it was counted on another UTC day",
    "not_in_their_log": "counted here, and not in the SSP's log",
    "in_a_gap": "our log has a gap at that time, so this cannot be told",
}
GAP_MARGIN_MS: Final = 5_000  # by which the SSP's clock may differ from ours


class Dispute(NamedTuple):
    """An auction in dispute; `line` is None where the SSP's log has none. Prices in micros."""

    cause: str
    kind: str
    auction: str
    imp: str | None
    line: int | None
    their_ms: int | None
    their_price: int | None
    their_currency: str
    our_ms: int | None
    our_price: int | None
    our_currency: str
    verdict: str
    detail: str


class DayTotals(NamedTuple):
    """One kind on one day: what they claim, and what the auction log counts."""

    theirs: int
    agreed: int
    ours: int
    cost_nanos: int


class Comparison:
    """The result so far; complete once `disputes` has been read to its end."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.causes: Counter[str] = Counter()
        self.kinds: set[str] = set()
        self.lines = self.outside = 0
        self.first, self.last = terms.first, terms.last
        self.gaps: list[LogGap] = []
        self._theirs: Counter[tuple[str, date | None]] = Counter()
        self._agreed: Counter[tuple[str, date | None]] = Counter()
        self._ours: Counter[tuple[str, date | None]] = Counter()
        self._cost: Counter[tuple[str, date | None]] = Counter()
        self._left: list[int | None] = []

    def totals(self) -> dict[tuple[str, date | None], DayTotals]:
        """By kind and day; None: of lines without a time."""
        keys = {*self._theirs, *self._agreed, *self._ours}
        return {
            key: DayTotals(self._theirs[key], self._agreed[key], self._ours[key], self._cost[key])
            for key in sorted(keys, key=lambda key: (key[0], key[1] or date.min))
        }

    def disputes(self, logged: Iterable[pa.RecordBatch], directory: Path) -> Iterator[Dispute]:
        """Compare claims (CLAIMS) with the auction log in a directory. Raises OSError."""
        parts = Rows(Parts(CLAIMS), Parts(BIDS), Parts(NOTICES))
        try:
            for dispute in self._sort_claims(logged, parts.claims):
                yield self._count(dispute)
            self._sort_own(directory, parts)
            for part in range(PARTS):
                rows = Rows(*(each.read(part) for each in parts))
                plain, rest = agreed.take_out(rows, self.kinds, self.terms)
                for day in plain:
                    self._add(day)
                for dispute in self._compare(rest):
                    yield self._count(dispute)
        finally:
            for each in parts:
                each.close()

    def _count(self, dispute: Dispute) -> Dispute:
        self.causes[dispute.cause] += 1
        return dispute

    def _add(self, agreed_day: agreed.AgreedDay) -> None:
        kind, number, has_time, count, cost = agreed_day
        day = day_of(number * DAY_MS)
        self._agreed[kind, day if has_time else None] += count
        self._ours[kind, day] += count
        self._cost[kind, day] += cost if kind == WIN else 0

    # -- what both say, split into parts -----------------------------------------------------------

    def _sort_claims(self, logged: Iterable[pa.RecordBatch], parts: Parts) -> Iterator[Dispute]:
        terms, earliest, latest = self.terms, 2**62, 0
        for batch in logged:
            inside = _inside(batch, terms.first, terms.last)
            self.outside += len(batch) - len(inside)
            self.lines += len(inside)
            times = pc.min_max(inside["time_ms"])
            if times["min"].is_valid:
                earliest = min(earliest, times["min"].as_py())
                latest = max(latest, times["max"].as_py())
            for kind, number, count in _per_day(inside):
                self.kinds.add(kind)
                day = None if number is None else day_of(number * DAY_MS)
                self._theirs[kind, day] += count
            named = pc.not_equal(inside["auction"], "")
            parts.add(inside.filter(named))
            for claim in claims.of_batch(inside.filter(pc.invert(named))):
                yield _of_claim("unreadable", claim, f"the line {claim.mistake}")
        if latest:
            self.first, self.last = self.first or day_of(earliest), self.last or day_of(latest)

    def _sort_own(self, directory: Path, parts: Rows) -> None:
        spooled: dict[bytes, tuple[str, str]] = {}
        replayed: list[OwnNotice] = []
        paths = own.files(directory, self.first, self.last)
        for bids, notices, gaps in own.read(paths, self.terms.spans, self.kinds):
            self.gaps += gaps
            parts.bids.add(bids)
            is_replayed = pc.is_null(notices["auction"])
            parts.notices.add(notices.filter(pc.invert(is_replayed)))
            replayed += own.notices(notices.filter(is_replayed))
            for notice in own.notices(notices.filter(pc.equal(notices["verdict"], "spooled"))):
                if notice.key is not None:
                    spooled[notice.key] = notice.auction or "", notice.imp
        complete = []
        for notice in replayed:
            names = spooled.get(notice.key or b"")
            if names is not None:
                complete.append(notice._replace(auction=names[0], imp=names[1])._asdict())
        parts.notices.add(pa.RecordBatch.from_pylist(complete, schema=NOTICES))
        self._left = [gap.missing for gap in self.gaps]

    # -- what does not agree at once ---------------------------------------------------------------

    def _compare(self, rows: Rows) -> Iterator[Dispute]:
        bids: defaultdict[str, dict[str, list[OwnBid]]] = defaultdict(dict)
        notices: defaultdict[tuple[str, str, str], list[OwnNotice]] = defaultdict(list)
        for bid in own.bids(rows.bids):
            bids[bid.auction].setdefault(bid.imp, []).append(bid)
        for notice in own.notices(rows.notices):
            notices[notice.kind, notice.auction or "", notice.imp].append(notice)
        claimed: defaultdict[tuple[str, str, str], list[Claim]] = defaultdict(list)
        for claim in claims.of_batch(rows.claims):
            imp = claim.imp
            if imp is None:
                imps = list(bids.get(claim.auction, ()))
                free = [i for i in imps if (claim.kind, claim.auction, i) not in claimed]
                imp = (free or imps or [""])[0]
            claimed[claim.kind, claim.auction, imp].append(claim)
        for key, lines in claimed.items():
            kind, auction, imp = key
            ours = bids.get(auction, {}).get(imp, [])
            yield from self._judge(kind, lines, ours, notices.get(key, []))
        yield from self._unclaimed(bids, notices, claimed)

    def _judge(
        self, kind: str, lines: list[Claim], bids: list[OwnBid], notices: list[OwnNotice]
    ) -> Iterator[Dispute]:
        """Judge all claims of one kind on one impression."""
        real = [bid for bid in bids if not bid.test]
        counted = self._counted(kind, real, notices)
        for bid, day, _ in counted:
            self._ours[kind, day] += 1
            self._cost[kind, day] += bid.cost if kind == WIN else 0
        for number, claim in enumerate(lines):
            if claim.mistake:
                yield _of_claim("unreadable", claim, f"the line {claim.mistake}")
            elif claim.descriptor is not None and claim.descriptor not in self.terms.descriptors:
                yield _of_claim("unknown_ssp", claim, claim.descriptor)
            elif number < len(counted):
                yield from self._compare_one(claim, *counted[number])
            elif counted:
                count = "once" if len(counted) == 1 else f"{len(counted)} times"
                times = f"{len(lines)} lines, counted {count}"
                yield _of_claim("duplicate", claim, times, counted[-1][0], counted[-1][2])
            else:
                yield self._uncounted(claim, number, bids, notices)

    def _counted(
        self, kind: str, bids: list[OwnBid], notices: list[OwnNotice]
    ) -> list[tuple[OwnBid, date, str]]:
        """The bids for which one of the kind counts: with its day, and the verdict."""
        if kind == BID:
            return [(bid, day_of(bid.time_ms), "") for bid in bids]
        if not bids:
            return []
        counting = [notice for notice in notices if notice.verdict in ("counted", "late")]
        if not counting:
            # A repeat says that it was counted, in a gap or when a replay was interrupted.
            counting = [notice for notice in notices if notice.verdict == "duplicate"][:1]
        result = []
        for notice in counting:
            before = [bid for bid in bids if bid.time_ms <= notice.time_ms]
            bid = max(before or bids, key=lambda bid: bid.time_ms)
            late = notice.verdict == "late"
            result.append((bid, day_of(notice.time_ms if late else bid.time_ms), notice.verdict))
        return result

    def _uncounted(
        self, claim: Claim, number: int, bids: list[OwnBid], notices: list[OwnNotice]
    ) -> Dispute:
        verdicts = {notice.verdict for notice in notices}
        bid = bids[-1] if bids else None
        if number:
            return _of_claim("duplicate", claim, "repeats a line before", bid)
        if not verdicts and (bid is None or not bid.test) and self._is_in_gap(claim):
            return _of_claim("in_a_gap", claim, "", bid)
        if bid is None:
            return _of_claim("not_won_here", claim, "", verdict=" ".join(sorted(verdicts)))
        if bid.test:
            return _of_claim("test", claim, "", bid)
        if "unknown" in verdicts:
            notice = next(notice for notice in notices if notice.verdict == "unknown")
            seconds = (notice.time_ms - bid.time_ms) / 1000
            return _of_claim("late", claim, f"{seconds:.0f} s after the bid", bid, "unknown")
        if "spooled" in verdicts:
            return _of_claim("pending", claim, "", bid, "spooled")
        return _of_claim("notice_missing", claim, "", bid)

    def _compare_one(self, claim: Claim, bid: OwnBid, day: date, verdict: str) -> Iterator[Dispute]:
        agrees = True
        if claim.time_ms is not None and (theirs := day_of(claim.time_ms)) != day:
            agrees = False
            yield _of_claim("other_day", claim, f"{theirs} there, {day} here", bid, verdict)
        if claim.price is not None and claim.kind != LOSS:
            cause, detail = difference(claim, bid, self.terms)
            if cause:
                agrees = False
                yield _of_claim(cause, claim, detail, bid, verdict)
        if agrees:
            self._agreed[claim.kind, day if claim.time_ms is not None else None] += 1

    def _is_in_gap(self, claim: Claim) -> bool:
        """Whether the claim may be what a gap is about; no more of them than it has rows."""
        if claim.time_ms is None:
            return False
        for number, gap in enumerate(self.gaps):
            near = gap.since_ms - GAP_MARGIN_MS <= claim.time_ms <= gap.until_ms + GAP_MARGIN_MS
            left = self._left[number]
            if near and (left is None or left > 0):
                self._left[number] = None if left is None else left - 1
                return True
        return False

    def _unclaimed(
        self,
        bids: dict[str, dict[str, list[OwnBid]]],
        notices: dict[tuple[str, str, str], list[OwnNotice]],
        claimed: dict[tuple[str, str, str], list[Claim]],
    ) -> Iterator[Dispute]:
        """What counts here, on the days compared, and is not in their log."""
        for auction, imps in bids.items():
            for imp, ours in imps.items():
                real = [bid for bid in ours if not bid.test]
                for kind in self.kinds:
                    key = kind, auction, imp
                    if key in claimed:
                        continue
                    for bid, day, verdict in self._counted(kind, real, notices.get(key, [])):
                        if self.first and self.last and not self.first <= day <= self.last:
                            continue
                        self._ours[kind, day] += 1
                        self._cost[kind, day] += bid.cost if kind == WIN else 0
                        yield _of_bid(kind, bid, day, verdict)


def _of_claim(
    cause: str, claim: Claim, detail: str, bid: OwnBid | None = None, verdict: str = ""
) -> Dispute:
    imp = claim.imp or (bid.imp if bid else None)
    currency = claim.currency if claim.price is not None else ""
    theirs = claim.line, claim.time_ms, claim.price, currency
    if bid is None:
        return Dispute(
            cause, claim.kind, claim.auction, imp, *theirs, None, None, "", verdict, detail
        )
    ours = bid.time_ms, bid.sent, bid.currency
    return Dispute(cause, claim.kind, claim.auction, imp, *theirs, *ours, verdict, detail)


def _of_bid(kind: str, bid: OwnBid, day: date, verdict: str) -> Dispute:
    ours = bid.time_ms, bid.sent, bid.currency
    return Dispute(
        "not_in_their_log", kind, bid.auction, bid.imp, None, None, None, "", *ours, verdict,
        f"counted on {day}",
    )  # fmt: skip


def _inside(batch: pa.RecordBatch, first: date | None, last: date | None) -> pa.RecordBatch:
    """The claims of some days, and those without a time."""
    earliest = (first - EPOCH).days * DAY_MS if first else 0
    latest = ((last - EPOCH).days + 1) * DAY_MS - 1 if last else 2**62
    times = batch["time_ms"]
    inside = pc.and_(pc.greater_equal(times, earliest), pc.less_equal(times, latest))
    return batch.filter(pc.fill_null(inside, fill_value=True))


def _per_day(batch: pa.RecordBatch) -> Iterator[tuple[str, int | None, int]]:
    """How many claims are of each kind and day, which is in days since 1970."""
    days = pc.divide(batch["time_ms"], DAY_MS)
    table = pa.table({"kind": batch["kind"], "day": days})
    for row in table.group_by(["kind", "day"]).aggregate([([], "count_all")]).to_pylist():
        yield row["kind"], row["day"], row["count_all"]
