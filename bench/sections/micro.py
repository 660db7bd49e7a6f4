"""The section on calls in one process (`bench/micro/`)."""

import re
from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, table

TEXT: Final = """
## In one process

Microseconds of processor time per call on one core, with the garbage collector set as in a
worker. Each round makes one call for each of many different inputs ({inputs} for most); a figure
is the round's time divided by the number of calls. There are {campaigns:,} campaigns unless the
name says otherwise; each event of a batch counts as a call.

- "Reference json" is the standard library's `json.loads` of the bid requests, to gauge the machine.
- "Asgi" is the whole application without a socket, called on a uvloop event loop; "asgi nothing" is
  an application that only reads the body and answers.
- "Asgi bid remembered" and those after it use real stores on the other core and 64 concurrent
  calls, as over that many connections: a bid with its group commit, win notices that count,
  reports, diagnoses of 7 days out of a year of ten SSPs, events up to their 202. "Group commit" is
  the ledger alone. Waiting, and the stores' own time, is excluded.
- "Asgi bid logged" writes the auction log too, and "logging a bid" does only that. "Asgi bid
  clicked" has a click id in the creative, and a campaign that excludes an audience.
- "Events" are decoded, validated and given ids; "peer" is validation with other libraries
  (`peers/`).
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
    """Return a benchmark's title: `match, 1000 campaigns` for `match[1000]`."""
    named = _CAMPAIGNS.sub(r", \1 campaigns", name)
    return named.replace("_", " ").replace("[", ", ").replace("]", "")


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        yield Figure(f"{name}, µs", own["median_us"], own["q1_us"], own["q3_us"])
