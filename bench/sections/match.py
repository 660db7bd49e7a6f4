"""The section on the matcher, alone and beside alternatives in Python (`bench/match_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, spread_figure, table

TEXT: Final = """
## The matcher

`python -m bench.match_run`: {requests} different requests, medians of {rounds} rounds on one
core, nanoseconds. "Call" is from the decoded request to the best campaign, called from Python,
with requests that have left the near caches since they were decoded; "near call" uses {near} that
have not, as in a worker, which has just decoded its request. "Walk" is only the search, from
arranged rows and postings to the best campaign, as the mean over the requests; "request" and
"impression" read the structs, look up their values, and arrange these. All are processor time,
each step eight times in a row. "Cold" is the walk after {flush_mib} MiB of other memory were
walked, in wall time, so that a busy machine shows in its p99; "cold after" also reads the request
in between, which fetches the first data that the walk needs, as in every call. Bytes are those of
the index without the payloads of answers.
"""
WALKS: Final = """
### Where a walk's time goes

The least of some rounds for each request, all caches warm: the median and the 99th percentile,
and how many steps a walk takes on average, with the ns of each (least squares over all but the
slowest hundredth of the requests). A block is 512 campaigns, a row of it a cache line. A
candidate is a campaign that all rows of a block leave. It is looked up in the postings: lists of
the campaigns that name a value of the request, for dimensions that need more than a row. If it is
found, it is verified: time, caps, deals, floor, seats, blocks, distance, creatives.

"""
SCANS: Final = """
The same requests, in microseconds a search; the product judges the limits for all. In numpy,
roaring bitmaps and the plain scan of Python sets the values are looked up already, so compare
these with "walk". Their best price was the product's for all requests.

"""
TRIED: Final = """
Beyond the prototype (a fixed cost, rows and one verification), the complete semantics cost the
postings of dimensions in which a request has several values (segments, categories, domains and
their parents), deals with floors of their own, ties, and the limits. The tail is requests with a
floor that few campaigns reach or a place that few name: they narrow dozens of blocks. No walk
ends before the last campaign of the best price, since ties are spread.

"""
ATTEMPTS: Final = (
    (
        "the bits of a block in four registers, not a vector that the compiler keeps in memory",
        "std 1k 212 to 138 ns, rare 100k 1,502 to 802",
    ),
    (
        "below the impression's floor only blocks with campaigns that want an offered deal",
        "std 100k 271 to 171 ns",
    ),
    (
        "rows and groups in the order of what they refuse, empty blocks left early",
        "std 0.94 to 1, rare 0.92 to 0.98",
    ),
    (
        "the second line of a posting, a candidate's creatives and lists fetched ahead; no look at "
        "the next candidate where the next campaign is cheaper",
        "hot 0.95 to 1.05, cold after p50 0.92, p99 0.95",
    ),
    (
        "left out: a block begins with a posting of a dimension in which all campaigns name values",
        "rare 0.98 to 1.08",
    ),
    (
        "left out: all candidates of a block listed, their records fetched ahead",
        "hot 1.09 to 1.16, cold p99 0.80 to 1.09",
    ),
    (
        "left out: from the second block on, the next block's rows fetched ahead",
        "hot 0.98 to 1.05, cold after p99 0.89 to 1.04",
    ),
    (
        "terms written where they stay, privacy by memo, no garbage collector (reading alone)",
        "request 1,257 to 977 ns, call 0.83",
    ),
    ("groups and sets written where they stay (reading alone)", "request 1.01: nothing"),
)


STEPS: Final = ("walk", "impression", "request")


def render(result: dict[str, Any]) -> str:
    rows, walks, scans = [], [], []
    for name, own in result["figures"].items():
        hot = own["hot_ns"]
        rows.append(
            (
                name,
                f"{own['eligible']:.2%}",
                *(f"{hot[step]['median']:,.0f}" for step in STEPS),
                *(_pair(own[cold]) for cold in ("cold_walk_ns", "cold_walk_after_ns")),
                f"{own['call_ns']['median']:,.0f}",
                f"{own['near_call_ns']['median']:,.0f}",
                f"{own['bytes_a_campaign']:,.0f}",
            )
        )
        steps = own["walk_ns"]["steps"]
        each = (f"{one['mean']:,.1f} x {one['ns']:.1f}" for one in steps.values())
        walks.append((name, _pair(own["walk_ns"]), *each, f"{own['walk_ns']['postings']:.1f}"))
        if "peers" in own:
            walk = f"{hot['walk']['median'] / 1000:.2f}"
            names = tuple(own["peers"]["us"])
            scans.append(
                (name, walk, *(f"{own['peers']['us'][one]['median']:,.1f}" for one in names))
            )
    heading = (
        "", "eligible", *STEPS, "cold p50 / p99", "cold after", "call", "near call",
        "bytes a campaign",
    )  # fmt: skip
    text = TEXT.format(**result["method"]) + about(result) + table(heading, rows)
    text += WALKS + table(("", "p50 / p99", *steps, "postings"), walks)
    text += TRIED + table(("tried", "the walk before and after, ns or ratio"), ATTEMPTS)
    return text + SCANS + table(("", "walk", *names), scans) if scans else text


def _pair(percentiles: dict[str, float]) -> str:
    return f"{percentiles['p50']:,.0f} / {percentiles['p99']:,.0f}"


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        yield spread_figure(f"match {name}: near call, ns", own["near_call_ns"])
        yield spread_figure(f"match {name}: walk, ns", own["hot_ns"]["walk"])
        yield spread_figure(f"match {name}: call, ns", own["call_ns"])
        yield Figure(f"match {name}: bytes a campaign", own["bytes_a_campaign"])
