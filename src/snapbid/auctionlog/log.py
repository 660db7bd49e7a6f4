"""A worker's side of the auction log, called by the bid and notice endpoints.

Rows go straight into a mapped chunk, so nothing waits or needs flushing; a thread prepares the next
chunk. If none can be created (the disk is full, the directory is gone) rows are lost and counted,
and bidding continues.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Final

from snapbid.auctionlog._rows import RowWriter
from snapbid.auctionlog.chunks import RowChunk, spool_of
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import NOTICE, NOTICE_KINDS, NoticeVerdict
from snapbid.metrics import Metrics

RETRY_S: Final = 1.0

logger = logging.getLogger(__name__)


class AuctionLog:
    """This worker's part of the auction log, in chunks below a directory.

    `rows` is the row writer; `workers`: the number of this machine's workers that share the
    directory.
    """

    def __init__(self, directory: Path, metrics: Metrics, workers: int = 1) -> None:
        self._spool = spool_of(directory)
        self._workers = workers
        self._token = secrets.token_hex(8)
        self._number = 0
        self._lost = metrics.counter("snapbid_auction_log_lost_total")
        self._counted = 0
        self._held: list[RowChunk] = []
        self._preparing: asyncio.Task[None] | None = None
        self._failed = False
        self.rows = RowWriter(self._prepare)

    async def open(self) -> None:
        """Begin to prepare chunks, and wait at most RETRY_S for the first ones."""
        self._loop = asyncio.get_running_loop()
        self._prepare()
        assert self._preparing is not None
        await asyncio.wait([self._preparing], timeout=RETRY_S)

    async def close(self) -> None:
        """Close the chunks; the writer process converts their contents."""
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait([self._preparing])
        self._count_lost()
        self.rows.close()
        for chunk in self._held:
            chunk.close()
        self._held = []

    def _prepare(self) -> None:
        if self._preparing is None or self._preparing.done():
            self._preparing = self._loop.create_task(self._keep_ready())

    async def _keep_ready(self) -> None:
        """Close full chunks and give the row writer a new one; retry until it can be created."""
        while not self.rows.has_next:
            for full in self._held[:-1]:
                full.close()
            self._held = self._held[-1:]
            self._count_lost()
            self._number += 1
            try:
                chunk = await asyncio.to_thread(
                    RowChunk.create, self._spool, self._token, self._number, self._workers
                )
            except OSError as error:
                if not self._failed:
                    logger.error(
                        "failed to write the auction log: %(reason)s; rows may be lost; retrying",
                        {"reason": error.strerror},
                    )
                self._failed = True
                await asyncio.sleep(RETRY_S)
            else:
                if self._failed:
                    logger.info("resumed writing the auction log")
                self._failed = False
                self._held.append(chunk)
                self.rows.offer(chunk.mapped)

    def _count_lost(self) -> None:
        lost = self.rows.lost
        self._lost.inc(lost - self._counted)
        self._counted = lost

    def replayed(self, packed: bytes, verdict: str) -> None:
        """Write the verdict on a notice that was replayed from the spool.

        `packed`: the notice in the form of `ledger.bids.records.NOTICE`. If its verdict is LATE, it
        gets the current time, since it counts on the current day.
        """
        kind, reason, digest, seconds, ms, *_ = NOTICE.unpack(packed)
        is_late = verdict == NoticeVerdict.LATE
        time_ms = int(time() * 1000) if is_late else seconds * 1000 + ms
        self.rows.notice(time_ms, kind & NOTICE_KINDS, verdict, reason, digest, None, True)


class LoggedNotices:
    """A wrapper of a ledger that logs the notices it settles.

    `canonical` returns the canonical id of a signed notice's family, "" if unknown.
    """

    def __init__(self, ledger: Ledger, rows: RowWriter, canonical: Callable[[bytes], str]) -> None:
        self._ledger = ledger
        self._rows = rows
        self._canonical = canonical

    async def settle(
        self,
        kind: int,
        auction_id: bytes,
        imp_id: bytes,
        reason: int = 0,
        otherwise: tuple[bytes, bytes] | None = None,
        family: bytes = b"",
    ) -> str:
        """Settle a notice as `Ledger.settle` does, and log the verdict."""
        rows = self._rows
        came_ms = rows.begin()
        try:
            verdict = await self._ledger.settle(kind, auction_id, imp_id, reason, otherwise, family)
            kind &= NOTICE_KINDS
            ssp = self._canonical(family) if family else None
            rows.notice(came_ms, kind, verdict, reason, auction_id, imp_id, ssp=ssp)
            if otherwise is not None and verdict == NoticeVerdict.SPOOLED:
                # Replaying the spool tells which of the two it was.
                rows.notice(came_ms, kind, verdict, reason, *otherwise)
        finally:
            rows.end()
        return verdict
