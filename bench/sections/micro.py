"""Calls in one process (`bench/test_*.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, table

TEXT: Final = """
## In one process

Microseconds a call: each round calls once for each of {inputs} different inputs, a figure is the
round's time divided by that. "Asgi" is the whole application without a socket, called on a uvloop
event loop; "asgi nothing" is an application that takes the body and answers, and nothing else.
"""


def render(result: dict[str, Any]) -> str:
    rows = [
        (
            name.replace("_", " ").replace("[", ", ").replace("]", " campaigns"),
            *(f"{own[f'{column}_us']:.2f}" for column in ("median", "q1", "q3")),
        )
        for name, own in result["figures"].items()
    ]
    heading = ("", "median", "first quartile", "third quartile")
    return TEXT.format(**result["method"]) + about(result) + table(heading, rows)


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        yield Figure(f"{name}, µs", own["median_us"], own["q1_us"], own["q3_us"])
