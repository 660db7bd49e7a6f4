"""The contenders of the socket runs, their requests, and a check that the bidders answer alike."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import served
from bench.client import as_new_auctions, drive, request, run
from bench.constant import PATH
from bench.market.bidders import fastapi, snapbid
from bench.market.contract import wins_of
from bench.processes import BenchError, ServerProcess
from workload import campaigns, requests
from workload.serving import confirm_budgets

CAMPAIGNS: Final = 10_000
REQUESTS: Final = 2_000
COMPARED: Final = 500  # requests whose answers must be equal
CONNECTIONS: Final = 64
LIMITS: Final[dict[str, Any]] = {  # which are never reached
    "budget": {"daily": 10**6, "total": 10**7},
    "frequency_caps": [{"impressions": 10**6, "seconds": 3600}],
}


class Contender(msgspec.Struct):
    """A server, the requests it gets and the status that each answer must have.

    If `rated`, its latencies are also measured at half its capacity. If it has `wins`, it gets win
    notices for bids on the requests instead.
    """

    name: str
    server: ServerProcess
    requests: Sequence[bytes]
    status: int
    rated: bool = False
    wins: "Wins | None" = None


class Wins:
    """Makes win notices for a bidder, `a_turn` at a time, each for a different bid.

    `count` returns how many wins the bidder has counted so far.
    """

    def __init__(self, port: int, count: Callable[[], int], a_turn: int) -> None:
        self.a_turn = a_turn
        self._port = port
        self._count = count
        self._before = 0

    def make(self, requests: Sequence[bytes], number: int) -> list[bytes]:
        """Get bids on `number` new auctions; return a win notice for each, to be sent only once."""
        notices: list[bytes] = []

        def won(request: bytes, status: int, body: bytes, latency: float) -> None:
            notices.extend(wins_of(status, body))

        auctions = list(islice(as_new_auctions(requests), number))
        run(drive(self._port, auctions, connections=CONNECTIONS, once=True, each=won))
        if not notices:
            raise BenchError(f"none of {number} requests got a bid with a notice")
        self._before = self._count()
        return notices

    def check(self, sent: int) -> None:
        """Raise BenchError unless the bidder counted exactly the wins that were sent."""
        counted = self._count() - self._before
        if counted != sent:
            raise BenchError(f"{counted} wins were counted, {sent} sent")


def start(stack: ExitStack, scratch: Path, core: int, store_core: int) -> list[Contender]:
    """Start all servers. Raises BenchError if two bidders answer differently."""
    product = stack.enter_context(served.product(scratch, core, store_core, CAMPAIGNS))
    limited = _limited(stack, scratch, core, store_core)
    peer = stack.enter_context(served.fastapi_bidder(scratch, core, product.environ))
    made = requests.make(REQUESTS)
    bids, no_bids = answered(product, made, 200), answered(product, requests.no_bids(made), 204)
    ours = Wins(product.port, lambda: snapbid.wins(product), 50_000)
    theirs = Wins(peer.port, lambda: fastapi.wins(peer), 3_000)
    check_agreement(product, peer, [*bids[:COMPARED], *no_bids[: COMPARED // 4]])
    return [
        Contender("bid", product, bids, 200, rated=True),
        Contender("bid-test", product, answered(product, requests.unremembered(made), 200), 200),
        Contender("bid-limited", limited, bids, 200, rated=True),
        Contender("bid-today", product, answered(product, requests.grown(made), 200), 200),
        Contender("no-bid", product, no_bids, 204, rated=True),
        Contender("win", product, bids, 200, rated=True, wins=ours),
        *_constants(stack, scratch, core, bids),
        Contender("fastapi-bid", peer, bids, 200, rated=True),
        Contender("fastapi-no-bid", peer, no_bids, 204, rated=True),
        Contender("fastapi-win", peer, bids, 200, rated=True, wins=theirs),
    ]


def _limited(stack: ExitStack, scratch: Path, core: int, store_core: int) -> ServerProcess:
    """Start the product with the same campaigns, each with a budget and a cap."""
    own = scratch / "limited"
    own.mkdir(mode=0o711)
    documents = [document | LIMITS for document in campaigns.documents(CAMPAIGNS)]
    server = stack.enter_context(served.product(own, core, store_core, documents))
    confirm_budgets(server.environ["SNAPBID_REDIS_URL"])
    return server


def _constants(
    stack: ExitStack, scratch: Path, core: int, bids: Sequence[bytes]
) -> list[Contender]:
    def on(server: Any, name: str, kind: str, status: int, rated: bool = False) -> Contender:
        process = stack.enter_context(server(scratch, core, *kind.split()))
        return Contender(name, process, bids, status, rated)

    return [
        on(served.constant, "constant", "full", 200, rated=True),
        on(served.constant, "constant-read", "full_read", 200),
        on(served.constant, "constant-plain", "full plain", 200),
        on(served.constant, "constant-taskless-read", "full_read taskless", 200),
        on(served.constant, "constant-204", "empty", 204),
        on(served.constant, "constant-204-read", "empty_read", 204),
        on(served.constant, "constant-204-taskless-read", "empty_read taskless", 204),
        on(served.uvicorn_constant, "uvicorn-constant", "full", 200, rated=True),
        on(served.uvicorn_constant, "uvicorn-constant-read", "full_read", 200),
    ]


def ask(server: ServerProcess, wire: bytes) -> tuple[int, bytes]:
    """Return the status and body of the answer to a request."""
    return run(drive(server.port, [wire], connections=1, once=True)).last[0]


def answered(server: ServerProcess, made: list[requests.Request], status: int) -> list[bytes]:
    """Return the requests that a running server answers with this status; most of them must be."""
    wires = [request(PATH, body) for body in requests.encode(made)]
    usable = [wire for wire in wires if ask(server, wire)[0] == status]
    if len(usable) < 0.9 * len(made):
        raise BenchError(f"only {len(usable)} of {len(made)} requests were answered with {status}")
    return usable


def check_agreement(product: ServerProcess, peer: ServerProcess, wires: list[bytes]) -> None:
    """Raise BenchError unless both bidders answer each request alike.

    The prices must be equal and, except for a few ties, the campaigns and their terms.
    """
    ties = 0
    for wire in wires:
        ours, theirs = _bid(ask(product, wire)), _bid(ask(peer, wire))
        if ours["cid"] != theirs["cid"] and ours["price"] == theirs["price"]:
            ties += 1
        elif ours != theirs:
            raise BenchError(f"the peer answers {theirs} instead of {ours}: {wire!r}")
    if ties > len(wires) // 20:
        raise BenchError(f"another campaign of the same price in {ties} of {len(wires)} answers")


def _bid(answer: tuple[int, bytes]) -> dict[str, Any]:
    """Return the part of an answer that must be equal: everything but the choice of creative."""
    status, body = answer
    if status != 200:
        return {"status": status, "cid": None, "price": None}
    (seat,) = json.loads(body)["seatbid"]
    (bid,) = seat["bid"]
    own = {name: bid.get(name) for name in ("impid", "price", "cid", "adomain", "cat", "dealid")}
    fields = sorted(set(bid) - {"attr", "iurl"})
    return {"status": status, "seat": seat.get("seat"), "fields": fields, **own}
