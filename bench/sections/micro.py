"""Calls in one process (`bench/test_*.py`)."""

import re
from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, table

TEXT: Final = """
## In one process

Microseconds of this process's processor time a call, one core, the collector set as in a worker:
each round calls once for each of many different inputs ({inputs} of most), a figure is the round's
time divided by that. {campaigns:,} campaigns where the name says nothing else; an event of a batch
is a call.

- "Reference json" is the standard library's `json.loads` of the bid requests, for the machine.
- "Asgi" is the whole application without a socket, called on a uvloop event loop; "asgi nothing" is
  an application that takes the body and answers, and nothing else.
- "Asgi bid remembered" and those after it have real stores on the other core, and 64 calls at once,
  as over so many connections: a bid with its group commit, win notices that count, reports, events
  to their 202. "Group commit" is the ledger alone. Waiting is left out, and what the stores take.
- "Events" are decoded, checked and given ids; "peer" are checks with other libraries (`peers/`).
"""
_CAMPAIGNS: Final = re.compile(r"\[(\d+)\]")


def render(result: dict[str, Any]) -> str:
    rows = [
        (_title(name), *(f"{own[f'{column}_us']:.2f}" for column in ("median", "q1", "q3")))
        for name, own in result["figures"].items()
    ]
    heading = ("", "median", "first quartile", "third quartile")
    return TEXT.format(**result["method"]) + about(result) + table(heading, rows)


def _title(name: str) -> str:
    """match[1000]: match, 1000 campaigns; group_commit[64_at_once]: group commit, 64 at once."""
    named = _CAMPAIGNS.sub(r", \1 campaigns", name)
    return named.replace("_", " ").replace("[", ", ").replace("]", "")


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        yield Figure(f"{name}, µs", own["median_us"], own["q1_us"], own["q3_us"])
