"""Plain rules of budgets and caps over a sequence of bids and notices (contract 3, Budgets).

Every question is answered from the list of all bids ever made; nothing is added up on the way.
Money is nano-USD, so that a bid costs its CPM in micro-USD; times are epoch ms.
"""

from dataclasses import dataclass, field
from fractions import Fraction

from support.oracle_values import Document, number, part

DAY_MS = 86_400_000
MOST_QUANTITY = 1000  # impressions that one may stand for


def quantity(inventory: set[str | int], imp: Document) -> Fraction:
    """Give how many impressions one stands for: on the screens of DOOH alone."""
    multiplier = number(part(imp, "qty").get("multiplier"))
    counts = inventory == {"dooh"} and multiplier is not None and multiplier > 0
    return multiplier if counts else Fraction(1)  # type: ignore[return-value]


def cost(inventory: set[str | int], imp: Document, price_micros: int) -> int:
    """Give what a win costs in nano-USD (OpenRTB 2.6, 7.9.4): (price / 1000) * multiplier = cost.

    A cost is rounded to the even one of two, and is at least 1.
    """
    usd = Fraction(price_micros, 10**6) / 1000 * quantity(inventory, imp)
    return max(round(usd * 10**9), 1)


@dataclass(frozen=True)
class Terms:
    """A campaign's budget in micro-USD, and its caps; `even_from_ms`: paced since then."""

    campaign: int
    daily: int | None = None
    total: int | None = None
    even_from_ms: int | None = None
    caps: tuple[tuple[int, int], ...] = ()


@dataclass
class Bid:
    """A bid that was kept."""

    campaign: int
    price: int
    made_ms: int
    user: str
    budgeted: bool
    won_ms: int | None = None
    billed_ms: int | None = None
    lost: bool = False

    def costs(self, now_ms: int, hold_s: int) -> bool:
        return self.won_ms is not None or self.holds_money(now_ms, hold_s)

    def holds_money(self, now_ms: int, hold_s: int) -> bool:
        """Holds of money last until the end of a second."""
        live = now_ms < (-(-self.made_ms // 1000) + hold_s) * 1000
        return self.budgeted and self.won_ms is None and not self.lost and live

    def seen_ms(self) -> int | None:
        return self.billed_ms if self.billed_ms is not None else self.won_ms

    def holds_impression(self, now_ms: int, hold_s: int) -> bool:
        live = now_ms < self.made_ms + hold_s * 1000
        return self.seen_ms() is None and not self.lost and live


@dataclass
class Spending:
    """All bids that were kept, and what they allow."""

    hold_s: int
    bids: list[Bid] = field(default_factory=list)

    def used(self, campaign: int, now_ms: int) -> int:
        return sum(bid.price for bid in self._of(campaign) if bid.costs(now_ms, self.hold_s))

    def used_today(self, campaign: int, now_ms: int) -> int:
        return sum(
            bid.price
            for bid in self._of(campaign)
            if bid.made_ms // DAY_MS == now_ms // DAY_MS and bid.costs(now_ms, self.hold_s)
        )

    def held(self, campaign: int, now_ms: int) -> int:
        mine = self._of(campaign)
        return sum(bid.price for bid in mine if bid.holds_money(now_ms, self.hold_s))

    def verdict(self, terms: Terms, price: int, user: str, now_ms: int) -> str:
        """What becomes of a bid: k kept, b beyond the budget, c beyond a cap."""
        for impressions, seconds in terms.caps:
            if self._shown(terms.campaign, user, seconds, now_ms) >= impressions:
                return "c"
        used = self.used(terms.campaign, now_ms)
        if terms.total is not None and used + price > terms.total * 1000:
            return "b"
        day = allowed_today(terms, now_ms)
        if day is not None and self.used_today(terms.campaign, now_ms) + price > day:
            return "b"
        return "k"

    def keep(self, terms: Terms, price: int, user: str, now_ms: int) -> Bid:
        budgeted = terms.daily is not None or terms.total is not None
        self.bids.append(bid := Bid(terms.campaign, price, now_ms, user, budgeted))
        return bid

    def _shown(self, campaign: int, user: str, seconds: int, now_ms: int) -> int:
        """Impressions in the window, and those that may become some."""
        count = 0
        for bid in self._of(campaign):
            if bid.user == user:
                seen = bid.seen_ms()
                count += seen is not None and now_ms - seen < seconds * 1000
                count += bid.holds_impression(now_ms, self.hold_s)
        return count

    def _of(self, campaign: int) -> list[Bid]:
        return [bid for bid in self.bids if bid.campaign == campaign]


def allowed_today(terms: Terms, now_ms: int) -> int | None:
    """The day's budget, or with even pacing its elapsed share (in whole seconds) and 1%."""
    if terms.daily is None:
        return None
    daily = terms.daily * 1000
    if terms.even_from_ms is None:
        return daily
    now_ms = now_ms // 1000 * 1000
    since = max(now_ms // DAY_MS * DAY_MS, terms.even_from_ms)
    elapsed = Fraction(max(now_ms - since, 0), DAY_MS)
    return min(daily, int(daily * elapsed) + daily // 100)
