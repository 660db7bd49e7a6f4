"""The section on the product beside peers over sockets (`bench/socket_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import (
    ENOUGH,
    TICKS,
    Figure,
    about,
    p999_ms,
    spread_figure,
    system_us,
    table,
)
from bench.socket_run import ADDED, RATIOS

BUSY: Final = 0.9  # a server that was less busy was not the limit
LAG_MS: Final = 1.0  # a client that is later measures itself

TEXT: Final = """
## Over sockets

One worker, pinned to a core; the client, Redis and PostgreSQL on the other core; {connections}
keep-alive connections. First each contender is saturated (closed loop: a connection sends its
next request when it has its answer). In each of {rounds} rounds all take turns of
{seconds_a_turn} s after a warm-up; figures are medians of the rounds. Processor time is that of
the serving process, all threads, user and system, and is the steadiest figure here; memory is its
resident memory after all turns. System time is counted in hundredths of a second, and blank where
a turn has fewer than {ticks} of them. A wrong status ends the run; "late" is the share of bids that
were answered 204 because their time had run out.

- `bid` is the product with {campaigns} campaigns under the server settings of `snapbid serve`, end
  to end: each bid is remembered in Redis before it is answered. `bid-test` is the same requests
  with `test: 1`, which are answered but not remembered; `bid-today` is requests of today's sizes;
  `bid-limited` is the same campaigns, each with a budget and a frequency cap.
  `win` is win notices, each for a bid of its own that was remembered just before the turn; they are
  settled in Redis before they are answered. A turn has 50,000 of them (of the peer, 3,000), and
  one that does not count ends the run.
- `constant` is an application that always sends 1 KB (or 204) under the same server settings: the
  ceiling. `read` reads the request's body first. It runs in a task for each request, as Granian
  runs any application; `taskless` runs without, as the product's bids and notices do
  (`server/granian.py`). `constant-plain` leaves its threads to the default scheduling
  policy (SCHED_OTHER), as Granian does; `snapbid serve` sets SCHED_BATCH, so that the thread that
  reads requests and the one that answers them take turns instead of preempting each other.
  `uvicorn-constant` is the same application on uvicorn.
- `fastapi` is the same bidder as you would write it with FastAPI, pydantic v2, uvicorn[standard]
  and redis-py (`market/fastapi_bidder`), on the same Redis, with the same campaigns and requests.
  Before the measurement, {compared} bids and a quarter as many no-bids are compared: they are
  equal.
"""

IN_SHORT: Final = """
## In short

What a bid costs with {campaigns:,} campaigns and one worker on one core, from
[the runs over sockets](#over-sockets), which tell the machine, the date and the method.

"""
SATURATED: Final = {
    "bid": "a bid, end to end: reading it from the socket, the decision, remembering it in Redis,"
    " and the answer; only the worker's own time",
    "no-bid": "a no-bid, end to end: the same without Redis",
    "win": "a win notice, end to end: it is settled in Redis before it is answered",
}

HALF_TEXT: Final = """
At half of each contender's capacity, requests leave on schedule, however slow the answers are,
and latency counts from the scheduled time. Figures are medians of {half_rounds} rounds of
{half_seconds_a_turn} s, with p99.9 if a turn has {enough:,} requests. "Client late" is the 99th
percentile of how late requests left although a connection was free, and is part of the latencies.
Processor time of the serving process and of Redis is higher than under saturation, where threads
and Redis are woken for many requests at once.

"""

RATIO_TEXT: Final = """
Ratios of requests a second, and of requests per second of processor time, computed for each round;
medians and quartiles of the rounds.

"""

ADDED_TEXT: Final = """
Processor time that the product adds, in microseconds per request, computed for each round; medians
and quartiles. The key figures are bold.

"""

QUANTILES: Final = ("p50_ms", "p99_ms", "p999_ms", "lag_ms")
TIMES: Final = ("processor_us", "redis_us")


def render(result: dict[str, Any]) -> str:
    method = result["method"]
    return "".join(
        [
            TEXT.format(ticks=TICKS, **method),
            about(result),
            contenders(result["figures"], method),
            slow(result["figures"]),
            HALF_TEXT.format(enough=ENOUGH, **method),
            _half(result["half"], method["half_seconds_a_turn"]),
            _late(result["half"]),
            RATIO_TEXT,
            ratios_table(result["ratios"]),
            ADDED_TEXT,
            _added(result["added_us"]),
        ]
    )


def in_short(result: dict[str, Any]) -> str:
    """Render the section that tells first what a bid costs."""
    rows = []
    for name, text in SATURATED.items():
        if own := result["figures"].get(name):
            us, rate = own["processor_us"]["median"], own["requests_per_s"]["median"]
            rows.append((text, f"{us:.1f} µs of a core, {rate:,.0f} a second"))
    half, peer = result["half"]["bid"], result["ratios"]["a bid, to the FastAPI peer's"]
    redis_us, late_ms = half["redis_us"]["median"], half["lag_ms"]["median"]
    latencies = f"{half['p50_ms']['median']:.2f} / {half['p99_ms']['median']:.2f} ms"
    rows += [
        ("Redis' part of a bid, on another core, at half as many a second", f"{redis_us:.1f} µs"),
        (
            "latency of a bid at half as many a second, p50 / p99: on loopback, counted from when"
            f" the request was due, the client's own delay (p99: {late_ms:.2f} ms) included",
            latencies,
        ),
        (
            "bids a second, to those of the same bidder with FastAPI, pydantic, uvicorn and"
            " redis-py on the same Redis",
            f"{peer['requests']['median']:.1f} times",
        ),
    ]
    return IN_SHORT.format(**result["method"]) + table(("", ""), rows)


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        yield spread_figure(f"{name}, requests/s", own["requests_per_s"], less_is_better=False)
        yield spread_figure(f"{name}, processor µs", own["processor_us"])
        yield Figure(f"{name}, MiB", own["memory_mib"], drifts=False)
    for name, own in result["half"].items():
        for quantile in ("p50_ms", "p99_ms"):
            yield spread_figure(f"{name} at half, {quantile}", own[quantile])
    for name, own in result["added_us"].items():
        yield spread_figure(f"added by {name}, µs", own)
    for name, own in result["ratios"].items():
        requests = own["requests"]
        yield spread_figure(f"ratio of {name}", requests, less_is_better=False, drifts=False)


def contenders(figures: dict[str, Any], method: dict[str, Any]) -> str:
    """Render a table with a row for each contender."""
    wins = method.get("wins_a_turn", {})
    rows = []
    for name, own in figures.items():
        middle = {key: value["median"] for key, value in own.items() if isinstance(value, dict)}
        requests = wins.get(name, middle["requests_per_s"] * method["seconds_a_turn"])
        rows.append(
            (
                name,
                f"{middle['requests_per_s']:,.0f}",
                f"{middle['processor_us']:.1f}",
                system_us(middle["system_us"], requests),
                f"{own['memory_mib']:.0f}",
                f"{middle['server_busy']:.0%} / {middle['client_busy']:.0%}",
                f"{middle['late']:.2%}",
            )
        )
    columns = ("requests/s", "µs a request", "of it system", "MiB")
    return table(("", *columns, "server / client core busy", "late"), rows)


def slow(figures: dict[str, Any]) -> str:
    """Name the servers that left their core partly idle, with the likely reason; "" if none."""
    slow = [
        f"{name} ({_limit(own)})"
        for name, own in figures.items()
        if own["server_busy"]["median"] < BUSY
    ]
    if not slow:
        return ""
    return (
        f"\nThe server was not the limit, so that its requests/s are too low: {', '.join(slow)}.\n"
    )


def _limit(own: dict[str, Any]) -> str:
    """Return the likely reason why a server left its core partly idle."""
    if own["client_busy"]["median"] >= BUSY:
        return "the client"
    return "the client's core or other programs"


def _half(half: dict[str, Any], seconds: float) -> str:
    rows = []
    for name, own in half.items():
        middle = {quantile: f"{own[quantile]['median']:.2f}" for quantile in QUANTILES}
        middle["p999_ms"] = p999_ms(own["p999_ms"]["median"], own["requests_per_s"] * seconds)
        times = (f"{own[name]['median']:.1f}" for name in TIMES)
        late = f"{own['late']['median']:.2%}"
        rows.append((name, f"{own['requests_per_s']:,}", *middle.values(), late, *times))
    columns = ("requests/s", "p50 ms", "p99 ms", "p99.9 ms", "client late ms", "late")
    return table(("", *columns, "µs a request", "Redis µs"), rows)


def _late(half: dict[str, Any]) -> str:
    """Name the contenders to which the client sent late; "" if there are none."""
    late = [name for name, own in half.items() if own["lag_ms"]["median"] > LAG_MS]
    if not late:
        return ""
    return f"\nThe client was late, the latencies are not the server's alone: {', '.join(late)}.\n"


def ratios_table(ratios: dict[str, Any]) -> str:
    rows = []
    for title, own in ratios.items():
        aim = RATIOS[title][2] if title in RATIOS else None
        reached = "reached" if aim and own["requests"]["median"] >= aim else "not reached"
        aimed = f"at least {aim:g}: {reached}" if aim else ""
        rows.append((title, ratio(own["requests"]), ratio(own["processor"]), aimed))
    return table(("", "requests/s", "by processor time", "aim"), rows)


def _added(added: dict[str, Any]) -> str:
    rows = []
    for title, own in added.items():
        mark = "**" if title in ADDED and ADDED[title][2] else ""
        rows.append((f"{mark}{title}{mark}", f"{mark}{_spread(own, 1)}{mark}"))
    return table(("", "µs a request"), rows)


def ratio(own: dict[str, float]) -> str:
    """Format a ratio's median and quartiles."""
    return _spread(own, 2)


def _spread(own: dict[str, float], digits: int) -> str:
    return f"{own['median']:.{digits}f} ({own['q1']:.{digits}f} to {own['q3']:.{digits}f})"
