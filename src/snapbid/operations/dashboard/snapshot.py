"""The figures that the private port shows, from the stores, the counters and this machine.

A figure that could not be read is None, shown as unknown.
"""

import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from snapbid.base.risks import Risk, StoreName
from snapbid.campaigns.suspensions import CreativeSuspension
from snapbid.ledger.admin.audits import AuditReport
from snapbid.ledger.admin.drains import DrainReport
from snapbid.ledger.bids.clock import OwnClock
from snapbid.operations.dashboard.clocks import ClockDifference
from snapbid.operations.dashboard.counts import CountWindow
from snapbid.operations.dashboard.guard import SspStanding
from snapbid.operations.dashboard.ledger import Backlog, SspTraffic
from snapbid.operations.spending import Spending
from snapbid.warehouse import watching

FEW_FILES: Final = 100


class Disk(NamedTuple):
    """The disk of a directory named by a setting: bytes free, and bytes that may be needed."""

    setting: str
    path: Path
    free: int
    needed: int
    files: int | None  # inodes left; None if there is no limit

    @property
    def is_full(self) -> bool:
        return self.free < self.needed or (self.files is not None and self.files < FEW_FILES)

    @classmethod
    def of(cls, setting: str, path: Path, needed: int) -> "Disk | None":
        """Return the disk of a setting's directory; None if the directory does not exist.

        `needed`: the bytes that may be needed on it.
        """
        try:
            found = os.statvfs(path)
        except OSError:
            return None
        files = found.f_favail if found.f_files else None
        return cls(setting, path, found.f_bavail * found.f_frsize, needed, files)


class OpsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The latest figures for the private port; None for a figure that is unknown."""

    started_at: float  # epoch s: when reading began

    # Redis: the ledger, its drains and the audit.
    redis: bool | None = None
    redis_why: str = ""  # why it does not answer
    closed: str = ""  # why the ledger is closed (admin/closing.py)
    waiting: Backlog | None = None
    drains: Sequence[DrainReport] = ()  # that reported recently
    audit: AuditReport | None = None  # the last self-audit
    ahead_s: float = 0.0  # our clock, compared with that of Redis
    ssps: Mapping[str, SspTraffic] | None = None  # today's also from the warehouse
    money: Sequence[Spending] | None = None

    # The warehouse, as last read.
    warehouse: bool | None = None
    warehouse_why: str = ""
    identity: str | None = None
    registered: Set[str] | None = None  # SSPs
    campaigns: int | None = None
    budgeted: int | None = None
    suspensions: Sequence[CreativeSuspension] | None = None
    unlimited: Sequence[watching.CampaignDay] | None = None
    converted: watching.ConversionDay | None = None

    # Both stores.
    risks: Mapping[StoreName, Sequence[Risk]] = {}  # of the stores checked so far
    clocks: Mapping[str, OwnClock] = {}  # our clock compared with each other one, by its owner

    # This machine.
    answers: bool | None = None  # whether a worker answers on the public port
    missing: Sequence[str] = ()  # what it lacks before it can bid
    window: CountWindow | None = None
    standings: Sequence[SspStanding] = ()
    differences: Sequence[ClockDifference] = ()
    disks: Sequence[Disk] = ()
    spool_bytes: int = 0
    auction_log_bytes: int | None = None  # of chunks that wait; None without an auction log
    published_at: float | None = None  # epoch s
    checked_at: float | None = None  # epoch s: when the catalog was last up to date
    bases: Mapping[str, int] = {}  # number of bases by source

    def audit_age_s(self, now: float) -> float | None:
        """Return the seconds since the last complete audit.

        Before the first audit, returns the seconds since `started_at`, or None while no drain is
        running, since only drains run audits.
        """
        if self.audit is not None:
            return max(now - self.ahead_s - self.audit.at, 0.0)
        return max(now - self.started_at, 0.0) if self.drains else None

    def unchecked_s(self, now: float) -> float:
        """Return the seconds since the catalog was last up to date.

        If it never was, returns the seconds since `started_at`.
        """
        since = self.started_at if self.checked_at is None else self.checked_at
        return max(now - since, 0.0)

    def all_risks(self) -> list[Risk]:
        """Return the risks of both stores."""
        return [risk for risks in self.risks.values() for risk in risks]
