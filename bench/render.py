"""Renders `bench/README.md` from `bench/results/*.json`.

python -m bench.render
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.socket_run import ADDED, disturbed

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results"
KINDS: Final = ("micro", "socket", "ledger", "together", "limits")

QUANTILES: Final = ("p50", "p99", "p999")

INTRODUCTION: Final = """\
# Benchmarks

This page is rendered from `results/*.json` by `python -m bench.render`; do not edit it.

    make bench                   run everything, compare with the committed results
    python -m bench --keep       the same, and make these the results to commit
    python -m bench.socket_run --rounds 3 --seconds 1     a short look at the socket part

The campaigns (`campaigns.py`) use all 20 targeting dimensions, about one in a hundred is eligible
for a request. The requests (`requests.py`) have one impression, are for sites and apps, and take
about 1 KB, or "today" a median of 2.2 KB. No-bids are the same requests, changed so that nobody
bids, for four reasons in turns: a floor of 500 USD, a private auction for an unknown deal, a seat
list without our seats, a banner size that nobody has.
"""

MICRO: Final = """
## In one process

Microseconds a call: each round calls once for each of {inputs} different inputs, a figure is the
round's time divided by that. "Asgi" is the whole application without a socket, called on a uvloop
event loop; "asgi nothing" is an application that takes the body and answers, and nothing else.
"""

SOCKET: Final = """
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

LEDGER: Final = """
## Ledger and drain

One process with the ledger's group commit and Redis as `snapbid up` starts it (append-only file,
`everysec`); so many bids or win notices wait at once. Processor
time is this process's, all threads. The drain is given 20,000 changed counters a round, each of
another campaign. A remembered bid takes **{bytes_a_remembered_bid} bytes** of Redis' memory, all
overhead included, at {bids:,} bids.
"""

TOGETHER: Final = """
## Bids beside event batches

One worker pinned to one core, {campaigns:,} campaigns; {bids_a_second:.0f} bid requests a second
for {seconds:.0f} s on a schedule that waits for nobody, latencies from the scheduled moment; beside
them so many senders, each of which sends batches of 600 events one after the other on the same
worker. Redis, PostgreSQL and the client share the other core.
"""

ADDED_TEXT: Final = """
Processor time that the product adds, microseconds a request, taken round by round: the first
columns are the median, the lowest and the highest round. Bold are the figures to steer by.

"""


LIMITS: Final = """
## Budgets and caps

`python -m bench.limits_run`: what a bid costs on top where every campaign has a budget or frequency
caps, microseconds of processor time of a worker (decode, decide, pack for Redis, encode; waiting
and sockets left out) and of Redis; medians of the differences within a round, and their quartiles.
"""

PACING: Final = """
Two simulated days of uneven traffic for a daily budget of {budget_usd} USD, looked at every
{step_s} s; at no time was more used than allowed (dashed): by at most {most_over_allowed_usd} USD.

![Spend of paced and unpaced campaigns over two days](results/pacing.svg)
"""


def render(results: dict[str, dict[str, Any]]) -> str:
    """The page."""
    parts = [INTRODUCTION]
    if "micro" in results:
        micro = results["micro"]
        parts += [MICRO.format(**micro["method"]), about(micro), micro_table(micro["figures"])]
    if "socket" in results:
        socket = results["socket"]
        figures = socket["figures"]
        parts += [SOCKET.format(**socket["method"]), about(socket), socket_table(figures)]
        slow = disturbed(figures)
        if slow:
            names = ", ".join(slow)
            parts.append(f"\nNot the server was the limit, its requests/s are too low: {names}.\n")
        parts += [ADDED_TEXT, added_table(socket["added_us"])]
    if "ledger" in results:
        ledger = results["ledger"]
        figures = dict(ledger["figures"])
        size = figures.pop("bytes_a_remembered_bid")
        parts.append(LEDGER.format(bytes_a_remembered_bid=size, bids=ledger["method"]["bids"]))
        parts += [about(ledger), ledger_table(figures)]
    if "together" in results:
        together = results["together"]
        parts += [TOGETHER.format(**together["method"]), about(together)]
        parts.append(together_table(together["figures"]))
    if "limits" in results:
        limits = results["limits"]
        parts += [LIMITS, about(limits), limits_table(limits["cost"])]
        parts.append(PACING.format(**limits["pacing"]))
    return "".join(parts)


def about(result: dict[str, Any]) -> str:
    own = result["about"]
    versions = ", ".join(f"{name} {value}" for name, value in own["versions"].items())
    return (
        f"\n{own['date']}, commit {own['commit']}; {own['cpu']}, {own['cores']} cores, load "
        f"{own['load_before']} before the run; {own['kernel']}, Python {own['python']}, "
        f"{versions}.\n\n"
    )


def micro_table(figures: dict[str, Any]) -> str:
    rows = [
        (
            name.replace("_", " ").replace("[", ", ").replace("]", " campaigns"),
            *(f"{own[f'{column}_us']:.2f}" for column in ("median", "q1", "q3")),
        )
        for name, own in figures.items()
    ]
    return table(("", "median", "first quartile", "third quartile"), rows)


def socket_table(figures: dict[str, Any]) -> str:
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


def together_table(figures: dict[str, Any]) -> str:
    rows = [
        (name, f"{own['events_a_second']:,}", *(f"{own[f'bid_{q}_ms']:.1f}" for q in QUANTILES))
        for name, own in figures.items()
    ]
    return table(("", "events/s", "bid p50 ms", "p99 ms", "p99.9 ms"), rows)


def ledger_table(figures: dict[str, Any]) -> str:
    rows = [
        (name, f"{own['processor_us']:.1f}", f"{own['a_second']:,}")
        for name, own in figures.items()
    ]
    return table(("", "µs each", "a second"), rows)


def limits_table(cost: dict[str, Any]) -> str:
    rows = []
    for title, own in cost["added"].items():
        both = (own["us_a_bid"], own["redis_us_a_bid"])
        rows.append((title, *(f"{us:.1f} ({low:.1f} to {high:.1f})" for us, low, high in both)))
    return table(("", "worker", "Redis"), rows)


def added_table(added: dict[str, Any]) -> str:
    rows = []
    for title, own in added.items():
        steered = title in ADDED and ADDED[title][2]
        mark = "**" if steered else ""
        values = [f"{own[name]:.1f}" for name in ("median", "lowest", "highest")]
        rows.append((f"{mark}{title}{mark}", f"{mark}{values[0]}{mark}", *values[1:]))
    return table(("", "median", "lowest", "highest"), rows)


def table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heading, tuple("---:" if place else "---" for place in range(len(heading))), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def read(directory: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """The results in a directory, by kind."""
    paths = ((kind, directory / f"{kind}.json") for kind in KINDS)
    return {kind: json.loads(path.read_text()) for kind, path in paths if path.exists()}


def main() -> None:
    (HERE / "README.md").write_text(render(read()))


if __name__ == "__main__":
    main()
