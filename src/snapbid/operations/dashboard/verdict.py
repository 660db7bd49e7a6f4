"""Judges from the private port's figures whether this server bids, and since when.

The verdict lists the causes of problems, each with its remedy and the time it was first seen.
"""

from collections.abc import Iterator, Sequence
from time import time
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from snapbid.base.settings import VARIABLES
from snapbid.base.words import counted
from snapbid.ledger.admin.audits import STALE_S as AUDIT_STALE_S
from snapbid.ledger.admin.parts import names
from snapbid.operations.dashboard.counts import BIDS, FEW, CountWindow
from snapbid.operations.dashboard.guard import LIMIT, WARNING, Answers, SspStanding
from snapbid.operations.dashboard.ledger import is_foreign
from snapbid.operations.dashboard.snapshot import OpsSnapshot
from snapbid.operations.preflight import LEDGER
from snapbid.redisclient.replicas import GRACE_S

State: TypeAlias = Literal["bidding", "degraded", "not bidding", "unknown"]

BEHIND_S: Final = 60.0  # how far the drain may be behind
STALE_S: Final = 120.0  # how old the last check of the catalog may be
SHARE: Final = 0.02
UNWON: Final = 0.02  # of an SSP's billed impressions, those without a win notice
LATE_REMEDY: Final = (
    "check the latency on /ops: add workers, ask the SSP for a longer tmax, or take fewer of its"
    " requests: snapbid ssp set {ssp} --qps N"
)
OVERLOAD_REMEDY: Final = "add workers, or take fewer of its requests: snapbid ssp set {ssp} --qps N"
STORE_REMEDY: Final = "check Redis and its log, unless it has just come back"
INTERNAL_REMEDY: Final = "check the log of serve"
NOT_READY_REMEDY: Final = (
    "check the log of serve, which says why; campaigns: the warehouse is unavailable, snapbid"
    " migrate has not run, or the workers refuse the catalog or wait for the members of audiences"
)
DRAIN_REMEDY: Final = (
    "nothing is lost, the drain catches up afterwards; remove the cause: a full disk (df -h), a"
    " lock, a store or a network that is down"
)
FULL: Final = {  # setting -> what a full disk of it means
    VARIABLES["home"]: "notices cannot be spooled while Redis is unavailable, and changed campaigns"
    " do not reach the workers",
    VARIABLES["auction_log"]: "rows of the auction log are lost",
}
MIB: Final = 2**20
CAPACITY: Final = (
    "check the latency on /ops: add workers, use a faster Redis, or ask for a longer tmax"
)
UNANSWERED: Final = {  # outcome -> text and remedy
    "late": ("got no bid: the answer would have come after tmax", CAPACITY),
    "overload": ("got no bid: there were more than the workers can handle", CAPACITY),
    "store_down": ("got no bid: Redis did not acknowledge it", STORE_REMEDY),
}


class Cause(Struct, frozen=True):
    """A problem, its remedy, and when it was first seen."""

    key: str
    stops: bool  # stops bids; otherwise only degrades the service
    text: str
    remedy: str
    since: float = 0.0


class ServingVerdict(Struct, frozen=True):
    """Whether the service bids, since when (epoch s), and the causes of any trouble.

    Causes that stop bids come first, then the others. In both groups, older causes come first, but
    those reported by drains come last, since another cause usually explains them.
    """

    state: State
    since: float
    causes: list[Cause]
    note: str | None = None


class Judge:
    """Judges whether the service bids; keeps track of when each current problem was first seen."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self.verdict = ServingVerdict("unknown", time(), [])

    def judge(self, now: float, snapshot: OpsSnapshot) -> ServingVerdict:
        """Return the verdict at the time `now` (epoch s)."""
        found = {cause.key: cause for cause in _all_causes(snapshot, now)}
        self._since = {key: self._since.get(key, now) for key in found}
        causes = [replace(cause, since=self._since[key]) for key, cause in found.items()]
        causes.sort(
            key=lambda cause: (not cause.stops, cause.key.startswith("drain "), cause.since)
        )
        state: State = "degraded" if causes else "bidding"
        if any(cause.stops for cause in causes):
            state = "not bidding"
        elif snapshot.redis is None:
            state = "unknown"
        since = self.verdict.since if state == self.verdict.state else now
        self.verdict = ServingVerdict(state, since, causes, _note(snapshot))
        return self.verdict


def _note(snapshot: OpsSnapshot) -> str | None:
    if snapshot.window is not None and not snapshot.window.total(BIDS):
        return f"no bid request in the last {snapshot.window.seconds:.0f} s"
    over = [each for each in snapshot.standings if each.level and not _is_troubled(each)]
    if over:
        share = max(each.answers["15m"].share for each in over)
        ssps = ", ".join(each.ssp for each in over)
        return (
            f"{share:.0%} of the requests of {ssps} in 15 min were late or failed; this has passed"
        )
    return None


def _all_causes(snapshot: OpsSnapshot, now: float) -> list[Cause]:
    """Return all causes; include what the workers lack only if no other cause stops bids."""
    causes = list(_causes(snapshot, now))
    if snapshot.missing and not any(cause.stops for cause in causes):
        lacking = ", ".join(snapshot.missing)
        text = f"the workers answer every bid request with a 204, since they lack: {lacking}"
        causes.append(Cause("not ready", True, text, NOT_READY_REMEDY))
    return causes


def _causes(snapshot: OpsSnapshot, now: float) -> Iterator[Cause]:
    yield from _of_stores(snapshot)
    yield from _of_ledger(snapshot)
    yield from _of_audit(snapshot, now)
    yield from _of_setup(snapshot, now)
    if snapshot.window is not None:
        for cause in _of_traffic(snapshot.window):
            if snapshot.redis is not False or cause.key != "store_down":  # reported above
                yield cause
    yield from _of_ssps(snapshot.standings)
    yield from _of_billings(snapshot)
    yield from _of_machines(snapshot)
    for risk in snapshot.all_risks():
        stops = risk.name == LEDGER or (risk.store == "redis" and risk.severity == "readonly")
        yield Cause(f"risk {risk.name}", stops, risk.text, risk.remedy)


def _of_machines(snapshot: OpsSnapshot) -> Iterator[Cause]:
    """Yield problems with disks, clocks and drains."""
    for disk in snapshot.disks:
        if disk.is_full:
            yield Cause(
                f"disk {disk.setting}",
                False,
                f"the disk of {disk.setting} ({disk.path}) is full: {disk.free / MIB:,.0f} MiB "
                f"are free, {disk.needed / MIB:,.0f} may be needed at once"
                + ("" if disk.files is None else f", {disk.files:,} inodes are left"),
                f"free space there (df -h, df -i): {FULL[disk.setting]}",
            )
    for difference in snapshot.differences:
        yield Cause(
            f"clock {', '.join(difference.names)}",
            False,
            f"{difference}: budgets, holds and days depend on them",
            "set the clock and synchronise it with a time service (timedatectl, chronyc tracking)",
        )
    for drain in snapshot.drains:
        for number, trouble in enumerate(drain.troubles):
            text, remedy = _of_trouble(trouble)
            yield Cause(
                f"drain {drain.host} {number}", False, f"the drain on {drain.host}: {text}", remedy
            )


def _of_trouble(trouble: str) -> tuple[str, str]:
    """Split a drain's problem from the remedy that it names, unless the drain just retries."""
    text, _, remedy = trouble.rpartition(": ")
    if not text or trouble.endswith("; retrying"):
        return trouble, DRAIN_REMEDY
    return text, remedy


def _of_stores(snapshot: OpsSnapshot) -> Iterator[Cause]:
    if snapshot.closed:
        yield Cause(
            "closed",
            True,
            f"the ledger of SNAPBID_REDIS_URL is closed, {snapshot.closed}: requests get a 204, "
            "events a 503, notices wait on disk",
            "when snapbid ledger move has ended, set SNAPBID_REDIS_URL to the new ledger, and "
            "restart the drain and serve; --undo opens the old one again",
        )
    elif snapshot.redis is False:
        yield Cause(
            "redis",
            True,
            f"Redis does not answer{_because(snapshot.redis_why)}: requests get a 204, events "
            "a 503, notices wait on disk",
            "check Redis, its log and SNAPBID_REDIS_URL; bidding resumes by itself",
        )
    if snapshot.warehouse is False:
        yield Cause(
            "warehouse",
            False,
            f"PostgreSQL does not answer{_because(snapshot.warehouse_why)}: bidding continues, "
            "reports fail, counts and events wait in Redis",
            "check PostgreSQL, its log and SNAPBID_DATABASE_URL",
        )
    if snapshot.spool_bytes:
        yield Cause(
            "spool",
            False,
            "notices wait on disk to be counted",
            "check Redis, unless it has just come back: the spool then empties by itself",
        )


def _because(why: str) -> str:
    return f" ({why})" if why else ""


def _of_ledger(snapshot: OpsSnapshot) -> Iterator[Cause]:
    backlog = snapshot.waiting
    if backlog is None:
        return
    if backlog.unavailable:
        count, number = len(backlog.unavailable), len(backlog.shards)
        yield Cause(
            "shards",
            False,
            f"{count} of {number} shards of the ledger {'is' if count == 1 else 'are'} unavailable "
            f"({names(backlog.unavailable)}): auctions there get a 204, notices wait on disk",
            "check the primaries that had them (redis-cli --cluster check) and their replicas; "
            "bidding resumes by itself",
        )
    if backlog.unreplicated:
        yield Cause(
            "unreplicated",
            False,
            f"{names(backlog.unreplicated)} of the ledger: no replica for at least {GRACE_S:.0f} s,"
            " so writes are acknowledged without one, and lost if the primary is",
            "start the node that failed, or add a replica (redis-cli --cluster check); writes wait"
            " for it by themselves",
        )
    foreign = sum(is_foreign(shard, snapshot.identity) for shard in backlog.shards)
    if foreign:
        yield Cause(
            "foreign",
            foreign + len(backlog.unavailable) == len(backlog.shards),
            "the ledger in Redis belongs to another warehouse",
            "correct SNAPBID_REDIS_URL or SNAPBID_DATABASE_URL, or run snapbid ledger adopt",
        )
    elif any(risk.name == LEDGER for risk in snapshot.all_risks()):
        pass  # reported as a risk
    elif not all(shard is None or shard.is_confirmed for shard in backlog.shards):
        yield Cause(
            "unconfirmed",
            False,
            "campaigns with a budget do not bid: no drain has restored their spend",
            "start snapbid drain, or check its log",
        )
    if backlog.silent.processes:
        count, left_s = backlog.silent
        yield Cause(
            "silent",
            False,
            "expired holds still reserve money: they wait up to"
            f" {left_s / 60:.0f} min more for notices that {count} silent server"
            f" process{'' if count == 1 else 'es'} may have on disk",
            "start serve on the missing machine, which replays its notices; if it is gone for"
            " good, wait",
        )
    if backlog.counters and backlog.behind_s is None:
        yield Cause("drain", False, "no drain has ever run", "start snapbid drain")
    else:
        behind = max(backlog.behind_s or 0.0, backlog.oldest_s)
        if behind > BEHIND_S:
            yield Cause(
                "drain",
                False,
                f"counts or events have waited for the drain for {behind / 60:.0f} min or more",
                "check that snapbid drain runs, and its log; nothing is lost",
            )


def _of_audit(snapshot: OpsSnapshot, now: float) -> Iterator[Cause]:
    audit, age_s = snapshot.audit, snapshot.audit_age_s(now)
    if audit is not None and (found := sum(audit.counts.values())):
        first = audit.shown[0]
        one, other = first.sides
        yield Cause(
            "audit",
            False,
            f"the audit has found {counted(found, 'difference')} between figures "
            f"kept twice: {first.comparison}: {first.what}: {first.first:,} in {one}, "
            f"{first.second:,} in {other}{' …' if found > 1 else ''}",
            "see the runbook, SnapbidAuditDifference; the log of the drain lists more",
        )
    can_run = snapshot.drains and snapshot.redis and snapshot.warehouse
    if can_run and age_s is not None and age_s > AUDIT_STALE_S:
        yield Cause(
            "audit age",
            False,
            f"no audit has completed for {age_s / 60:.0f} min",
            "check the log of the drain, which runs it",
        )


def _of_setup(snapshot: OpsSnapshot, now: float) -> Iterator[Cause]:
    if snapshot.answers is False:
        yield Cause(
            "port",
            True,
            "no worker of this machine answers on the public port",
            "wait if serve has just started; else check its log, or restart it",
        )
    if snapshot.registered is not None and not snapshot.registered:
        yield Cause("ssps", True, "no SSP is registered", "run snapbid ssp add ID")
    if snapshot.campaigns == 0:
        yield Cause("campaigns", True, "there are no campaigns", "run snapbid campaign import FILE")
    unchecked_s = snapshot.unchecked_s(now)
    if snapshot.warehouse and not snapshot.missing and unchecked_s > STALE_S:
        yield Cause(
            "stale",
            False,
            f"campaigns have not been updated for {unchecked_s / 60:.0f} min",
            "check the log of serve, which says what prevents it",
        )


def _of_ssps(standings: Sequence[SspStanding]) -> Iterator[Cause]:
    """Yield a cause for each SSP that may soon throttle us, the worst first."""
    troubled = [(each, each.answers["15m"]) for each in standings if _is_troubled(each)]
    for standing, quarter in sorted(troubled, key=lambda pair: -pair[1].share):
        ssp, minute = standing.ssp, standing.answers["1m"]
        yield Cause(
            f"guard {ssp}",
            False,
            f"{minute.share:.0%} of the requests of {ssp} in the last minute, {quarter.share:.0%} "
            f"in 15, were late or failed: from {LIMIT:.0%}, exchanges send less to a bidder",
            _remedy(minute).format(ssp=ssp),
        )


def _of_billings(snapshot: OpsSnapshot) -> Iterator[Cause]:
    """Yield a problem for each SSP with many more billing notices than win notices today."""
    for ssp, traffic in sorted((snapshot.ssps or {}).items()):
        wins, imps = traffic.today.wins, traffic.today.imps
        if imps - wins >= max(FEW, UNWON * imps):
            yield Cause(
                f"unwon {ssp}",
                False,
                f"{ssp} has billed {imps:,} impressions today, but sent {wins:,} win notices: "
                "only wins count towards budgets, which therefore allow more than they should",
                "ask the SSP to request the win notice (nurl) of each bid that it bills",
            )


def _is_troubled(standing: SspStanding) -> bool:
    """Return whether too many answers to an SSP were late or failed in the last minute."""
    return standing.answers["1m"].share >= WARNING


def _remedy(answers: Answers) -> str:
    """Return the remedy for the most frequent cause of late or failed answers."""
    remedies = {
        LATE_REMEDY: answers.late,
        OVERLOAD_REMEDY: answers.overload,
        STORE_REMEDY: answers.store_down,
        INTERNAL_REMEDY: answers.internal,
    }
    return max(remedies, key=remedies.__getitem__)


def _of_traffic(window: CountWindow) -> Iterator[Cause]:
    outcomes: dict[str, int] = {}
    for labels, grown in window.of(BIDS):
        name = labels.get("outcome", "")
        outcomes[name] = outcomes.get(name, 0) + grown
    requests = sum(outcomes.values())
    for name, (what, remedy) in UNANSWERED.items():
        share = outcomes.get(name, 0) / requests if requests else 0.0
        if requests >= FEW and share > SHARE:
            text = f"{share:.0%} of the bid requests of the last minute {what}"
            yield Cause(name, False, text, remedy)
    failed = window.errors()
    if failed:
        yield Cause(
            "errors",
            False,
            f"{counted(failed, 'request')} failed with a 5xx in the last minute",
            "check the log of serve; a 500 from report or a 503 from events means an unavailable"
            " store",
        )
    if window.total("snapbid_event_dead_letters_total"):
        yield Cause(
            "dead_letters",
            False,
            "events could not be stored and were dead-lettered",
            "check event_dead_letters in the warehouse, then run snapbid events replay",
        )
