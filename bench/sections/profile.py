"""Where a worker's processor time goes (`bench/profile_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, spread_figure, table

TEXT: Final = """
## Where a worker's time goes

    python -m bench profile --perf /usr/bin/perf [--before CHECKOUT/.venv/bin/python] --keep

One worker with {campaigns:,} campaigns, pinned to a core and saturated over {connections}
connections, while `perf` takes {frequency:,} samples a second by the software clock; {rounds}
rounds in which all take turns of {seconds_a_turn:g} s. A part's share of the samples times the
processor time a request: microseconds, medians. Sampling itself makes a request dearer than under
"Over sockets". "Constant" reads the body and answers 1 KB. "Matcher" and "our other extensions" are
the product's own native code; "interpreter" is all that Python takes, with its objects and their
memory.
"""
BEFORE: Final = """"Before" is the product at {before}, with stores of its own, in the same rounds.
"""


def render(result: dict[str, Any]) -> str:
    method = result["method"]
    figures = dict(sorted(result["figures"].items(), key=_kind))
    before = BEFORE.format(**method) if method["before"] else ""
    parts = next(iter(figures.values()))
    rows = [(part, *(f"{own[part]['median']:.1f}" for own in figures.values())) for part in parts]
    names = (name.removesuffix(" now").replace(" before", ", before") for name in figures)
    return TEXT.format(**method) + before + about(result) + table(("", *names), rows)


def _kind(item: tuple[str, Any]) -> str:
    """So that each stands beside itself before."""
    return item[0].split()[0]


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        for part, spread in own.items():
            yield spread_figure(f"{name}, {part}, µs", spread)
