"""Compares an SSP's claims with the auction log, auction by auction (contract 11).

A claim agrees where the auction log has the bid and a counted notice of its kind, on the same UTC
day and at the same price. Everything else is a dispute, with one of the causes below; a claim may
have two. What counts is the rule of contract 5: a notice belongs to the day of its bid, or, where
that was closed, to the day of its row in the log (`late` there).

Where only some days are compared the lines of the days beside them are looked at as well: they may
claim what was counted here on one of these days. A line without an impression claims any of its
auction that counts and that no other line claims. A column of which nothing fits is named once.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from snapbid.reconcile import agreed, claims, own
from snapbid.reconcile.agreed import Rows
from snapbid.reconcile.claims import BID, CLAIMS, LOSS, Claim, Seen
from snapbid.reconcile.own import BIDS, DAY_MS, EPOCH, NOTICES, LogGap, OwnBid, OwnNotice
from snapbid.reconcile.parts import PARTS, Parts
from snapbid.reconcile.prices import Terms, day_of, difference, rate

CAUSES: Final = {
    "no_id_fits": "nothing in a column of the SSP's log is ours: another one may have the ids",
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
FEW: Final = 10  # lines, of which none may fit by chance
_ONE_DAY: Final = timedelta(days=1)


_Key: TypeAlias = tuple[str, str, str]  # kind, auction, impression


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
    """One kind on one day: what they claim, and what the auction log counts, with its money.

    `price_nanos` is what their prices come to in nano-USD, as far as there are rates.
    """

    theirs: int
    agreed: int
    ours: int
    cost_nanos: int
    price_nanos: int


class Comparison:
    """The result so far; complete once `disputes` has been read to its end."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.causes: Counter[str] = Counter()
        self.kinds: set[str] = set()
        self.lines = self.outside = 0
        self.without_price = self.without_time = 0  # of the lines that should have one
        self.first, self.last = terms.first, terms.last
        self.gaps: list[LogGap] = []
        self._theirs: Counter[tuple[str, date | None]] = Counter()
        self._agreed: Counter[tuple[str, date | None]] = Counter()
        self._ours: Counter[tuple[str, date | None]] = Counter()
        self._cost: Counter[tuple[str, date | None]] = Counter()
        self._price: Counter[tuple[str, date | None]] = Counter()
        self._left: list[int | None] = []

    def totals(self) -> dict[tuple[str, date | None], DayTotals]:
        """By kind and day; None: of lines without a time."""
        keys = {*self._theirs, *self._agreed, *self._ours}
        counted = self._theirs, self._agreed, self._ours, self._cost, self._price
        return {
            key: DayTotals(*(counter[key] for counter in counted))
            for key in sorted(keys, key=lambda key: (key[0], key[1] or date.min))
        }

    def disputes(
        self, logged: Iterable[pa.RecordBatch], directory: Path, seen: Seen | None = None
    ) -> Iterator[Dispute]:
        """Compare claims (CLAIMS) with the auction log in a directory. Raises OSError.

        `seen` has the names of their columns.
        """
        parts = Rows(Parts(CLAIMS), Parts(BIDS), Parts(NOTICES))
        try:
            for dispute in self._sort_claims(logged, parts.claims):
                yield self._count(dispute)
            self._sort_own(directory, parts)
            strange = list(self._strange_columns(parts, seen.columns if seen else {}))
            for field, detail in strange:
                yield self._count(_of_column(detail))
                if field == "auction":
                    return
            ignored = {field for field, _ in strange}
            for part in range(PARTS):
                rows = _without(Rows(*(each.read(part) for each in parts)), ignored)
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
        if self._is_compared(day):
            self._agreed[kind, day if has_time else None] += count
            self._count_own(kind, day, count, cost)

    def _count_own(self, kind: str, day: date, count: int, cost: int) -> None:
        self._ours[kind, day] += count
        self._cost[kind, day] += 0 if kind == LOSS else cost

    def _is_compared(self, day: date | None) -> bool:
        """Whether a day is one of those compared; the day of what has no time is."""
        first, last = self.terms.first, self.terms.last
        return day is None or ((not first or first <= day) and (not last or day <= last))

    def _strange_columns(
        self, parts: Rows, columns: Mapping[str, str]
    ) -> Iterator[tuple[str, str]]:
        """The fields of which nothing in their log fits, each with what is said of it."""
        if self.gaps:  # what is missing may have been ours
            return
        count = Counter[str]()
        for part in range(PARTS):
            claimed, own_bids, _ = Rows(*(each.read(part) for each in parts))
            count["auction"] += len(claimed)
            known = claimed.filter(pc.is_in(claimed["auction"], value_set=own_bids["auction"]))
            count["auction fits"] += len(known)
            count["imp"] += len(known) - known["imp"].null_count
            keys = agreed.keys_of(own_bids["auction"], own_bids["imp"])
            fit = pc.is_in(agreed.keys_of(known["auction"], known["imp"]), value_set=keys)
            count["imp fits"] += pc.sum(pc.and_(fit, pc.is_valid(known["imp"]))).as_py() or 0
            named = claimed["descriptor"].drop_null()
            own = pa.array(self.terms.descriptors, pa.string())
            count["ssp"] += len(named)
            count["ssp fits"] += pc.sum(pc.is_in(named, value_set=own)).as_py() or 0
        for field, what in (
            ("auction", "the id of an auction with a bid of ours on these days"),
            ("imp", "the id of an impression of its auction that we have bid on"),
            ("ssp", "an endpoint of this SSP"),
        ):
            if count[field] >= FEW and not count[f"{field} fits"]:
                name = f"the column {columns[field]!a}" if field in columns else f"the {field}s"
                yield field, f"none of {count[field]} values of {name} is {what}"

    # -- what both say, split into parts -----------------------------------------------------------

    def _sort_claims(self, logged: Iterable[pa.RecordBatch], parts: Parts) -> Iterator[Dispute]:
        terms, earliest, latest = self.terms, 2**62, 0
        for batch in logged:
            inside = _inside(batch, terms.first, terms.last)
            beside = _inside(
                batch,
                terms.first and terms.first - _ONE_DAY,
                terms.last and terms.last + _ONE_DAY,
            )
            self.outside += len(batch) - len(inside)
            self.lines += len(inside)
            self._note_missing(inside)
            self.kinds.update(pc.unique(beside["kind"]).to_pylist())
            times = pc.min_max(inside["time_ms"])
            if times["min"].is_valid:
                earliest = min(earliest, times["min"].as_py())
                latest = max(latest, times["max"].as_py())
            for kind, number, count in _per_day(inside):
                day = None if number is None else day_of(number * DAY_MS)
                self._theirs[kind, day] += count
            self._add_prices(inside)
            parts.add(beside.filter(pc.not_equal(beside["auction"], "")))
            named = pc.not_equal(inside["auction"], "")
            for claim in claims.of_batch(inside.filter(pc.invert(named))):
                yield _of_claim("unreadable", claim, f"the line {claim.mistake}")
        if latest:
            self.first, self.last = self.first or day_of(earliest), self.last or day_of(latest)

    def _note_missing(self, inside: pa.RecordBatch) -> None:
        readable = inside.filter(pc.equal(inside["mistake"], ""))
        priced = pc.or_(pc.equal(readable["kind"], LOSS), pc.is_valid(readable["price"]))
        self.without_price += len(readable) - (pc.sum(priced).as_py() or 0)
        self.without_time += readable["time_ms"].null_count

    def _add_prices(self, inside: pa.RecordBatch) -> None:
        """Add up their prices, at the rate of the day; without one, of the first day compared."""
        days = pc.divide(inside["time_ms"], DAY_MS)
        names = ("kind", "currency", "price")
        table = pa.table({"day": days, **{name: inside[name] for name in names}})
        table = table.filter(
            pc.and_(pc.is_valid(table["price"]), pc.not_equal(table["kind"], LOSS))
        )
        groups = table.group_by(["kind", "day", "currency"]).aggregate([("price", "sum")])
        for row in groups.to_pylist():
            day = None if row["day"] is None else day_of(row["day"] * DAY_MS)
            usd = rate(row["currency"], day or self.terms.first or EPOCH, self.terms)
            if usd is not None:
                self._price[row["kind"], day] += round(row["price_sum"] * usd)

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
        claimed = self._assigned(list(claims.of_batch(rows.claims)), bids, notices)
        for key, lines in claimed.items():
            kind, auction, imp = key
            ours = bids.get(auction, {}).get(imp, [])
            yield from self._judge(kind, lines, ours, notices.get(key, []))
        yield from self._unclaimed(bids, notices, claimed)

    def _assigned(
        self,
        lines: Sequence[Claim],
        bids: Mapping[str, Mapping[str, list[OwnBid]]],
        notices: Mapping[tuple[str, str, str], list[OwnNotice]],
    ) -> dict[_Key, list[Claim]]:
        """The claims of each kind and impression; those without one get what they fit best."""
        claimed: defaultdict[_Key, list[Claim]] = defaultdict(list)
        free: defaultdict[tuple[str, str], list[Claim]] = defaultdict(list)
        for claim in lines:
            if claim.imp is None:
                free[claim.kind, claim.auction].append(claim)
            else:
                claimed[claim.kind, claim.auction, claim.imp].append(claim)
        for (kind, auction), several in free.items():
            imps = list(bids.get(auction, ()))
            counted = {
                imp: each
                for imp in imps
                if (kind, auction, imp) not in claimed
                and (each := self._counted_of(kind, bids[auction][imp], notices, auction, imp))
            }
            left = []
            for claim in several:  # those that agree with one first
                fitting = [imp for imp, each in counted.items() if self._agrees(claim, *each[0])]
                if fitting:
                    claimed[kind, auction, fitting[0]].append(claim)
                    del counted[fitting[0]]
                else:
                    left.append(claim)
            others = [*counted, *(imp for imp in imps if (kind, auction, imp) not in claimed)]
            for claim in left:
                imp = others.pop(0) if others else (imps or [""])[0]
                others = [other for other in others if other != imp]
                claimed[kind, auction, imp].append(claim)
        return claimed

    def _counted_of(
        self,
        kind: str,
        ours: list[OwnBid],
        notices: Mapping[tuple[str, str, str], list[OwnNotice]],
        auction: str,
        imp: str,
    ) -> list[tuple[OwnBid, date, str]]:
        real = [bid for bid in ours if not bid.test]
        return self._counted(kind, real, notices.get((kind, auction, imp), []))

    def _agrees(self, claim: Claim, bid: OwnBid, day: date, _: str) -> bool:
        if claim.time_ms is not None and day_of(claim.time_ms) != day:
            return False
        return (
            claim.price is None or claim.kind == LOSS or not difference(claim, bid, self.terms)[0]
        )

    def _judge(
        self, kind: str, lines: list[Claim], bids: list[OwnBid], notices: list[OwnNotice]
    ) -> Iterator[Dispute]:
        """Judge all claims of one kind on one impression."""
        real = [bid for bid in bids if not bid.test]
        counted = self._counted(kind, real, notices)
        for bid, day, _ in counted:
            if self._is_compared(day):
                self._count_own(kind, day, 1, bid.cost)
        for number, claim in enumerate(lines):
            said = None if claim.time_ms is None else day_of(claim.time_ms)
            is_claimed = number < len(counted) and self._is_compared(counted[number][1])
            if not is_claimed and not self._is_compared(said):
                continue  # of a day beside those compared, on both sides
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
                        self._count_own(kind, day, 1, bid.cost)
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


def _of_column(detail: str) -> Dispute:
    return Dispute(
        "no_id_fits", "", "", None, None, None, None, "", None, None, "", "", detail
    )  # fmt: skip


def _without(rows: Rows, fields: Collection[str]) -> Rows:
    """The rows with claims that have no impression, or endpoint, whatever their log says."""
    claimed = rows.claims
    for field, name in (("imp", "imp"), ("ssp", "descriptor")):
        if field in fields:
            at = claimed.schema.get_field_index(name)
            nothing = pa.nulls(len(claimed), pa.string())
            claimed = claimed.set_column(at, CLAIMS.field(name), nothing)
    return rows._replace(claims=claimed)


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
