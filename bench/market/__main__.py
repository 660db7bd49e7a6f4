"""Runs the benchmark of all bidders or of those named, and writes a result file for each.

    python -m bench.market [BIDDER ...] [--checkout BIDDER=PATH ...] [--quick] [--keep]

Results and the page are written to build/market; with --keep they become bench/market/results and
bench/market/RESULTS.md. Needs two cores: one for the server, one for client and stores.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import ready
from bench.about import ROOT, about, git, write
from bench.client import ClientError
from bench.market import corpus, page, probes
from bench.market.bidders import BID, LIMITS, MIXED, NO_BID, NOTICES, Bidder, Place, load
from bench.market.corpus import Corpus
from bench.market.modes import Traffic, Turns, measure
from bench.processes import BenchError, cores, pinned
from bench.spread import spread
from workload.requests import encode

OUTPUT: Final = ROOT / "build" / "market"
QUICK: Final = Turns(rounds=2, seconds=0.7, mixed_rounds=1, mixed_seconds=1.0)
PLAIN_MODES: Final = (NO_BID, BID, NOTICES, MIXED)


def main() -> None:
    bidders = load()
    parser = argparse.ArgumentParser(
        prog="python -m bench.market",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bidder", nargs="*", metavar="BIDDER", help=", ".join(bidders))
    parser.add_argument("--checkout", action="append", default=[], metavar="BIDDER=PATH")
    parser.add_argument("--quick", action="store_true", help="short turns: figures to look at")
    parser.add_argument("--keep", action="store_true", help="make these the results to commit")
    chosen = parser.parse_args()
    checkouts = dict(each.partition("=")[::2] for each in chosen.checkout)
    if unknown := ({*chosen.bidder} | checkouts.keys()) - bidders.keys():
        parser.error(f"no such bidder: {', '.join(unknown)} (there are {', '.join(bidders)})")
    if chosen.keep and (reason := ready.why_not_keep()):
        parser.error(reason)
    ready.check()
    names, turns = chosen.bidder or list(bidders), QUICK if chosen.quick else Turns()
    with ready.orderly_end():
        OUTPUT.mkdir(parents=True, exist_ok=True)
        made = corpus.make()
        were_run = [
            run_to(OUTPUT, bidders[name], checkouts.get(name), made, turns) for name in names
        ]
        page.write(OUTPUT, OUTPUT / page.PAGE.name)
        if not any(were_run):
            sys.exit("no bidder was run")
        if chosen.keep:
            for name in names:
                shutil.copy(OUTPUT / f"{name}.json", page.RESULTS)
            page.write(page.RESULTS, page.PAGE)


def run_to(output: Path, bidder: Bidder, checkout: str | None, made: Corpus, turns: Turns) -> bool:
    """Run a bidder and write its result, or why it has none; return whether it was run.

    An earlier result is replaced.
    """
    path = output / f"{bidder.NAME}.json"
    path.unlink(missing_ok=True)
    try:
        write(run(bidder, checkout, made, turns), path)
    except (BenchError, ClientError, OSError) as error:
        print(f"{bidder.NAME} skipped: {error}", flush=True)
        reason = str(error).partition("\n")[0].rstrip(":")
        write({"kind": "market", "bidder": bidder.NAME, "skipped": reason}, path)
        return False
    return True


def run(bidder: Bidder, checkout: str | None, made: Corpus, turns: Turns) -> dict[str, Any]:
    """Run a bidder without and then with budgets and caps; return its result. Raises BenchError."""
    if bidder.REPOSITORY and checkout is None:
        raise BenchError(
            f"it needs --checkout {bidder.NAME}=PATH, a checkout of {bidder.REPOSITORY}"
        )
    print(f"{bidder.NAME}:", flush=True)
    started = time.monotonic()
    at = Path(checkout).resolve() if checkout else None
    result = {
        "kind": "market",
        "bidder": bidder.NAME,
        "describes": bidder.ABOUT,
        "lacks": list(bidder.LACKS),
        "repository": bidder.REPOSITORY,
        "revision": git("rev-parse", "--short=12", "HEAD", at=at) if at else "",
        "about": about(),
        "method": msgspec.to_builtins(turns)
        | {"campaigns": len(made.campaigns), "requests": len(made.requests)},
        "gauge_us": _gauge(made),
    }
    contract: dict[str, Any] = {}
    modes: dict[str, Any] = {mode: {"skipped": why} for mode, why in bidder.SKIPPED.items()}
    with _traffic(bidder, at, made, limited=False) as traffic:
        contract |= probes.answers(traffic)
        if NOTICES not in bidder.SKIPPED:
            contract |= probes.notices(traffic)
        modes |= measure(traffic, [mode for mode in PLAIN_MODES if mode not in modes], turns)
    if LIMITS not in bidder.SKIPPED:
        with _traffic(bidder, at, made, limited=True) as traffic:
            contract |= probes.limits(traffic)
            modes |= measure(traffic, [LIMITS], turns)
    result["contract"], result["modes"] = msgspec.to_builtins(contract), modes
    result["seconds"] = round(time.monotonic() - started)
    return result


@contextmanager
def _traffic(
    bidder: Bidder, checkout: Path | None, made: Corpus, *, limited: bool
) -> Iterator[Traffic]:
    """Start a bidder, and yield the traffic for it; the client runs on the other core."""
    core, store_core = cores()
    campaigns = made.limited if limited else made.campaigns
    with (
        tempfile.TemporaryDirectory(prefix="snapbid-market-") as scratch,
        pinned(store_core),
        ExitStack() as stack,
    ):
        os.chmod(scratch, 0o711)  # the database runs as another user where this one is root
        place = Place(Path(scratch), core, store_core, checkout)
        started = bidder.start(stack, place, made, campaigns)
        yield Traffic(started, bidder, made, limited=limited)


def _gauge(made: Corpus) -> dict[str, float]:
    """Measure how long the standard library decodes a request (µs), to gauge the machine."""
    bodies, times = encode(made.requests), []
    for _ in range(9):
        before = time.process_time()
        for body in bodies:
            json.loads(body)
        times.append((time.process_time() - before) / len(bodies) * 1e6)
    return spread(times)


if __name__ == "__main__":
    main()
