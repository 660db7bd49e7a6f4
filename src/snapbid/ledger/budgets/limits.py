"""A campaign's limits (budget and frequency caps), encoded for the scripts.

Redis decides in the script call that remembers a bid (remember.lua): it holds the bid's cost and
the user's impression, or refuses. So no budget is overspent, even if many workers bid at once, and
some of them pause or die. Workers hold no money: they only skip refused campaigns until these have
headroom again. Leasing money to workers would be no more exact, and a dead worker's money would
have to be recovered.

With several shards, each may spend its grant from a budget (escrow.py).

Money is in nano-USD here, so the cost of one impression equals its CPM in micro-USD.
"""

from struct import Struct
from typing import Final

from snapbid.ledger.bids.records import CAPPED, HELD
from snapbid.ledger.bids.records import DAY_S as DAY_S
from snapbid.ledger.budgets.escrow import TOTAL

NANO: Final = 1000  # nano-USD in a micro-USD
TOMORROW_S: Final = 30  # before midnight, when the next day's budget is granted
MOST: Final = 2**32 - 1  # impressions or seconds; practically unlimited

_CAMPAIGN: Final = Struct("<I")
_CAP: Final = Struct("<II")
_IN_ESCROW: Final = b"\x01?"


class Limits:
    """A campaign's limits.

    `daily_micros`, `total_micros`: the budget; None for unlimited. `even_from_ms`: creation time of
    a campaign with pacing `even` (epoch ms), else None. `caps`: (impressions, seconds) pairs.
    `in_escrow`: whether shards may spend only what allocators grant them of the paced budget
    (escrow.py). `kinds`: flags that the campaign's bids get in their records (HELD, CAPPED).
    `caps_alone`: the limits without the budget, encoded for caps.lua.
    """

    __slots__ = ("_daily", "_even_from_ms", "_in_escrow", "_paced", "_packed", "_rest",
                 "_second", "_total", "campaign", "caps_alone", "kinds", "longest_s")  # fmt: skip

    def __init__(
        self,
        campaign: int,
        daily_micros: int | None,
        total_micros: int | None,
        even_from_ms: int | None,
        caps: tuple[tuple[int, int], ...] = (),
        in_escrow: bool = False,
    ) -> None:
        self.campaign = campaign
        self._daily = None if daily_micros is None else daily_micros * NANO
        self._total = None if total_micros is None else total_micros * NANO
        self._in_escrow = in_escrow
        self._even_from_ms = even_from_ms
        kept = [(min(number, MOST), min(seconds, MOST)) for number, seconds in caps]
        self.longest_s = max((seconds for _, seconds in kept), default=0)
        budgeted = daily_micros is not None or total_micros is not None
        self.kinds = (HELD if budgeted else 0) | (CAPPED if caps else 0)
        self._paced = self._daily is not None and even_from_ms is not None and not in_escrow
        packed = b"".join([_CAP.pack(*cap) for cap in kept])
        self.caps_alone = _CAMPAIGN.pack(campaign) + bytes((0, 0, 0, len(caps))) + packed
        self._rest = self._text(self._total) + bytes((len(caps),)) + packed
        self._second = -1
        self._packed = _CAMPAIGN.pack(campaign) + self._text(self._daily) + _text(None) + self._rest

    @property
    def is_daily(self) -> bool:
        """Whether the campaign has a daily budget."""
        return self._daily is not None

    def day_nano(self, now: int) -> int | None:
        """Compute today's limit as of `now` (epoch s); None without a daily budget.

        With even pacing, this is the share of the budget for the elapsed part of the day, plus 1%.
        """
        if self._daily is None or self._even_from_ms is None:
            return self._daily
        midnight_ms = now // DAY_S * DAY_S * 1000
        elapsed_ms = max(now * 1000 - max(midnight_ms, self._even_from_ms), 0)
        share = self._daily * elapsed_ms // (DAY_S * 1000)
        return min(self._daily, share + self._daily // 100)

    def periods(self, now: int) -> dict[str, int]:
        """Compute the limits as of `now` (epoch s), in nano-USD by period (escrow.py).

        Shortly before midnight, the next day is included.
        """
        periods = {} if self._total is None else {TOTAL: self._total}
        for day in sorted({now // DAY_S, (now + TOMORROW_S) // DAY_S}):
            amount = self.day_nano(max(now, day * DAY_S))
            if amount is not None:
                periods[str(day)] = amount
        return periods

    def at(self, now: int) -> bytes:
        """Encode the limits for caps.lua, as of `now` (epoch s)."""
        if self._paced and now != self._second:
            assert self._daily is not None
            allowed = self.day_nano(now)
            growth = None if allowed == self._daily else self._daily // DAY_S  # per second
            self._packed = b"".join(
                (_CAMPAIGN.pack(self.campaign), _text(allowed), _text(growth), self._rest)
            )
            self._second = now
        return self._packed

    def _text(self, amount: int | None) -> bytes:
        return _IN_ESCROW if self._in_escrow and amount is not None else _text(amount)


def _text(amount: int | None) -> bytes:
    digits = b"" if amount is None else b"%d" % amount
    return bytes((len(digits),)) + digits
