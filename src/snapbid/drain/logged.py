"""Compare the auction log with the reports, for the self-audit (contract 11).

Every bid and notice that the log records as counted must be in the reports. The reverse need not
hold: rows reach the files minutes later, and other machines may have their own log, or none. A
difference is reported with recent auctions that are in the log but not in the ledger.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final, NamedTuple

import asyncpg
import msgspec
from redis.asyncio import Redis

from snapbid.base.days import utc_day
from snapbid.base.repeats import RepeatedLog
from snapbid.ledger.admin.audits import NO_RECORD, Difference, LoggedBid, RecordedBids
from snapbid.ledger.bids.records import BILLING, WIN
from snapbid.warehouse import comparison

if TYPE_CHECKING:
    from snapbid.auctionlog.daily import LoggedDay

COMPARED: Final = 2  # days before today
LATELY_S: Final = 1_800  # records of bids stay in the ledger for longer
LOOKED_UP: Final = 5_000  # auctions of a difference
NAMED: Final = 3  # of these
KINDS: Final = {"bid": 0, "win": WIN, "billing": BILLING}

logger = logging.getLogger("snapbid.drain.audit")
repeated = RepeatedLog(logger)


class Lacking(NamedTuple):
    """A figure that is higher in the log than in the reports.

    `campaign` is set for the bids of a campaign, and empty for wins and impressions.
    """

    kind: str
    campaign: str
    difference: Difference


class LoggedAuctions:
    """A comparison of the auction log in a directory with the reports, day by day.

    `clock` returns epoch seconds.
    """

    def __init__(
        self, directory: Path, redis: Redis, shards: int, clock: Callable[[], float] = time
    ) -> None:
        self._directory = directory
        self._recorded = RecordedBids(redis, shards)
        self._clock = clock
        self._read: dict[datetime.date, tuple[list[Path], LoggedDay]] = {}
        self._before: dict[str, Difference] = {}

    async def compare(self, connection: asyncpg.Connection) -> list[Difference]:
        """Return the figures that stay higher in the log than in the reports.

        A figure is returned if it was also higher in the log at the previous call, and the reports
        have still not reached the log's figure of that call. Other differences may be due to counts
        in transit. Raises the stores' errors.
        """
        today = utc_day(self._clock())
        days = [today - datetime.timedelta(days=before) for before in range(COMPARED + 1)]
        self._read = {day: self._read[day] for day in days if day in self._read}
        found: list[Lacking] = []
        lasting: list[Difference] = []
        for day in days:
            logged = await self._counted(day)
            if logged is None:
                continue
            for each in _lacking(day, logged, await comparison.fetch_campaigns(connection, day)):
                found.append(each)
                before = self._before.get(each.difference.what)
                if before is not None and each.difference.second < before.first:
                    lasting.append(await self._named(day, each))
        self._before = {each.difference.what: each.difference for each in found}
        return lasting

    async def _counted(self, day: datetime.date) -> "LoggedDay | None":
        """Count a day's rows in the log, or return cached counts if the day's files are unchanged.

        Returns None if the files cannot be read.
        """
        try:
            from snapbid.auctionlog import daily, files

            paths = files.files_of(self._directory, day, day)
            if day not in self._read or self._read[day][0] != paths:
                self._read[day] = paths, await asyncio.to_thread(daily.count_day, paths, day)
        except (OSError, ImportError) as error:
            repeated.warning(
                "left the auction log out of the audit: %(reason)s", {"reason": str(error)}
            )
            return None
        return self._read[day][1]

    async def _named(self, day: datetime.date, lacking: Lacking) -> Difference:
        """Add to a difference some recent auctions whose logged bid or notice the ledger lacks.

        Returns the difference unchanged if no such auction is found, or if the log's files are
        gone.
        """
        from snapbid.auctionlog import daily

        kind, campaign, difference = lacking
        since_ms = int((self._clock() - LATELY_S) * 1000)
        try:
            rows = await asyncio.to_thread(
                daily.fetch_since, self._read[day][0], kind, campaign, since_ms, LOOKED_UP
            )
        except OSError:
            return difference
        bids = [LoggedBid(*row) for row in rows]
        missing = (
            f"{bid.auction_id}/{bid.imp_id}"
            for bid, kinds in zip(bids, await self._recorded.fetch_kinds(bids), strict=True)
            if kinds == NO_RECORD or kinds & KINDS[kind] != KINDS[kind]
        )
        if names := ", ".join(islice(missing, NAMED)):
            return msgspec.structs.replace(
                difference, what=f"{difference.what}, not in the ledger: {names}"
            )
        return difference


def _lacking(
    day: datetime.date, logged: "LoggedDay", reported: dict[str, comparison.CampaignDay]
) -> Iterator[Lacking]:
    """Yield the figures that are higher in the log than in the reports."""
    none = comparison.CampaignDay(0, 0, 0)
    figures = [
        ("bid", campaign, f"bids of {campaign}", bids, reported.get(campaign, none).bids)
        for campaign, bids in sorted(logged.bids.items())
    ]
    wins = sum(each.wins for each in reported.values())
    imps = sum(each.imps for each in reported.values())
    figures.append(("win", "", "wins", logged.wins, wins))
    figures.append(("billing", "", "impressions", logged.imps, imps))
    for kind, campaign, what, first, second in figures:
        if first > second:
            what = f"{what} on {day}"
            yield Lacking(kind, campaign, Difference("auctions", what, first, second))
