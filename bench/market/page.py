"""Renders the page from the result files of all bidders.

python -m bench.market.page       bench/market/RESULTS.md from bench/market/results
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bench.market.bidders import BID, LIMITS, MIXED, NO_BID, NOTICES, load
from bench.market.contract import RULES
from bench.market.corpus import TMAX_MS
from bench.market.modes import SETTLE
from bench.market.probes import LIMIT_RULES
from bench.sections.parts import ENOUGH, TICKS, about, p999_ms, system_us, table

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results"
PAGE: Final = HERE / "RESULTS.md"
BUSY: Final = 0.9  # of its core; a server that was less busy was not the limit
TITLES: Final = {
    NO_BID: "Requests that no campaign may have",
    BID: "Requests with a bid",
    LIMITS: "The same, each campaign with a budget and a frequency cap",
    NOTICES: "Win notices, each for a bid of its own",
    MIXED: "The whole corpus and win notices, at half capacity",
}
INTRODUCTION: Final = """\
# A benchmark of bidders: results

Rendered from `results/*.json`, a file a bidder, by `python -m bench.market.page`; do not edit it.
[README.md](README.md) explains what is measured, and how to add a bidder.
"""
CONTRACT: Final = """
## The contract

How many answers broke each rule, over one answer to each request of the corpus; budgets and caps
over a few requests that only a limited campaign may have. A dash: the bidder lacks the feature, or
its result is older than the rule.

"""
NOT_MEASURED: Final = "- `{}` has no result: {}\n"
DISTURBED: Final = """
**Requests/s and latencies here do not show what these bidders can do.** Saturated, their server
used less than {busy:.0%} of its core: client, stores or other programs were the limit. Compare
processor time, which a busy machine increases, too.

"""
FIGURES: Final = """
## Figures

Medians of the turns. "µs" is processor time a request, user and system, as the operating system
counts it for the serving process; "stores µs" that of its stores, on the client's core. "Busy" is
the share of their cores that server and client used. "Wrong" is the share of answers that break the
contract, "late" of those among them that came after {tmax} ms. "Client late" is the 99th percentile
of how late requests left although a connection was free; it is part of the latencies. A p99.9 is
blank where a turn has fewer than {enough:,} requests, "of it system" where a turn has fewer than
{ticks} of the kernel's hundredths of a second.
"""


def render(results: Mapping[str, dict[str, Any]]) -> str:
    """Render the page as Markdown."""
    measured = {name: own for name, own in results.items() if "skipped" not in own}
    parts = [INTRODUCTION, *_disturbed(measured), "\n## Bidders\n\n", *_bidders(measured)]
    parts += [*_not_measured(results), CONTRACT, _contract(measured)]
    parts += [FIGURES.format(tmax=TMAX_MS, enough=ENOUGH, ticks=TICKS)]
    for mode, title in TITLES.items():
        parts += [f"\n### {title}\n\n", _mode(measured, mode)]
    return "".join(parts)


def _disturbed(results: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Name the bidders that were too idle to be the limit of their figures, if any."""
    busy = {
        name: min(
            (
                own["modes"][mode]["server_busy"]["median"]
                for mode in (NO_BID, BID, LIMITS)
                if "skipped" not in own["modes"][mode]
            ),
            default=1.0,
        )
        for name, own in results.items()
    }
    slow = [name for name, share in busy.items() if share < BUSY]
    if slow:
        yield DISTURBED.format(busy=BUSY)
    for name in slow:
        load = results[name]["about"]["load_before"]
        yield f"- `{name}`: {busy[name]:.0%}; the load before its run was {load}.\n"


def _bidders(results: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Describe each bidder: what it is, what it doesn't do, and where it was measured."""
    for name, own in results.items():
        revision = f" Revision {own['revision']} of {own['repository']}." if own["revision"] else ""
        yield f"### {name}\n\n{own['describes']}{revision}\n"
        if own["lacks"]:
            yield "\nWhat it doesn't do:\n\n" + "".join(f"- {each}\n" for each in own["lacks"])
        method = own["method"]
        yield about(own).rstrip("\n") + (
            f" {method['rounds']} turns of {method['seconds']:g} s, {method['mixed_rounds']} of"
            f" {method['mixed_seconds']:g} s of mixed traffic; {own['seconds']} s in all. Decoding"
            f" a request with the standard library took {own['gauge_us']['median']:.1f} µs.\n\n"
        )


def _not_measured(results: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Tell why bidders have no result."""
    for name, bidder in load().items():
        needed = f"; it needs a checkout of {bidder.REPOSITORY}" if bidder.REPOSITORY else ""
        if name not in results:
            yield NOT_MEASURED.format(name, f"it was not run{needed}")
    for name, own in results.items():
        if "skipped" in own:
            yield NOT_MEASURED.format(name, own["skipped"])


def _contract(results: Mapping[str, dict[str, Any]]) -> str:
    rules = RULES | LIMIT_RULES
    rows = [
        (f"{rule}: {text}", *(_verdict(own["contract"].get(rule)) for own in results.values()))
        for rule, text in rules.items()
    ]
    return table(("", *results), rows)


def _verdict(own: Mapping[str, Any] | None) -> str:
    if own is None:
        return "—"
    return f"{own['broken']:,} of {own['checked']:,}" if own["broken"] else "kept"


def _mode(results: Mapping[str, dict[str, Any]], mode: str) -> str:
    rows, left_out = [], []
    for name, own in results.items():
        figures = own["modes"][mode]
        if reason := figures.get("skipped"):
            left_out.append(f"- `{name}` left out: {reason}.\n")
        else:
            rows.append((name, *_row(figures, mode, own["method"])))
    columns = ["requests/s", "µs", "of it system", "stores µs", "server / client busy", "wrong"]
    columns += ["counted"] if mode == NOTICES else ["late"]
    columns += ["p50 ms", "p99 ms", "p99.9 ms", "client late ms"] if mode == MIXED else []
    return table(("", *columns), rows) + ("\n" + "".join(left_out) if left_out else "")


def _row(figures: Mapping[str, Any], mode: str, method: Mapping[str, Any]) -> Iterator[str]:
    middle = {name: own["median"] for name, own in figures.items() if isinstance(own, dict)}
    requests = _requests_a_turn(figures, mode, method)
    yield f"{middle['requests_per_s']:,.0f}"
    yield f"{middle['processor_us']:.1f}"
    yield system_us(middle["system_us"], requests)
    yield f"{middle['store_us']:.1f}"
    yield f"{middle['server_busy']:.0%} / {middle['client_busy']:.0%}"
    yield f"{middle['wrong']:.1%}"
    if mode == NOTICES:
        yield f"{figures['counted']:,} of {figures['sent']:,}" if "counted" in figures else "—"
    else:
        yield f"{middle['late']:.2%}"
    if mode == MIXED:
        yield f"{middle['p50_ms']:.2f}"
        yield f"{middle['p99_ms']:.2f}"
        yield p999_ms(middle["p999_ms"], requests)
        yield f"{middle['lag_ms']:.2f}"


def _requests_a_turn(figures: Mapping[str, Any], mode: str, method: Mapping[str, Any]) -> float:
    if mode == NOTICES:
        return float(figures["sent"] / method["rounds"])
    seconds = method["mixed_seconds"] * (1 - SETTLE) if mode == MIXED else method["seconds"]
    return float(figures["requests_per_s"]["median"] * seconds)


def read(directory: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Read the results in a directory, by bidder."""
    found = (json.loads(path.read_text()) for path in sorted(directory.glob("*.json")))
    return {each["bidder"]: each for each in found}


def write(directory: Path = RESULTS, page: Path = PAGE) -> None:
    page.write_text(render(read(directory)))


if __name__ == "__main__":
    argparse.ArgumentParser("python -m bench.market.page", description=__doc__).parse_args()
    write()
