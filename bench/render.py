"""Renders `bench/README.md`, and PRODUCTION.md's tables on sizing, from `bench/results/*.json`.

python -m bench.render
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

from bench import sizing
from bench.runs import RUNS
from bench.sections import limits, socket

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results"
PAGE: Final = "README.md"

INTRODUCTION: Final = """\
# Benchmarks

This page is rendered from `results/*.json` by `python -m bench.render`; do not edit it.

    make bench                   run everything, show what changed since the committed results
    python -m bench --keep       the same on an idle machine, and make these the results to commit
    make bench QUICK=1           what a change moves most, within three minutes
    python -m bench --long       more rounds for steadier figures, about half an hour
    python -m bench socket       only some of the runs; --help lists them
    rm -rf /tmp/main && cp -r build/bench /tmp/main
                                 keep the results of this checkout; then, of your change,
    make build && python -m bench socket --against /tmp/main
                                 compare with them
    python -m bench.socket_run --rounds 3 --seconds 1     a quick socket run
    python -m pytest bench/micro -k decode --benchmark-timer=time.process_time
                                 one of those in one process

`python` is `.venv/bin/python`, in which `make .venv/.dev .venv/.bench` installs what they need.

Each section explains its figures, and where and when they were measured. Compare figures of one
table, or two runs on your machine; the committed figures are from another machine. Half of the
rounds lie between the quartiles, so a change that stays between them is noise. `--against` leaves
out of the changes by how much the machine itself drifted, which a reference of each run shows.

For example, "asgi bid" is how long a core works on a bid from its body to its answer, with neither
a socket nor the ledger; "asgi bid remembered" adds the ledger, and the section on sockets adds the
server. A benchmark in one process, run alone, prints the time of a round, which is 400 calls for
most: divide by these to get the figure on this page. What a section describes and its tables lack
is not measured yet.

[A separate benchmark](market/README.md), `make market`, measures the product beside other
bidders.

All servers, clients and stores share one machine with two cores, and use loopback only. If other
programs use the cores as well, trust processor time and ratios.

The campaigns (`workload/campaigns.py`) use 20 of the targeting dimensions; about 1% of them are
eligible for a request. The requests (`workload/requests.py`) are for sites and apps, have one
impression, and take about 1 KB; those called "today" have a median of 2.2 KB. No-bids are the
same requests, changed so that no campaign bids, for one of four reasons in turn: a floor of 500
USD, a private auction for an unknown deal, a seat list without our seats, a banner size that no
creative has.
"""


def render(results: dict[str, dict[str, Any]]) -> str:
    """Render the page as Markdown."""
    sections = (RUNS[kind].section.render(result) for kind, result in results.items())
    short = [socket.in_short(results["socket"])] if "socket" in results else []
    return "".join([INTRODUCTION, *short, *sections])


def read(directory: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Read the results in a directory, by kind."""
    paths = ((kind, directory / f"{kind}.json") for kind in RUNS)
    return {kind: json.loads(path.read_text()) for kind, path in paths if path.exists()}


def main() -> None:
    results = read()
    (HERE / PAGE).write_text(render(results))
    (RESULTS / limits.PLOT).write_text(limits.plot(results["limits"]["pacing"]))
    sizing.write(results)


if __name__ == "__main__":
    argparse.ArgumentParser("python -m bench.render", description=__doc__).parse_args()
    main()
