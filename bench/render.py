"""Renders `bench/README.md` from `bench/results/*.json`.

python -m bench.render
"""

import json
from pathlib import Path
from typing import Any, Final

from bench.runs import RUNS

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results"
PAGE: Final = "README.md"

INTRODUCTION: Final = """\
# Benchmarks

This page is rendered from `results/*.json` by `python -m bench.render`; do not edit it.

    make bench                   run everything, say what moved since the committed results
    python -m bench --keep       the same, and make these the results to commit
    python -m bench --long       more rounds: steadier figures, about half an hour
    python -m bench socket       one run, or some
    python -m bench.socket_run --rounds 3 --seconds 1     a short look at the socket part

All servers, clients and stores are on one machine, loopback only. It needs two cores; where other
programs use them too, processor time is what to trust, and ratios.

The campaigns (`campaigns.py`) use all 20 targeting dimensions, about one in a hundred is eligible
for a request. The requests (`requests.py`) have one impression, are for sites and apps, and take
about 1 KB, or "today" a median of 2.2 KB. No-bids are the same requests, changed so that nobody
bids, for four reasons in turns: a floor of 500 USD, a private auction for an unknown deal, a seat
list without our seats, a banner size that nobody has.
"""


def render(results: dict[str, dict[str, Any]]) -> str:
    """The page."""
    sections = (RUNS[kind].section.render(result) for kind, result in results.items())
    return "".join([INTRODUCTION, *sections])


def read(directory: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """The results in a directory, by kind."""
    paths = ((kind, directory / f"{kind}.json") for kind in RUNS)
    return {kind: json.loads(path.read_text()) for kind, path in paths if path.exists()}


def main() -> None:
    (HERE / PAGE).write_text(render(read()))


if __name__ == "__main__":
    main()
