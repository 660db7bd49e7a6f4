"""Floors by duration, for the oracle (OpenRTB 2.6, 3.2.7, 3.2.8, 3.2.12 and 3.2.35).

Contract 3: `mincpmpersec` and `durfloors` hold beside the floor; those of a deal must admit the
campaign. Where ranges overlap, each holds. Nothing is imported from the product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from support.oracle_values import Document, amount, bound, items, members
from support.oracle_vast import filled


@dataclass(frozen=True)
class Timed:
    """A price by the second, and (least, most, floor) of ranges of durations; `convert` gives an
    amount in micro-USD, None without a rate.
    """

    per_second: Fraction | None
    ranges: list[tuple[Fraction, Fraction | None, Fraction]]
    convert: Callable[[Fraction], int | None]

    def unpaid(self, price: int, creative: Document) -> list[str]:
        """Name the floors that a price does not reach with a creative.

        A video or audio creative of unknown duration reaches none.
        """
        if creative["media"] not in ("video", "audio"):
            return []
        duration = filled(creative).get("duration")
        if duration is None:
            missed = {"mincpmpersec": self.per_second is not None, "durfloors": bool(self.ranges)}
        else:
            per_second = self.per_second or Fraction(0)
            floors = [floor for least, most, floor in self.ranges
                      if least <= duration and (most is None or duration <= most)]  # fmt: skip
            missed = {
                "mincpmpersec": not self.reaches(price, per_second * duration),
                "durfloors": not all(self.reaches(price, floor) for floor in floors),
            }
        return [name for name, is_missed in missed.items() if is_missed]

    def reaches(self, price: int, floor: Fraction) -> bool:
        """Tell if a price is at least a floor."""
        least = self.convert(floor)
        return least is not None and price >= least


def read_timed(place: Document, convert: Callable[[Fraction], int | None]) -> Timed:
    """Read the floors of a video, audio or deal.

    What limits nothing is left out: amounts that are not above 0, ranges that no duration is in.
    """
    per_second = amount(place.get("mincpmpersec"))
    ranges = []
    for each in items(place.get("durfloors")):
        entry = members(each) or {}
        least, most = bound(entry.get("mindur")) or Fraction(0), bound(entry.get("maxdur"))
        floor = amount(entry.get("bidfloor")) or Fraction(0)
        if floor > 0 and (most is None or least <= most):
            ranges.append((least, most, floor))
    return Timed(per_second if per_second is not None and per_second > 0 else None, ranges, convert)
