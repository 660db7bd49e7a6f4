"""The section on group commit and the drain by themselves (`bench/ledger_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, spread_figure, table

TEXT: Final = """
## Ledger and drain

One process with the ledger's group commit, and Redis as `snapbid up` starts it (append-only file,
synced each second); "at once" is how many bids or win notices wait together. Processor time is
that of all threads of the process; medians of {rounds} rounds. The drain gets {counters:,}
changed counters a round, or over 8 shards those of the same campaigns: a change reaches the
warehouse within two rounds and half a second. A remembered bid takes **{bytes} bytes** of Redis'
memory, including all overhead, at {bids:,} bids, 512 at once. It takes {first_us} µs of Redis'
processor time in the first tenth of these bids, {last_us} in the last.
"""
LIMITED_TEXT: Final = """\
With a budget and a cap it takes {limited_bytes} bytes, a tenth as many bids after these, and the
hold of its user's impression {hold_bytes}.
"""
FILLED: Final = {
    "bytes": "bytes a remembered bid, at {:,}",
    "limited_bytes": "bytes a bid with a budget and a cap, after {:,}",
    "hold_bytes": "bytes a hold of a user's impression, after {:,} bids",
    "first_us": "Redis for a bid, the first tenth of {:,}, µs",
    "last_us": "Redis for a bid, the last tenth of {:,}, µs",
}


def render(result: dict[str, Any]) -> str:
    own = dict(result["figures"])
    filled = own.pop("filled")
    text = TEXT.format(**filled, **result["method"])
    if "limited_bytes" in filled:
        text += LIMITED_TEXT.format(**filled)
    rows = [
        (name, f"{figure['processor_us']['median']:.1f}", f"{figure['a_second']['median']:,.0f}")
        for name, figure in own.items()
    ]
    return text + about(result) + table(("", "µs each", "a second"), rows)


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        if name == "filled":
            for each, value in own.items():
                yield Figure(FILLED[each].format(result["method"]["bids"]), value)
        else:
            yield spread_figure(f"{name}, µs", own["processor_us"])
