"""Computes the diagnosis of an SSP from counts, without I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from snapbid.bidding.reasons import Reason
from snapbid.bidding.refusals import (
    BUDGET,
    DEAL_FLOOR,
    FLOOR,
    NATIVE_REQUEST,
    NO_CAMPAIGNS,
    SIZE,
    SIZE_MISSING,
)
from snapbid.operations.golive.checklist import REQUIRED, STRANGE, Item, judge
from snapbid.operations.golive.examination import EXAMINED, RULE, UNMATCHED, UNUSED
from snapbid.operations.golive.store import RecentRequestStats, SspRequestStats
from snapbid.partners.diagnosis.window import MINUTES, DiagnosisWindow
from snapbid.warehouse.diagnosis import DayHistory

Day: TypeAlias = date  # for a field named `date`
NO_BID: Final = {
    Reason.NO_CAMPAIGN: "no campaign matches the request: see the rules that refused last",
    Reason.NO_MEDIA: "no impression has banner, video, audio or native: send one of them",
    Reason.CURRENCY: "cur has neither USD nor a currency with an exchange rate: add USD",
    Reason.FLOOR_CURRENCY: "bidfloorcur has no exchange rate: state the floor in USD",
    Reason.QUANTITY: "qty.multiplier is more than agreed: ask the operator",
    Reason.PRIVATE_AUCTION: "private_auction is 1, but no campaign has one of the deals",
    Reason.LIMITED: "the budgets or frequency caps of the campaigns that match are used up",
    Reason.TAKEN: "another SSP's auction and impression have these ids: make ids unique",
    Reason.LONG_ID: "an id is over 512 bytes: the notification URLs could not carry it",
    Reason.CUT_SHORT: "the request took too much time: send fewer impressions, shorter lists",
    Reason.LATE: "there was not enough time before tmax: allow more, or send from a nearer region",
    Reason.OVERLOAD: "the bidder was at its capacity",
    Reason.RATE: "more requests in a second than agreed",
    Reason.STORE_DOWN: "the bidder could not store the bid: nothing to do on your side",
}
RULES: Final = {
    NO_CAMPAIGNS: "no campaign is active",
    BUDGET: "the budgets of the campaigns that match are used up for now",
    "flight": "the campaigns that match have not started yet, or are over",
    "no recognised user": "campaigns with frequency caps need a user: user.id, device.ifa, an eid",
    "deal terms": "the deals' wseat or wadomain excludes their campaigns",
    DEAL_FLOOR: "the deals' floors, or those by duration, exceed the bids or have no exchange rate",
    "private auction": "private_auction is 1, but no campaign has one of the deals",
    FLOOR: "the floor, or mincpmpersec or durfloors, is above the bids of the campaigns that match",
    "seat": "wseat or bseat excludes the campaigns that match",
    "blocked app": "bapp blocks the campaigns that match",
    "blocked advertiser": "badv blocks the campaigns that match",
    "blocked category": "bcat or acat excludes the campaigns that match",
    "pod": "an advertiser already has another impression of the pod",
    "dsa": "dsarequired requires a declaration that no campaign makes",
    "geo_radius": "lat and lon are outside the campaigns' areas, or missing",
    "creative secure": "secure is 1, but the creatives are not secure",
    "creative attributes": "battr blocks the creatives",
    "creative mimes": "mimes has none of the creatives' media types",
    "creative protocols": "protocols has none of the creatives' protocols",
    "creative duration": "minduration, maxduration, rqddurs or poddur excludes the creatives",
    "creative ads": "maxseq, or a fixed slot of a pod, excludes creatives of several ads",
    "creative linear": "linearity excludes the creatives",
    "creative skippable": "skip is 0, but no creative is known not to be skippable",
    "creative bitrate": "minbitrate or maxbitrate excludes the creatives",
    "creative delivery": "delivery excludes the creatives",
    "creative player": "boxingallowed is 0, but no creative has the player's shape",
    "creative apis": "api lacks a framework that the creatives need",
    "creative type": "btype blocks the creatives",
    "creative language": "wlang or wlangb excludes the creatives' languages",
    "creative native": "no creative has the assets that the native request requires",
    "creative suspended": "the creatives were rejected before, and are tried again later",
    SIZE: "no campaign has a creative of these banner sizes",
    SIZE_MISSING: "the banner states no size: send w and h, or format",
    NATIVE_REQUEST: "native.request cannot be read: see the values that could not be used",
    "format": "no campaign has a creative for this media type",
}
"""The meanings of rules that refused campaigns last; `rule_meaning` has the rest."""
ERRORS: Final = {
    "bad_request": "the body does not conform to OpenRTB: the broken fields are below",
    "unsupported_media_type": "send Content-Type: application/json, plain or as gzip",
    "too_large": "the body is over the limit",
    "forbidden": "the request came from an address that was not agreed",
    "request_timeout": "the body did not arrive in time",
    "internal": "an error in the bidder: nothing to do on your side",
}


def rule_meaning(rule: str) -> str:
    """Explain a rule of `bidding.refusals`; rules that are not in `RULES` are targeting rules."""
    return RULES.get(rule) or f"no campaign targets this {rule.replace('_', ' ')}, or it is missing"


KINDS: Final = {"win": (1, "w"), "billing": (2, "i"), "loss": (4, "l")}
REUSED: Final = 40
LOST_AND_WON: Final = 60
_OUTCOME: Final = "outcome:"
_BROKEN: Final = "broken:"
_INTERNAL: Final = "status:500"
_REASONS: Final = {reason.value: NO_BID[reason] for reason in Reason}


class OutcomeShare(Struct, frozen=True):
    """The number of requests with an outcome, and what the outcome means."""

    code: str
    requests: int
    meaning: str


class RuleShare(Struct, frozen=True):
    """A rule, and the number of requests on which it refused the campaign closest to bidding.

    `requests` is extrapolated from `sampled`, the number of such requests in a sample.
    """

    rule: str
    requests: int
    sampled: int
    meaning: str


class FieldFault(Struct, frozen=True):
    """A missing or invalid field, and the number of requests with this mistake."""

    field: str
    rule: str
    requests: int
    example: str  # the field's path in one of the requests, without values


class NoticeCounts(Struct, frozen=True):
    """Counts of one kind of notice for the bids of an SSP."""

    counted: int
    duplicate: int
    unknown: int  # the bid had expired
    late: int  # part of `counted`: on a later day than the bid
    altered: int  # the URL was altered; the values of the bid were used


class DiagnosisDay(Struct, frozen=True, rename="camel"):
    """An SSP's counts for one UTC day."""

    date: Day
    requests: int
    bids: int
    late: int
    wins: int
    billed: int


class Diagnosis(Struct, frozen=True, rename="camel"):
    """The diagnosis of an SSP; `checklist` is null if request statistics cannot be read."""

    ssp: str
    from_: datetime = msgspec.field(name="from")
    to: datetime
    requests: int
    tests: int
    bids: int
    no_bids: list[OutcomeShare]
    no_campaign: list[RuleShare]
    errors: list[OutcomeShare]
    late_share: float
    lacking: list[FieldFault]
    broken: list[FieldFault]
    unused: list[FieldFault]
    notices: dict[str, NoticeCounts]
    wins_without_billing: int
    losses_without_reason: int
    lost_and_won: int
    reused_auctions: int
    days: list[DiagnosisDay]
    checklist: list[Item] | None


def diagnose(
    ssp: str,
    window: DiagnosisWindow,
    now: datetime,
    history: DayHistory,
    recent: Mapping[str, RecentRequestStats] | None,
    base_url: str,
) -> Diagnosis:
    """Compute the diagnosis of the canonical id `ssp`.

    `recent`: statistics by descriptor, None while Redis is unavailable. `history` is only used for
    a window of days.
    """
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    notices: Counter[str] = Counter()
    if window.days is None:
        since = datetime.fromtimestamp((int(now.timestamp()) // 60 - MINUTES) * 60, UTC)
        until = now
        for own in (recent or {}).values():
            counts.update(own.counts)
        notices = _notices_of_minutes(counts)
        noticed_in = f"in the last {MINUTES} minutes"
    else:
        days = window.days
        since = datetime(days.first.year, days.first.month, days.first.day, tzinfo=UTC)
        until = min(now, datetime(days.last.year, days.last.month, days.last.day, 23, 59, 59,
                                  tzinfo=UTC))  # fmt: skip
        for day in history.requests:
            counts.update(day.counts)
            examples |= day.examples
        for _, _, kind, times in history.notices:
            notices[kind] += times
        notices["loss"] += notices["loss_unsaid"]
        noticed_in = f"from {days.first} to {days.last} (UTC)"
    for own in (recent or {}).values():
        examples |= own.examples
    outcomes = _outcomes(counts)
    requests = sum(outcomes.values())
    late = outcomes[Reason.LATE.value]
    checklist = None
    if recent is not None:
        seen = _request_stats(since, until, counts, notices, recent, noticed_in)
        checklist = judge(seen, _path_id(ssp, recent), base_url)
    return Diagnosis(
        ssp=ssp,
        from_=since,
        to=until,
        requests=requests,
        tests=counts["tests"],
        bids=outcomes["bid"],
        no_bids=_shares(outcomes, _REASONS),
        no_campaign=_rules(counts, outcomes[Reason.NO_CAMPAIGN.value]),
        errors=_shares(
            outcomes, {code: ERRORS.get(code, "") for code in outcomes.keys() - _REASONS.keys()}
        ),
        late_share=round(late / requests, 6) if requests else 0.0,
        lacking=_lacking(counts),
        broken=_broken(counts, examples),
        unused=_unused(counts),
        notices={
            kind: NoticeCounts(
                notices[kind],
                notices[f"{kind}_duplicate"],
                notices[f"{kind}_expired"],
                notices[f"{kind}_late"],
                notices[f"{kind}_altered"],
            )
            for kind in KINDS
        },
        wins_without_billing=max(notices["win"] - notices["billing"], 0),
        losses_without_reason=notices["loss_unsaid"],
        lost_and_won=notices["lost_and_won"],
        reused_auctions=notices["bid_reused"],
        days=[] if window.days is None else _days(window.days.days(), history),
        checklist=checklist,
    )


def _outcomes(counts: Mapping[str, int]) -> Counter[str]:
    outcomes = Counter(
        {name.removeprefix(_OUTCOME): by for name, by in counts.items() if _OUTCOME in name}
    )
    if counts.get(_INTERNAL):
        outcomes["internal"] = counts[_INTERNAL]
    return outcomes


def _shares(outcomes: Mapping[str, int], meanings: Mapping[str, str]) -> list[OutcomeShare]:
    """Return the outcomes with their meanings, most frequent first."""
    shares = [
        OutcomeShare(code, outcomes[code], meaning)
        for code, meaning in meanings.items()
        if code != "bid" and outcomes.get(code)
    ]
    return sorted(shares, key=lambda share: (-share.requests, share.code))


def _rules(counts: Mapping[str, int], requests: int) -> list[RuleShare]:
    """Return the rules that left sampled requests without a campaign, most frequent first.

    Each count is extrapolated to all `requests` that matched no campaign.
    """
    examined = counts.get(UNMATCHED, 0)
    shares = [
        RuleShare(rule, round(requests * by / examined), by, rule_meaning(rule))
        for name, by in counts.items()
        if name.startswith(RULE)
        for rule in [name.removeprefix(RULE)]
    ]
    return sorted(shares, key=lambda share: (-share.sampled, share.rule))


def _lacking(counts: Mapping[str, int]) -> list[FieldFault]:
    total = counts.get("requests", 0)
    faults = [
        FieldFault(field, "is missing or empty", missing, f"$.{field}")
        for name, field in REQUIRED.items()
        if (missing := total - counts.get(name, 0) - counts.get(f"strange_{name}", 0)) > 0
    ]
    if untyped := counts.get("untyped", 0):
        faults.append(FieldFault("Content-Type", "is missing", untyped, "Content-Type"))
    return faults


def _unused(counts: Mapping[str, int]) -> list[FieldFault]:
    """Return the fields with unusable values, most frequent first.

    The numbers of countries and addresses are exact; others are extrapolated from a sample.
    """
    faults = [
        FieldFault(field, rule, strange, f"$.{field}")
        for name, (field, rule) in STRANGE.items()
        if (strange := counts.get(f"strange_{name}", 0))
    ]
    for name, by in counts.items():
        if name.startswith(UNUSED):
            field, _, rule = name.removeprefix(UNUSED).partition(": ")
            times = round(counts.get("requests", 0) * by / counts[EXAMINED])
            faults.append(FieldFault(field, rule, times, f"$.{field}"))
    return sorted(faults, key=lambda fault: (-fault.requests, fault.field, fault.rule))


def _broken(counts: Mapping[str, int], examples: Mapping[str, str]) -> list[FieldFault]:
    faults = []
    for name, by in counts.items():
        if name.startswith(_BROKEN):
            broken = name.removeprefix(_BROKEN)
            field, has_field, rule = broken.partition(": ")
            where = examples.get(broken, broken).partition(": ")[0]
            if not has_field:
                field, rule, where = "", broken, ""
            is_header = field.startswith("Content-")
            example = where if is_header else f"$.{where}" if where else "$"
            faults.append(FieldFault(field, rule, by, example))
    return sorted(faults, key=lambda fault: (-fault.requests, fault.field, fault.rule))


def _days(days: Iterable[date], history: DayHistory) -> list[DiagnosisDay]:
    requests: dict[date, Counter[str]] = {}
    notices: dict[date, Counter[str]] = {}
    for own in history.requests:
        requests.setdefault(own.day, Counter()).update(_outcomes(own.counts))
    for day, _, kind, times in history.notices:
        notices.setdefault(day, Counter())[kind] += times
    nothing: Counter[str] = Counter()
    return [
        DiagnosisDay(
            day,
            sum(outcomes.values()),
            outcomes["bid"],
            outcomes[Reason.LATE.value],
            counted["win"],
            counted["billing"],
        )
        for day in days
        for outcomes, counted in [(requests.get(day, nothing), notices.get(day, nothing))]
    ]


def _notices_of_minutes(counts: Mapping[str, int]) -> Counter[str]:
    """Return the notice counts of the last few minutes, named as in the warehouse."""
    notices: Counter[str] = Counter({"bids": counts.get("status:200", 0)})
    for kind, (code, letter) in KINDS.items():
        notices[kind] = counts.get(f"notice:{letter}", 0)
        for tens, outcome in ((1, "late"), (2, "duplicate"), (3, "expired"), (5, "altered")):
            notices[f"{kind}_{outcome}"] = counts.get(f"anomaly:{tens * 10 + code}", 0)
    notices["bid_reused"] = counts.get(f"anomaly:{REUSED}", 0)
    notices["lost_and_won"] = counts.get(f"anomaly:{LOST_AND_WON}", 0)
    notices["loss_unsaid"] = counts.get("notice:l:-1", 0)
    return notices


def _request_stats(
    since: datetime,
    until: datetime,
    counts: Mapping[str, int],
    notices: Mapping[str, int],
    recent: Mapping[str, RecentRequestStats],
    noticed_in: str,
) -> SspRequestStats:
    """Merge the statistics of a family's descriptors into those of one SSP.

    Requests to unregistered ids are left out, since another SSP may have sent them.
    """
    last_at: Counter[str] = Counter()
    for own in recent.values():
        last_at |= Counter(own.last_at)
    first = min((own.last_at["first"] for own in recent.values() if "first" in own.last_at),
                default=None)  # fmt: skip
    return SspRequestStats(
        since=int(since.timestamp()),
        until=int(until.timestamp()),
        counts=dict(counts),
        last_at=dict(last_at) | ({} if first is None else {"first": first}),
        answers=sorted((each for own in recent.values() for each in own.answers), reverse=True),
        problems=sorted((each for own in recent.values() for each in own.problems), reverse=True),
        notices={
            "b": notices["bids"],
            "w": notices["win"],
            "i": notices["billing"],
            "l": notices["loss"],
            "l:-1": notices["loss_unsaid"],
        },
        noticed_at={},
        strays={},
        noticed_in=noticed_in,
    )


def _path_id(ssp: str, descriptors: Sequence[str] | Mapping[str, object]) -> str:
    return "{" + ",".join(sorted(descriptors)) + "}" if len(descriptors) > 1 else ssp
