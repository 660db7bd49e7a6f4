"""The bidder as one would write it with FastAPI (`bench/market/fastapi_bidder`)."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any, Final

import redis

from bench import served
from bench.constant import PATH
from bench.market.bidders import LIMITS, Place, Started
from bench.market.bidders.snapbid import campaign_of as campaign_of
from bench.market.bidders.snapbid import document
from bench.market.corpus import Campaign, Corpus
from bench.processes import ServerProcess
from bench.redis_time import processor_s_of

NAME: Final = "fastapi"
ABOUT: Final = (
    "The same bidder as you would write it with FastAPI, pydantic v2, uvicorn[standard] and"
    " redis-py (`bench/market/fastapi_bidder`). It stores each bid in Redis before it answers."
)
LACKS: Final = (
    "It has no budgets and frequency caps.",
    "It keeps no deadline: it answers with its bid however late.",
    "It takes no gzip and no odd types, and has no spool for notices and no metrics.",
)
REPOSITORY: Final = ""
SKIPPED: Final = {LIMITS: "it has no budgets and frequency caps"}


def start(stack: ExitStack, place: Place, corpus: Corpus, campaigns: Sequence[Campaign]) -> Started:
    documents = list(map(document, campaigns))
    stores = stack.enter_context(served.stores(place.scratch, place.store_core, documents))
    server = stack.enter_context(served.fastapi_bidder(place.scratch, place.core, stores))
    url = stores["SNAPBID_REDIS_URL"]
    return Started(server, PATH, lambda: wins(server), lambda: processor_s_of(url))


def wins(server: ServerProcess) -> int:
    """Return how many wins the bidder has counted so far."""
    with closing(redis.Redis.from_url(server.environ["SNAPBID_REDIS_URL"])) as client:
        counters: list[dict[bytes, bytes]] = [
            _hash(client.hgetall(key)) for key in client.scan_iter("peer:counters:*")
        ]
    return sum(int(n) for own in counters for name, n in own.items() if name.startswith(b"wins:"))


def _hash(reply: Any) -> dict[bytes, bytes]:
    return dict(reply)
