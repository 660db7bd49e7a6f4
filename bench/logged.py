"""An auction log whose rows go into real segments, and no further."""

from pathlib import Path
from typing import Final

from snapbid.auctionlog._rows import RowWriter
from snapbid.auctionlog.segments import RowSegment

TOKEN: Final = "bench"


class SegmentsOnly:
    """Offers `rows` segment after segment, and removes each when it is full."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._number = 0
        self._held: list[RowSegment] = []
        self.rows = RowWriter(self._go_on)
        self._go_on()

    def _go_on(self) -> None:
        for full in self._held[:-1]:
            full.remove()
        self._number += 1
        segment = RowSegment.create(self._spool, TOKEN, self._number)
        self._held = [*self._held[-1:], segment]
        self.rows.offer(segment.mapped)

    def close(self) -> None:
        self.rows.close()
        for segment in self._held:
            segment.remove()
