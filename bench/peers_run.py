"""Snapbid beside other bidders, built from checkouts of their public repositories.

    python -m bench.peers_run --rust-rtb-bidder CHECKOUT [--rounds 9] [--seconds 2]

One server core; client and stores on the other. The contenders take turns, with the same campaigns
and requests, and only with requests on which all of them bid. Each is saturated by 64 connections.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import peers_market, requests, served
from bench.about import about, git, write
from bench.client import MAX_SECONDS, request
from bench.confirmed import confirm_budgets
from bench.constant import PATH
from bench.contenders import Contender, ask
from bench.peers import rust_rtb_bidder
from bench.processes import BenchError, ServerProcess, cores, pinned
from bench.socket_run import MAX_ROUNDS, ratios, rounds, saturate, spreads

CAMPAIGNS: Final = 5_000
REQUESTS: Final = 1_000
LEAST: Final = 0.5  # of the requests; so many get a bid from everybody
IMPRESSIONS: Final = {"one impression": 1, "two impressions": 2}
PLAIN, LIMITED, RUST = "snapbid", "snapbid, budget and cap", "rust-rtb-bidder"


class _Bidder:
    """A server, and where it takes bid requests."""

    def __init__(self, server: ServerProcess, path: str) -> None:
        self.server = server
        self.path = path

    def bids_on(self, body: bytes) -> bool:
        """Whether it bids on every impression."""
        status, answer = ask(self.server, request(self.path, body))
        if status not in (200, 204):
            raise BenchError(f"{self.path} answers {status}: {answer[:200]!r}")
        seats = json.loads(answer)["seatbid"] if answer else []
        return sum(len(seat["bid"]) for seat in seats) == len(json.loads(body)["imp"])


def start(stack: ExitStack, scratch: Path, checkout: Path) -> dict[str, _Bidder]:
    """Start all of them, with the same campaigns."""
    core, store_core = cores()
    stack.enter_context(pinned(store_core))
    market = peers_market.campaigns(CAMPAIGNS)
    bidders = {}
    for name, limited in ((PLAIN, False), (LIMITED, True)):
        own = scratch / ("limited" if limited else "plain")
        own.mkdir(mode=0o711)
        documents = [peers_market.document(each, limited=limited) for each in market]
        server = stack.enter_context(served.product(own, core, store_core, documents))
        confirm_budgets(server.environ["SNAPBID_REDIS_URL"])
        bidders[name] = _Bidder(server, PATH)
    rust = rust_rtb_bidder.rust_rtb_bidder(checkout, scratch, core, store_core, market)
    bidders[RUST] = _Bidder(stack.enter_context(rust), rust_rtb_bidder.PATH)
    return bidders


def contenders(bidders: dict[str, _Bidder], kind: str) -> list[Contender]:
    """A contender for each bidder, with the requests on which all of them bid."""
    made = requests.encode(peers_market.bid_requests(REQUESTS, IMPRESSIONS[kind]))
    shared = [body for body in made if all(each.bids_on(body) for each in bidders.values())]
    if len(shared) < LEAST * len(made):
        raise BenchError(f"only {len(shared)} of {len(made)} requests get a bid from everybody")
    return [
        Contender(name, each.server, [request(each.path, body) for body in shared], 200)
        for name, each in bidders.items()
    ]


def measure(turns: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run all rounds; the result as it is written."""
    result: dict[str, Any] = {"kind": "peers", "about": about(), "figures": {}, "ratios": {}}
    with ExitStack() as stack:
        bidders = start(stack, scratch, turns.rust_rtb_bidder)
        sizes = {}
        for kind in IMPRESSIONS:
            own = contenders(bidders, kind)
            sizes[kind] = median(map(len, own[0].requests))
            samples = rounds(own, turns.rounds, lambda each: saturate(each, turns.seconds))
            memory = {each.name: each.server.memory_bytes() / 2**20 for each in own}
            result["figures"][kind] = {
                name: spreads(samples[name]) | {"memory_mib": round(memory[name], 1)}
                for name in samples
            }
            result["ratios"][kind] = {
                name: ratios(samples, name, RUST) for name in (PLAIN, LIMITED)
            }
    result["method"] = {
        "campaigns": CAMPAIGNS,
        "rounds": turns.rounds,
        "seconds_a_turn": turns.seconds,
        "request_bytes_median": sizes,
        "commits": {RUST: git("rev-parse", "--short=12", "HEAD", at=turns.rust_rtb_bidder)},
    }
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rust-rtb-bidder", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--seconds", type=float, default=2.0, help="a turn of a saturated server")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, default=None)
    chosen = parser.parse_args(arguments)
    if not 0 < chosen.rounds <= MAX_ROUNDS:
        parser.error(f"rounds are from 1 to {MAX_ROUNDS}")
    if not 0 < chosen.seconds <= MAX_SECONDS:
        parser.error(f"a turn takes up to {MAX_SECONDS:g} s")
    with tempfile.TemporaryDirectory(prefix="snapbid-bench-") as scratch:
        os.chmod(scratch, 0o711)  # the database runs as another user where this one is root
        write(measure(chosen, Path(scratch)), chosen.output)


if __name__ == "__main__":
    main()
