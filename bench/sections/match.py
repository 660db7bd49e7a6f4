"""The matcher by itself, and beside what a Python user would use (`bench/match_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, spread_figure, table

TEXT: Final = """
## The matcher

`python -m bench.match_run`: {requests} different requests, medians of {rounds} rounds on one core,
nanoseconds. "Call" is from the decoded request to the best campaign, from Python; "walk" is the
search alone, from arranged rows and postings to the best campaign; "request" and "impression" read
the structs, look up what they carry, and arrange it. These are processor time, each step eight
times in a row. "Cold" is the walk after {flush_mib} MiB were walked before it, by the clock, so
that a busy machine shows in its p99. Bytes are those of the index without the payloads that answers
are made of.
"""
SCANS: Final = """
The same requests, microseconds a search, limits judged by the product for all. In numpy, in roaring
bitmaps and in the plain scan of Python sets the values are looked up already, so "walk" is what to
compare with. Their best price was the product's for all requests.

"""


STEPS: Final = ("walk", "impression", "request")


def render(result: dict[str, Any]) -> str:
    rows, scans = [], []
    for name, own in result["figures"].items():
        hot, cold = own["hot_ns"], own["cold_walk_ns"]
        rows.append(
            (
                name,
                f"{own['eligible']:.2%}",
                *(f"{hot[step]['median']:,.0f}" for step in STEPS),
                f"{cold['p50']:,.0f} / {cold['p99']:,.0f}",
                f"{own['call_ns']['median']:,.0f}",
                f"{own['bytes_a_campaign']:,.0f}",
            )
        )
        if "peers" in own:
            walk = f"{hot['walk']['median'] / 1000:.2f}"
            names = tuple(own["peers"]["us"])
            scans.append(
                (name, walk, *(f"{own['peers']['us'][one]['median']:,.1f}" for one in names))
            )
    heading = ("", "eligible", *STEPS, "cold walk p50 / p99", "call", "bytes a campaign")
    text = TEXT.format(**result["method"]) + about(result) + table(heading, rows)
    return text + SCANS + table(("", "walk", *names), scans) if scans else text


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        yield spread_figure(f"match {name}: walk, ns", own["hot_ns"]["walk"])
        yield spread_figure(f"match {name}: call, ns", own["call_ns"])
        yield Figure(f"match {name}: bytes a campaign", own["bytes_a_campaign"])
