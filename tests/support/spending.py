"""Bids with budgets and caps against the ledger, and the resulting state in Redis."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import ConnectionError

from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import BidVerdict
from snapbid.ledger.budgets.budgets import CampaignSpend
from snapbid.ledger.budgets.limits import Limits

HOLD_S = 60
NANO = 1000  # nano-USD in a micro-USD


def limits(
    campaign: int = 1,
    *,
    daily: int | None = None,
    total: int | None = None,
    even_from_ms: int | None = None,
    caps: tuple[tuple[int, int], ...] = (),
) -> Limits:
    """Limits; amounts in micro-USD."""
    return Limits(campaign, daily, total, even_from_ms, caps)


async def reserve(
    ledger: Ledger,
    auction: bytes,
    *bids: tuple[bytes, int, Limits | None],
    ssp: int = 1,
    user: str | None = None,
    counted: bool = False,
    within_s: float = 10.0,
) -> str:
    """Remember bids of (impression, price, limits); returns their result letters.

    Bids without limits are those of campaign 9.
    """
    wanted = [(imp, 9 if of is None else of.campaign, price, of) for imp, price, of in bids]
    done = ledger.remember(auction, ssp, wanted, user, within_s, counted)
    assert done is not None
    return await done


async def sent(ledger: Ledger, answered: Callable[[], bool] = lambda: False) -> None:
    """Wait until the queued bids have been sent to Redis, or are answered."""
    while not answered() and not any(core._answers.sent for core in ledger._cores):
        await asyncio.sleep(0)


async def state(ledger: Ledger, campaign: int = 1) -> CampaignSpend:
    while True:
        with contextlib.suppress(ConnectionError):  # too slow an answer, on a busy machine
            return (await ledger.budgets.states([campaign]))[campaign]


async def has_headroom(ledger: Ledger, price: int, *wanted: Limits) -> list[bool]:
    """Whether any shard has money for a bid of each."""
    bids = [(b"", of.campaign, price, of) for of in wanted]
    looks = [await ledger.budgets.look(shard, bids, None) for shard in range(len(ledger._shards))]
    return [BidVerdict.KEPT in letters for letters in zip(*looks, strict=True)]


def bid_request(auction: str, sizes: Sequence[tuple[int, int]] = ((300, 250),), **more: Any) -> Any:
    """A request with a banner for each size, from the USA."""
    return {
        "id": auction,
        "imp": [
            {"id": str(number), "banner": {"w": w, "h": h}}
            for number, (w, h) in enumerate(sizes, 1)
        ],
        "site": {"domain": "news.example"},
        "device": {"geo": {"country": "USA"}},
        **more,
    }
