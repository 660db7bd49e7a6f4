"""The product on several builds of Python (`bench/pythons_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, spread_figure, table

TEXT: Final = """
## Builds of Python

    python -m bench pythons --python /usr/bin/python3.11 --python ... --keep

One worker on a core, {connections} keep-alive connections, stores and client on the other core;
{rounds} rounds in which all take turns of {seconds_a_turn:g} s, medians. Each interpreter has built
the product by itself, with its extensions, and has stores of its own with {campaigns:,} campaigns.
"Constant" is an application that reads the body and answers 1 KB, under the same server settings.
Ratios are of processor time to the first line's, round by round.
"""
KINDS: Final = ("bid", "constant")


def render(result: dict[str, Any]) -> str:
    rows = [
        (
            name,
            _built(result["builds"][name]),
            *(text for kind in KINDS for text in _texts(own[kind])),
        )
        for name, own in result["figures"].items()
    ]
    heading = ["", "built", *(f"{kind}, {each}" for kind in KINDS for each in ("µs", "ratio"))]
    return TEXT.format(**result["method"]) + about(result) + table((*heading,), rows)


def _built(build: dict[str, Any]) -> str:
    parts = {"shared": "shared library", "free_threaded": "free-threaded"}
    traits = [text for name, text in parts.items() if build[name]]
    return ", ".join([build["version"], build["compiler"], *traits])


def _texts(own: dict[str, Any]) -> tuple[str, str]:
    ratio = own["to_first"]
    return (
        f"{own['processor_us']['median']:.1f}",
        f"{ratio['median']:.2f} ({ratio['q1']:.2f} to {ratio['q3']:.2f})",
    )


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        for kind in KINDS:
            yield spread_figure(f"{name}, {kind}, processor µs", own[kind]["processor_us"])
            yield spread_figure(f"{name}, {kind}, to the first", own[kind]["to_first"])
