"""Compares the auction log with the reports, for the self-audit (contract 11).

Whatever the log has as counted must be in the reports. The reverse can't be asked: rows get into
files some minutes later, and other machines may have their own log, or none.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final

import asyncpg

from snapbid.base.repeats import RepeatedLog
from snapbid.ledger.admin.audits import Difference
from snapbid.warehouse import comparison

if TYPE_CHECKING:
    from snapbid.auctionlog.daily import LoggedDay

COMPARED: Final = 2  # days before today

logger = logging.getLogger("snapbid.drain.audit")
repeated = RepeatedLog(logger)


class LoggedAuctions:
    """The bids and notices in the files of a directory, by day.

    `clock`: epoch seconds.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time) -> None:
        self._directory = directory
        self._clock = clock
        self._read: dict[datetime.date, tuple[list[Path], LoggedDay]] = {}
        self._before: dict[str, Difference] = {}

    async def compare(self, connection: asyncpg.Connection) -> list[Difference]:
        """Return what the log has more of than the reports, now and in the look before.

        Counts on their way explain a difference until the reports have come up to what the log had
        the last time. Raises what the warehouse raises.
        """
        today = datetime.datetime.fromtimestamp(self._clock(), datetime.UTC).date()
        days = [today - datetime.timedelta(days=before) for before in range(COMPARED + 1)]
        self._read = {day: self._read[day] for day in days if day in self._read}
        found: list[Difference] = []
        for day in days:
            logged = await self._counted(day)
            if logged is not None:
                reported = await comparison.fetch_campaigns(connection, day)
                found += _missing(day, logged, reported)
        lasting = [
            each
            for each in found
            if each.what in self._before and each.second < self._before[each.what].first
        ]
        self._before = {each.what: each for each in found}
        return lasting

    async def _counted(self, day: datetime.date) -> "LoggedDay | None":
        """Count a day's rows, anew if there are other files than the last time."""
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


def _missing(
    day: datetime.date, logged: "LoggedDay", reported: dict[str, comparison.CampaignDay]
) -> Iterator[Difference]:
    """Yield the figures of which the log has more."""
    none = comparison.CampaignDay(0, 0, 0)
    figures = [
        (f"bids of {campaign}", bids, reported.get(campaign, none).bids)
        for campaign, bids in sorted(logged.bids.items())
    ]
    figures.append(("wins", logged.wins, sum(each.wins for each in reported.values())))
    figures.append(("impressions", logged.imps, sum(each.imps for each in reported.values())))
    for what, first, second in figures:
        if first > second:
            yield Difference("auctions", f"{what} in the auction log of {day}", first, second)
