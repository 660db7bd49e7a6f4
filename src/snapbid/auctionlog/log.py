"""A worker's side of the auction log: what the bid and notice endpoints call.

Rows go straight into a mapped segment, so nothing waits and nothing is flushed; threads prepare the
next segment. Where none can be had (the disk is full, the directory is gone) rows are lost and
counted, and bidding goes on.
"""

import asyncio
import logging
import secrets
from pathlib import Path
from time import time
from typing import Final

from snapbid.auctionlog._rows import RowWriter
from snapbid.auctionlog.segments import RowSegment, spool_of
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import NOTICE, NOTICE_KINDS, NoticeVerdict
from snapbid.metrics import Metrics

RETRY_S: Final = 1.0

logger = logging.getLogger("snapbid")


class AuctionLog:
    """Writes this worker's rows below a directory; `rows` is what takes them."""

    def __init__(self, directory: Path, metrics: Metrics) -> None:
        self._spool = spool_of(directory)
        self._token = secrets.token_hex(8)
        self._number = 0
        self._lost = metrics.counter("snapbid_auction_log_lost_total")
        self._told = 0
        self._held: list[RowSegment] = []
        self._preparing: asyncio.Task[None] | None = None
        self._failed = False
        self.rows = RowWriter(self._prepare)

    async def open(self) -> None:
        """Prepare the first segments, if that is possible."""
        self._loop = asyncio.get_running_loop()
        self._prepare()
        assert self._preparing is not None
        await asyncio.wait([self._preparing], timeout=RETRY_S)

    async def close(self) -> None:
        """Leave what was written to the writer."""
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait([self._preparing])
        self._count_lost()
        self.rows.close()
        for segment in self._held:
            segment.close()
        self._held = []

    def _prepare(self) -> None:
        if self._preparing is None or self._preparing.done():
            self._preparing = self._loop.create_task(self._keep_ready())

    async def _keep_ready(self) -> None:
        """Offer another segment, however often that takes, and close those that are full."""
        while not self.rows.has_next:
            for full in self._held[:-1]:
                full.close()
            self._held = self._held[-1:]
            self._count_lost()
            self._number += 1
            try:
                segment = await asyncio.to_thread(
                    RowSegment.create, self._spool, self._token, self._number
                )
            except OSError as error:
                if not self._failed:
                    logger.error("the auction log cannot be written: %s", error.strerror)
                self._failed = True
                await asyncio.sleep(RETRY_S)
            else:
                if self._failed:
                    logger.info("the auction log is written again")
                self._failed = False
                self._held.append(segment)
                self.rows.offer(segment.mapped)

    def _count_lost(self) -> None:
        lost = self.rows.lost
        self._lost.inc(lost - self._told)
        self._told = lost

    def replayed(self, packed: bytes, verdict: str) -> None:
        """Write what became of a notice from the spool (`ledger.records.NOTICE`).

        A late one has the time of now, by whose day it counts.
        """
        kind, reason, digest, seconds, ms, *_ = NOTICE.unpack(packed)
        is_late = verdict == NoticeVerdict.LATE
        time_ms = int(time() * 1000) if is_late else seconds * 1000 + ms
        self.rows.notice(time_ms, kind & NOTICE_KINDS, verdict, reason, digest, None, True)


class LoggedNotices:
    """A ledger whose settled notices are logged."""

    def __init__(self, ledger: Ledger, rows: RowWriter) -> None:
        self._ledger = ledger
        self._rows = rows

    async def settle(
        self,
        kind: int,
        auction_id: bytes,
        imp_id: bytes,
        reason: int = 0,
        otherwise: tuple[bytes, bytes] | None = None,
        family: bytes = b"",
    ) -> str:
        """See `Ledger.settle`."""
        rows = self._rows
        came_ms = rows.begin()
        try:
            verdict = await self._ledger.settle(kind, auction_id, imp_id, reason, otherwise, family)
            kind &= NOTICE_KINDS
            rows.notice(came_ms, kind, verdict, reason, auction_id, imp_id)
            if otherwise is not None and verdict == NoticeVerdict.SPOOLED:
                rows.notice(
                    came_ms, kind, verdict, reason, *otherwise
                )  # which of them, is replayed
        finally:
            rows.end()
        return verdict
