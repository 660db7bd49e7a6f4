"""Group commit and drain in isolation (`bench/ledger_run.py`)."""

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
FILLED: Final = {
    "bytes": "bytes a remembered bid, at {:,}",
    "first_us": "Redis for a bid, the first tenth of {:,}, µs",
    "last_us": "Redis for a bid, the last tenth of {:,}, µs",
}


def render(result: dict[str, Any]) -> str:
    own = dict(result["figures"])
    text = TEXT.format(**own.pop("filled"), **result["method"])
    rows = [
        (name, f"{figure['processor_us']['median']:.1f}", f"{figure['a_second']['median']:,.0f}")
        for name, figure in own.items()
    ]
    return text + about(result) + table(("", "µs each", "a second"), rows)


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        if name == "filled":
            for each, title in FILLED.items():
                yield Figure(title.format(result["method"]["bids"]), own[each])
        else:
            yield spread_figure(f"{name}, µs", own["processor_us"])
