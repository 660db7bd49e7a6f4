"""The comparison of `snapbid reconcile` in plain Python, a line after the other."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from snapbid.auctionlog.layout import BID, TEST, LoggedRow
from snapbid.auctionlog.table import KINDS as LOGGED_KINDS
from snapbid.operations.reconcile.claims import KINDS
from snapbid.operations.reconcile.compare import Terms


class Line(NamedTuple):
    number: int
    kind: str
    auction: str
    imp: str | None
    day: date | None
    price: int | None
    currency: str
    ssp: str
    is_readable: bool


class Found(NamedTuple):
    """A dispute, without what only describes it."""

    cause: str
    kind: str
    auction: str
    imp: str
    line: int | None


class Counted(NamedTuple):
    bid: LoggedRow
    day: date


def lines_of(texts: Sequence[Sequence[str]]) -> list[Line]:
    """The lines as auction, impression, time in ms, price, currency, kind and SSP."""
    lines = []
    for number, (auction, imp, time, price, currency, kind, ssp) in enumerate(texts, 2):
        day = day_of(int(time)) if time else None
        is_readable = price != "dear"
        micros = round(float(price) * 1_000_000) if price and is_readable else None
        names = KINDS[kind], auction, imp or None, day, micros, currency, ssp
        lines.append(Line(number, *names, is_readable))
    return lines


def day_of(time_ms: int) -> date:
    return datetime.fromtimestamp(time_ms / 1000, UTC).date()


class OneByOne:
    """Compares all days; `found` has the disputes, `agreed` the lines that are in none."""

    def __init__(self, rows: Iterable[LoggedRow], lines: list[Line], terms: Terms) -> None:
        self.terms = terms
        self.found: list[Found] = []
        self.agreed = self.ours = 0
        days = [line.day for line in lines if line.day]
        self.first, self.last = min(days), max(days)
        self.kinds = {line.kind for line in lines}
        self.bids: dict[str, dict[str, list[LoggedRow]]] = defaultdict(dict)
        self.notices: dict[Any, list[LoggedRow]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row.time_ms):
            auction, imp = row.strings[2].decode(), row.strings[3].decode()
            if row.kind == BID:
                self.bids[auction].setdefault(imp, []).append(row)
            else:
                self.notices[LOGGED_KINDS[row.kind], auction, imp].append(row)
        claimed = self._assigned(lines)
        for key, of_key in claimed.items():
            self._judge(key, of_key)
        for auction, imps in self.bids.items():
            for imp in imps:
                for kind in self.kinds:
                    if (kind, auction, imp) not in claimed:
                        self._add_unclaimed((kind, auction, imp))

    def _assigned(self, lines: list[Line]) -> dict[Any, list[Line]]:
        claimed: dict[Any, list[Line]] = defaultdict(list)
        free: dict[Any, list[Line]] = defaultdict(list)
        for line in lines:
            if line.imp is None:
                free[line.kind, line.auction].append(line)
            else:
                claimed[line.kind, line.auction, line.imp].append(line)
        for (kind, auction), several in free.items():
            imps = list(self.bids.get(auction, ()))
            open_ = [imp for imp in imps if (kind, auction, imp) not in claimed]
            counted = {imp: self._counted((kind, auction, imp)) for imp in open_}
            left = []
            for line in several:
                fitting = [imp for imp in open_ if self._fits(line, counted[imp])]
                if fitting:
                    claimed[kind, auction, fitting[0]].append(line)
                    open_.remove(fitting[0])
                else:
                    left.append(line)
            open_.sort(key=lambda imp: not counted[imp])
            for line in left:
                imp = open_.pop(0) if open_ else (imps or [""])[0]
                claimed[kind, auction, imp].append(line)
        for of_key in claimed.values():
            of_key.sort()
        return claimed

    def _counted(self, key: tuple[str, str, str]) -> list[Counted]:
        kind, auction, imp = key
        bids = [bid for bid in self.bids.get(auction, {}).get(imp, []) if not bid.flags & TEST]
        if not bids:
            return []
        notices = self.notices.get((kind, auction, imp), [])
        counting = [notice for notice in notices if notice.verdict in "cl"]
        counting = counting or [notice for notice in notices if notice.verdict == "d"][:1]
        result = []
        for notice in counting:
            before = [bid for bid in bids if bid.time_ms <= notice.time_ms]
            bid = max(before or bids, key=lambda bid: bid.time_ms)
            late = notice.verdict == "l"
            result.append(Counted(bid, day_of(notice.time_ms if late else bid.time_ms)))
        return result

    def _fits(self, line: Line, counted: list[Counted]) -> bool:
        if not counted or line.day not in (None, counted[0].day):
            return False
        return not self._price_cause(line, counted[0].bid)

    def _price_cause(self, line: Line, bid: LoggedRow) -> str:
        if line.price is None:
            return ""
        currency = bid.strings[7].decode()
        allowed = self.terms.tolerance
        if line.currency == currency:
            return "price_differs" if abs(line.price - bid.sent) > allowed else ""
        usd = self.terms.rate(line.currency, day_of(bid.time_ms))
        if usd is None:
            return "unknown_currency"
        differs = abs(line.price * usd - bid.price) > max(allowed, bid.price // 100)
        return "price_differs" if differs else ""

    def _judge(self, key: tuple[str, str, str], lines: list[Line]) -> None:
        counted = self._counted(key)
        self.ours += len(counted)
        for number, line in enumerate(lines):
            causes = self._causes(key, line, number, counted)
            self.found += [Found(cause, *key, line.number) for cause in causes]
            self.agreed += not causes

    def _causes(
        self, key: tuple[str, str, str], line: Line, number: int, counted: list[Counted]
    ) -> list[str]:
        if not line.is_readable:
            return ["unreadable"]
        if line.ssp not in self.terms.descriptors:
            return ["unknown_ssp"]
        if number < len(counted):
            bid, day = counted[number]
            causes = [
                self._price_cause(line, bid),
                "other_day" if line.day not in (None, day) else "",
            ]
            return [cause for cause in causes if cause]
        if counted or number:
            return ["duplicate"]
        return [self._why_uncounted(key)]

    def _why_uncounted(self, key: tuple[str, str, str]) -> str:
        _, auction, imp = key
        bids = self.bids.get(auction, {}).get(imp, [])
        verdicts = {notice.verdict for notice in self.notices.get(key, [])}
        if not bids:
            return "not_won_here"
        if bids[-1].flags & TEST:
            return "test"
        return "late" if "u" in verdicts else "pending" if "s" in verdicts else "notice_missing"

    def _add_unclaimed(self, key: tuple[str, str, str]) -> None:
        for _, day in self._counted(key):
            if self.first <= day <= self.last:
                self.ours += 1
                self.found.append(Found("not_in_their_log", *key, None))
