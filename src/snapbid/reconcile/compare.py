"""Compares an SSP's claims with the auction log, auction by auction (contract 11).

A claim agrees where the auction log has the bid and a counted notice of its kind, on the same UTC
day and at the same price. Everything else is a dispute, with one of the causes below; a claim may
have two. What counts is the rule of contract 5: a notice belongs to the day of its bid, or, where
that was closed, to the day on which it came (`late` in the log).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from snapbid.reconcile.claims import BID, LOSS, WIN, Claim
from snapbid.reconcile.own import LogGap, OwnBid, OwnNotice, files, read
from snapbid.reconcile.parts import PARTS, Parts

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
DAY_MS: Final = 86_400_000
EPOCH: Final = date(1970, 1, 1)
GAP_MARGIN_MS: Final = 5_000  # by which the SSP's clock may differ from ours
CONVERTED_PART: Final = 100  # by a hundredth prices in different currencies may differ

Convert = Callable[[str, date], Fraction | None]  # USD per unit of a currency on a day


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


class Terms(NamedTuple):
    """How to compare. `tolerance` is in micros of a CPM; `descriptors` are the SSP's endpoints."""

    ssp: str
    descriptors: frozenset[str]
    convert: Convert
    tolerance: int = 5_000
    first: date | None = None
    last: date | None = None


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

    def disputes(self, claims: Iterable[Claim], directory: Path) -> Iterator[Dispute]:
        """Compare claims with the auction log in a directory. Raises OSError."""
        parts = Parts()
        try:
            for dispute in self._sort_claims(claims, parts):
                yield self._count(dispute)
            self._sort_own(directory, parts)
            for part in range(PARTS):
                for dispute in self._compare(parts.read(part)):
                    yield self._count(dispute)
        finally:
            parts.close()

    def _count(self, dispute: Dispute) -> Dispute:
        self.causes[dispute.cause] += 1
        return dispute

    # -- what both say, split into parts -----------------------------------------------------------

    def _sort_claims(self, claims: Iterable[Claim], parts: Parts) -> Iterator[Dispute]:
        terms, earliest, latest = self.terms, 2**62, 0
        for claim in claims:
            day = None
            if claim.time_ms is not None:
                day = _day(claim.time_ms)
                if (terms.first and day < terms.first) or (terms.last and day > terms.last):
                    self.outside += 1
                    continue
                earliest, latest = min(earliest, claim.time_ms), max(latest, claim.time_ms)
            self.lines += 1
            self.kinds.add(claim.kind)
            self._theirs[claim.kind, day] += 1
            if claim.auction:
                parts.add(claim.auction, (0, *claim))
            else:
                yield _of_claim("unreadable", claim, f"the line {claim.mistake}")
        if latest:
            self.first, self.last = self.first or _day(earliest), self.last or _day(latest)

    def _sort_own(self, directory: Path, parts: Parts) -> None:
        spooled: dict[bytes, tuple[str, str]] = {}
        replayed: list[OwnNotice] = []
        for row in read(files(directory, self.first, self.last), self.terms.ssp):
            if type(row) is OwnBid:
                parts.add(row.auction, (1, *row))
            elif type(row) is LogGap:
                self.gaps.append(row)
            elif type(row) is OwnNotice:
                if row.auction is None:
                    replayed.append(row)
                    continue
                if row.pair is not None:
                    spooled[row.pair] = row.auction, row.imp
                parts.add(row.auction, (2, *row))
        for row in replayed:
            pair = spooled.get(row.pair or b"")
            if pair is not None:
                auction, imp = pair
                parts.add(auction, (2, row.kind, auction, imp, row.time_ms, row.verdict, row.pair))
        self._left = [gap.missing for gap in self.gaps]

    # -- one part ----------------------------------------------------------------------------------

    def _compare(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[Dispute]:
        bids: defaultdict[str, dict[str, list[OwnBid]]] = defaultdict(dict)
        notices: defaultdict[tuple[str, str, str], list[OwnNotice]] = defaultdict(list)
        claims: list[Claim] = []
        for row in rows:
            if row[0] == 0:
                claims.append(Claim(*row[1:]))
            elif row[0] == 1:
                bid = OwnBid(*row[1:])
                bids[bid.auction].setdefault(bid.imp, []).append(bid)
            else:
                notice = OwnNotice(*row[1:])
                if notice.kind in self.kinds:
                    notices[notice.kind, notice.auction or "", notice.imp].append(notice)
        claimed: defaultdict[tuple[str, str, str], list[Claim]] = defaultdict(list)
        for claim in claims:
            imp = claim.imp
            if imp is None:
                imps = list(bids.get(claim.auction, ()))
                free = [i for i in imps if (claim.kind, claim.auction, i) not in claimed]
                imp = (free or imps or [""])[0]
            claimed[claim.kind, claim.auction, imp].append(claim)
        for key, lines in claimed.items():
            kind, auction, imp = key
            own = bids.get(auction, {}).get(imp, [])
            yield from self._judge(kind, lines, own, notices.get(key, []))
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
                times = f"{len(lines)} lines, counted {len(counted)} times"
                yield _of_claim("duplicate", claim, times, counted[-1][0], counted[-1][2])
            else:
                yield self._uncounted(claim, number, bids, notices)

    def _counted(
        self, kind: str, bids: list[OwnBid], notices: list[OwnNotice]
    ) -> list[tuple[OwnBid, date, str]]:
        """The bids for which one of the kind counts: with its day, and the verdict."""
        if kind == BID:
            return [(bid, _day(bid.time_ms), "") for bid in bids]
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
            result.append((bid, _day(notice.time_ms if late else bid.time_ms), notice.verdict))
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
        if claim.time_ms is not None and (theirs := _day(claim.time_ms)) != day:
            agrees = False
            yield _of_claim("other_day", claim, f"{theirs} there, {day} here", bid, verdict)
        if claim.price is not None and claim.kind != LOSS:
            cause, detail = self._price(claim, bid)
            if cause:
                agrees = False
                yield _of_claim(cause, claim, detail, bid, verdict)
        if agrees:
            self._agreed[claim.kind, day if claim.time_ms is not None else None] += 1

    def _price(self, claim: Claim, bid: OwnBid) -> tuple[str, str]:
        """The dispute about the price and its size; "" where there is none."""
        assert claim.price is not None
        more: int | Fraction = claim.price - bid.sent
        allowed = self.terms.tolerance
        if claim.currency != bid.currency:
            rate = Fraction(1)
            if claim.currency != "USD":
                known = self.terms.convert(claim.currency, _day(bid.time_ms))
                if known is None:
                    return "unknown_currency", claim.currency
                rate = known
            more = claim.price * rate - bid.price
            allowed = max(allowed, bid.price // CONVERTED_PART)
        if -allowed <= more <= allowed:
            return "", ""
        return "price_differs", f"by {float(more) / 1e6:+.6g} for 1,000"

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
            for imp, own in imps.items():
                real = [bid for bid in own if not bid.test]
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


def _day(time_ms: int) -> date:
    return _date(time_ms // DAY_MS)


@lru_cache
def _date(number: int) -> date:
    return EPOCH + timedelta(days=number)
