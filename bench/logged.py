"""An auction log that fills real chunks, but never makes Parquet files of them."""

from pathlib import Path
from typing import Final

from snapbid.auctionlog._rows import RowWriter
from snapbid.auctionlog.chunks import RowChunk

TOKEN: Final = "bench"


class ChunksOnly:
    """Gives `rows` one chunk after another, and removes each once it is full."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._number = 0
        self._held: list[RowChunk] = []
        self.rows = RowWriter(self._go_on)
        self._go_on()

    def _go_on(self) -> None:
        for full in self._held[:-1]:
            full.remove()
        self._number += 1
        chunk = RowChunk.create(self._spool, TOKEN, self._number, 1)
        self._held = [*self._held[-1:], chunk]
        self.rows.offer(chunk.mapped)

    def close(self) -> None:
        self.rows.close()
        for chunk in self._held:
            chunk.remove()
