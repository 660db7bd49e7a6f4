"""The product beside others over sockets (`bench/socket_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, table
from bench.socket_run import ADDED, disturbed

TEXT: Final = """
## Over sockets

One worker under the server settings of `snapbid serve`, with {campaigns} campaigns and the stores
that `snapbid up` starts, pinned to one core; the client on another one. {connections} keep-alive
connections, closed loop: a connection sends its next request when it has its answer, so the server
is saturated, and the latencies are those of a saturated server and follow from the number of
connections; they say nothing about a server at half its capacity. {rounds} rounds in which all take
turns of {seconds_a_turn} s after a warm-up, medians of the rounds. Answers with a wrong status end
the run; "late" is the share of bids that were answered 204 since their time was over.
Processor time is the worker process's, all threads, user and system, as the operating system counts
it.

"Bid" is the whole way, remembered in Redis before it is answered; "bid-test" are the same requests
with `test: 1`, which are answered but not remembered; "win" are win notices of the remembered bids,
settled in Redis before they are answered.

"Constant" is an application that always sends 1 KB (or 204) under the same server settings; "read"
takes the request's body first.
"""

ADDED_TEXT: Final = """
Processor time that the product adds, microseconds a request, taken round by round: the first
columns are the median, the lowest and the highest round. Bold are the figures to steer by.

"""


def render(result: dict[str, Any]) -> str:
    own = result["figures"]
    parts = [TEXT.format(**result["method"]), about(result), _contenders(own)]
    if slow := disturbed(own):
        names = ", ".join(slow)
        parts.append(f"\nNot the server was the limit, its requests/s are too low: {names}.\n")
    return "".join([*parts, ADDED_TEXT, added_table(result["added_us"])])


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        yield Figure(f"{name}, requests/s", own["requests_per_s"], less_is_better=False)
        yield Figure(f"{name}, processor µs", own["processor_us"])
    for name, own in result["added_us"].items():
        yield Figure(f"added by {name}, µs", own["median"], own["lowest"], own["highest"])


def _contenders(figures: dict[str, Any]) -> str:
    rows = [
        (
            name,
            f"{own['requests_per_s']:,.0f}",
            f"{own['processor_us']:.1f}",
            f"{own['system_us']:.1f}",
            f"{own['p50_ms']:.2f}",
            f"{own['p99_ms']:.2f}",
            f"{own['memory_mib']:.0f}",
            f"{own['server_busy']:.0%} / {own['client_busy']:.0%}",
            f"{own.get('late', 0):.2%}",
        )
        for name, own in figures.items()
    ]
    columns = ("requests/s", "µs a request", "of it system", "p50 ms", "p99 ms", "MiB")
    return table(("", *columns, "server / client core busy", "late"), rows)


def added_table(added: dict[str, Any]) -> str:
    rows = []
    for title, own in added.items():
        mark = "**" if title in ADDED and ADDED[title][2] else ""
        values = [f"{own[name]:.1f}" for name in ("median", "lowest", "highest")]
        rows.append((f"{mark}{title}{mark}", f"{mark}{values[0]}{mark}", *values[1:]))
    return table(("", "median", "lowest", "highest"), rows)
