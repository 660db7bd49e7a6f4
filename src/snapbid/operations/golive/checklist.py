"""Judges document 2's go-live checklist from an SSP's actual traffic.

An item without evidence is "not seen yet". The texts name the evidence and the fix; the operator
can forward them to the SSP unchanged.
"""

from typing import Final, Literal

import msgspec

from snapbid.base.words import counted, utc
from snapbid.operations.golive.store import SspRequestStats

State = Literal["pass", "fail", "not seen yet"]

GOOD: Final = (200, 204)
ENOUGH: Final = 10  # notices of one kind; by then one of the other kind is overdue
SHOWN: Final = 5  # answers, problems, strays in the evidence
REQUIRED: Final = {"country": "device.geo.country", "ua": "device.ua", "ip": "device.ip"}
STRANGE: Final = {
    "country": ("device.geo.country", "is no country of ISO 3166-1"),
    "ip": ("device.ip", "is no IP address"),
    "ipv6": ("device.ipv6", "is no IP address"),
}
"""Fields whose unusable values are counted, as `strange_country` for `country`, and their fault."""
_SPELLING: Final = {
    "country": "a country as its ISO 3166-1 code (USA, not United States)",
    "ip": "an address as plain text (192.0.2.1)",
}


class Item(msgspec.Struct, frozen=True):
    """One item of the checklist; `fix` is empty if there is nothing to do."""

    number: int
    title: str
    state: State
    evidence: tuple[str, ...]
    fix: str = ""


def judge(seen: SspRequestStats, ssp: str, base_url: str) -> list[Item]:
    """Judge the six items of document 2's go-live checklist, in order."""
    url = f"{base_url}/api/v1/openrtb2/{ssp}/bid"
    return [
        _path(seen, url),
        _content_type(seen),
        _answers(seen),
        _notices(seen, 4, "Win", "nurl", "the auction is won", ("w", "win"), ("i", "billing")),
        _notices(
            seen, 5, "Billing", "burl", "the impression is rendered", ("i", "billing"), ("w", "win")
        ),
        _fields(seen),
    ]


def _path(seen: SspRequestStats, url: str) -> Item:
    title = "The assigned SSP id is placed in the endpoint path."
    total = _total(seen)
    strays = sorted(seen.strays.items(), key=lambda stray: -stray[1])[:SHOWN]
    strange = [f"a request to the unregistered id {id!a} at {utc(at)}"
               for id, at in strays if at >= seen.since]  # fmt: skip
    if not total:
        fix = f"send bid requests with POST to {url}"
        return Item(1, title, "not seen yet", (f"no request to {url}", *strange), fix)
    first = seen.last_at.get("first", seen.since)
    latest = seen.answers[0][0] if seen.answers else seen.until
    return Item(
        1,
        title,
        "pass",
        (
            f"{counted(total, 'request')} to {url}, the latest at {utc(latest)}",
            f"the first one at {utc(first)}",
            *strange,
        ),
    )


def _content_type(seen: SspRequestStats) -> Item:
    title = "Content-Type: application/json is set on all requests."
    total = _total(seen)
    missing, other = seen.counts.get("untyped", 0), seen.counts.get("content_type", 0)
    if not total:
        return Item(2, title, "not seen yet", ("no request",))
    if not missing and not other:
        return Item(2, title, "pass", (f"set on all of {counted(total, 'request')}",))
    evidence = tuple(
        f"{what} {count:,} of {counted(total, 'request')}, the latest at " + utc(seen.last_at[name])
        for name, count, what in (
            ("untyped", missing, "missing (the body was still read as JSON) on"),
            ("content_type", other, "a different one, which is refused, on"),
        )
        if count
    )
    fix = "send the header Content-Type: application/json with every bid request"
    return Item(2, title, "fail", evidence, fix)


def _answers(seen: SspRequestStats) -> Item:
    title = "A test request returns 200 or 204 (no error status)."
    latest = [(at, status) for at, status in seen.answers if at >= seen.since]
    if not latest:
        return Item(3, title, "not seen yet", ("no request",), "send a test request")
    statuses = sorted(
        (int(name.partition(":")[2]), count)
        for name, count in seen.counts.items()
        if name.startswith("status:")
    )
    tests = seen.counts.get("tests", 0)
    evidence = [
        "answers: " + ", ".join(f"{count:,} with {status}" for status, count in statuses),
        f"the latest at {utc(latest[0][0])}, newest first: "
        + " ".join(str(status) for _, status in latest),
    ]
    if tests:
        evidence.append(f"{counted(tests, 'request')} with test: 1")
    problems = {detail: (at, status) for at, status, detail in reversed(seen.problems)
                if at >= seen.since}  # fmt: skip
    newest = sorted(problems.items(), key=lambda problem: -problem[1][0])[:SHOWN]
    evidence += [f"{status} at {utc(at)}: {detail}" for detail, (at, status) in newest]
    wrong = {status for _, status in latest if status not in GOOD}
    if not wrong:
        return Item(3, title, "pass", tuple(evidence))
    ours = any(status >= 500 for status in wrong)
    fix = "correct the requests as the errors above say; the latest answers are judged"
    return Item(
        3,
        title,
        "fail",
        tuple(evidence),
        "a status of 500 or above is the bidder's own fault: see its log" if ours else fix,
    )


def _notices(
    seen: SspRequestStats,
    number: int,
    name: str,
    url: str,
    moment: str,
    own: tuple[str, str],
    other: tuple[str, str],
) -> Item:
    """Return the checklist's item for one kind of notice.

    `own`: this kind of notice; `other`: the kind to compare it with. Both are pairs of
    names: in the ledger's counters, and in the counters of test bids.
    """
    title = f"{name} notification firing is confirmed."
    kind, of_tests = own
    noticed, tested = seen.notices.get(kind, 0), seen.counts.get(of_tests, 0)
    bids, others = seen.notices.get("b", 0), seen.notices.get(other[0], 0)
    evidence = [f"{noticed:,} for {counted(bids, 'answer')} with a bid {seen.noticed_in}"]
    if seen.noticed_at.get(kind):
        evidence[0] += f", the latest at {utc(seen.noticed_at[kind])}"
    if tested:
        at = utc(seen.last_at[of_tests])
        evidence.append(f"{tested:,} for test bids, the latest at {at}")
    if number == 4:
        evidence += _losses(seen)
    if noticed or tested:
        return Item(number, title, "pass", tuple(evidence))
    fix = f"fire the {url} of the bid with GET, exactly as received, when {moment}"
    if others >= (1 if kind == "w" else ENOUGH):
        evidence.append(f"but {counted(others, f'{other[1]} notice')}")
        return Item(number, title, "fail", tuple(evidence), fix)
    return Item(number, title, "not seen yet", tuple(evidence), fix)


def _losses(seen: SspRequestStats) -> list[str]:
    """Return a line about the loss notices, which are optional; an empty list if none came."""
    losses, unsaid = seen.notices.get("l", 0), seen.notices.get("l:-1", 0)
    if not losses:
        return []
    text = f"{counted(losses, 'loss notice')} (optional)"
    if unsaid:
        text += f", {unsaid:,} of them without a reason: replace ${{AUCTION_LOSS}} in the lurl"
    return [text]


def _fields(seen: SspRequestStats) -> Item:
    title = "Each bid request includes device.geo.country, device.ua and device.ip."
    total = seen.counts.get("requests", 0)
    if not total:
        return Item(6, title, "not seen yet", ("no request that could be read",))
    having = {field: seen.counts.get(name, 0) for name, field in REQUIRED.items()}
    evidence = [
        f"{field}: {_share(count, total)} ({count:,} of {total:,})"
        for field, count in having.items()
    ]
    if seen.counts.get("ipv6", 0):
        evidence.append(f"device.ipv6 in place of device.ip: {seen.counts['ipv6']:,}")
    strange = {name: seen.counts.get(f"strange_{name}", 0) for name in STRANGE}
    evidence += [
        f"{' '.join(STRANGE[name])}, and counts as absent: {count:,}"
        for name, count in strange.items()
        if count
    ]
    lacking = [field for field, count in having.items() if count < total]
    if not lacking:
        return Item(6, title, "pass", tuple(evidence))
    fix = f"include {' and '.join(lacking)} in every bid request"
    spelled = [f"; {spelling}" for name, spelling in _SPELLING.items() if strange[name]]
    return Item(6, title, "fail", tuple(evidence), fix + "".join(spelled))


def _total(seen: SspRequestStats) -> int:
    return sum(count for name, count in seen.counts.items() if name.startswith("status:"))


def _share(part: int, whole: int) -> str:
    """Format a share in percent, rounded down, so that only the whole is 100.0%."""
    return f"{part * 1000 // whole / 10:.1f}%"
