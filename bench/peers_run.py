"""Snapbid beside other bidders, built from checkouts of their public repositories.

    python -m bench.peers_run [--rust-rtb-bidder CHECKOUT] [--aws-bidder CHECKOUT]
                              [--rounds 9] [--seconds 2]

One server core; client and stores on the other. The contenders take turns, with the same campaigns
and requests, and only with requests on which all of them bid. Each is saturated by 64 connections.
A peer that bids on one impression of a request alone takes no part where requests have two.
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

from bench import peers_market, served
from bench.about import about, git, write
from bench.client import MAX_SECONDS, request
from bench.constant import PATH
from bench.contenders import Contender, ask
from bench.peers import aws_bidder, rust_rtb_bidder
from bench.processes import BenchError, ServerProcess, cores, pinned
from bench.socket_run import MAX_ROUNDS, ratios, rounds, saturate, spreads
from workload import requests
from workload.serving import confirm_budgets

CAMPAIGNS: Final = 5_000
REQUESTS: Final = 1_000
LEAST: Final = 0.5  # of the requests; so many get a bid from everybody
IMPRESSIONS: Final = {"one impression": 1, "two impressions": 2}
PLAIN, LIMITED = "snapbid", "snapbid, budget and cap"
RUST, AWS = "rust-rtb-bidder", "aws-bidder"


class _Bidder:
    """A server, where it takes bid requests, and on how many impressions of one it bids."""

    def __init__(self, server: ServerProcess, path: str, most: int = max(IMPRESSIONS.values())):
        self.server = server
        self.path = path
        self.most = most

    def prices(self, body: bytes) -> list[float]:
        """The prices that it bids, in the order of the impressions."""
        status, answer = ask(self.server, request(self.path, body))
        if status not in (200, 204):
            raise BenchError(f"{self.path} answers {status}: {answer[:200]!r}")
        seats = json.loads(answer)["seatbid"] if answer else []
        bids = sorted((bid for seat in seats for bid in seat["bid"]), key=lambda bid: bid["impid"])
        return [bid["price"] for bid in bids]


def start(stack: ExitStack, scratch: Path, checkouts: dict[str, Path]) -> dict[str, _Bidder]:
    """Start all of them, with the same campaigns; the peers of which there is a checkout."""
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
    if RUST in checkouts:
        rust = rust_rtb_bidder.rust_rtb_bidder(checkouts[RUST], scratch, core, store_core, market)
        bidders[RUST] = _Bidder(stack.enter_context(rust), rust_rtb_bidder.PATH)
    if AWS in checkouts:
        made = peers_market.bid_requests(REQUESTS, 1)
        aws = aws_bidder.aws_bidder(checkouts[AWS], scratch, core, store_core, market, made)
        bidders[AWS] = _Bidder(stack.enter_context(aws), aws_bidder.PATH, most=1)
    return bidders


def contenders(bidders: dict[str, _Bidder], kind: str) -> list[Contender]:
    """A contender for each bidder, with the requests on which all of them bid."""
    count = IMPRESSIONS[kind]
    taking = {name: each for name, each in bidders.items() if each.most >= count}
    made = requests.encode(peers_market.bid_requests(REQUESTS, count))
    shared = [body for body in made if _all_bid(taking, body, count)]
    if len(shared) < LEAST * len(made):
        raise BenchError(f"only {len(shared)} of {len(made)} requests get a bid from everybody")
    return [
        Contender(name, each.server, [request(each.path, body) for body in shared], 200)
        for name, each in taking.items()
    ]


def _all_bid(bidders: dict[str, _Bidder], body: bytes, count: int) -> bool:
    """Whether all bid on every impression. Raises BenchError where AWS' price is not ours."""
    prices = {name: each.prices(body) for name, each in bidders.items()}
    if AWS in prices and prices[AWS] != prices[PLAIN]:
        raise BenchError(f"{AWS} bids {prices[AWS]} instead of {prices[PLAIN]}: {body!r}")
    return all(len(own) == count for own in prices.values())


def measure(turns: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run all rounds; the result as it is written."""
    result: dict[str, Any] = {"kind": "peers", "about": about(), "figures": {}, "ratios": {}}
    given = {RUST: turns.rust_rtb_bidder, AWS: turns.aws_bidder}
    checkouts = {name: checkout for name, checkout in given.items() if checkout is not None}
    with ExitStack() as stack:
        bidders = start(stack, scratch, checkouts)
        sizes = {}
        for kind in IMPRESSIONS:
            own = contenders(bidders, kind)
            peers = [each.name for each in own if each.name in checkouts]
            if not peers:
                continue
            sizes[kind] = median(map(len, own[0].requests))
            samples = rounds(own, turns.rounds, lambda each: saturate(each, turns.seconds))
            memory = {each.name: each.server.memory_bytes() / 2**20 for each in own}
            result["figures"][kind] = {
                name: spreads(samples[name]) | {"memory_mib": round(memory[name], 1)}
                for name in samples
            }
            result["ratios"][kind] = {
                peer: {name: ratios(samples, name, peer) for name in (PLAIN, LIMITED)}
                for peer in peers
            }
    result["method"] = {
        "campaigns": CAMPAIGNS,
        "rounds": turns.rounds,
        "seconds_a_turn": turns.seconds,
        "request_bytes_median": sizes,
        "commits": {
            name: git("rev-parse", "--short=12", "HEAD", at=at) for name, at in checkouts.items()
        },
    }
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for peer in (RUST, AWS):
        parser.add_argument(f"--{peer}", type=Path, metavar="CHECKOUT")
    parser.add_argument("--seconds", type=float, default=2.0, help="a turn of a saturated server")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, default=None)
    chosen = parser.parse_args(arguments)
    if chosen.rust_rtb_bidder is None and chosen.aws_bidder is None:
        parser.error(f"a checkout of a peer is needed: --{RUST}, --{AWS}")
    if not 0 < chosen.rounds <= MAX_ROUNDS:
        parser.error(f"rounds are from 1 to {MAX_ROUNDS}")
    if not 0 < chosen.seconds <= MAX_SECONDS:
        parser.error(f"a turn takes up to {MAX_SECONDS:g} s")
    with tempfile.TemporaryDirectory(prefix="snapbid-bench-") as scratch:
        os.chmod(scratch, 0o711)  # the database runs as another user where this one is root
        write(measure(chosen, Path(scratch)), chosen.output)


if __name__ == "__main__":
    main()
