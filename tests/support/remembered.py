"""The ledger in this process, over a real Redis, with a settable clock; and its counts."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.embedded import Redis
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import BILLING, LOSS, WIN
from snapbid.redisclient.trips import Pending
from support.clock import SettableClock
from workload.serving import confirm_budgets

PATIENCE_S = 60.0
TTL_S = 7200
HOLD_S = 60
TIME_BUCKET_S = 1800
REGISTRY = "{sb0}:r"
KINDS = (WIN, BILLING, LOSS)
FIELDS = ("b:1", "w:1", "i:1", "l:1:1", "p:1")
Counts = dict[str, dict[str, int]]  # day -> field -> value


def at(text: str) -> float:
    """Epoch seconds of an ISO 8601 time, UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def day_of(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d")


NOON = at("2030-06-15T12:00:00")


Clock = SettableClock[float]
"""Seconds since 1970, in the future: Redis expires keys."""


@contextlib.asynccontextmanager
async def opened(
    url: str,
    spool: Path,
    *,
    clock: Callable[[], float] | None = None,
    ttl_s: int = TTL_S,
    hold_s: int = HOLD_S,
    shards: int = 1,
    spool_max_bytes: int = 1 << 20,
    wait: bool = True,
    confirmed: bool = True,
) -> AsyncIterator[Ledger]:
    """An open ledger whose budgets a drain has confirmed; waits for its connection unless told not
    to.
    """
    ledger = Ledger(
        url,
        spool,
        shards=shards,
        ttl_s=ttl_s,
        spool_max_bytes=spool_max_bytes,
        hold_s=hold_s,
        clock=clock,
    )
    await ledger.open()
    try:
        if wait:
            await until(lambda: ledger.connected)
            if confirmed:
                await asyncio.to_thread(confirm_budgets, url, shards)  # url may be a proxy here
        yield ledger
    finally:
        await ledger.close()


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what or "waited in vain"
        await asyncio.sleep(0.005)


def spool_files(folder: Path, suffix: str = "spool") -> list[Path]:
    """The files in a spool directory."""
    return list(folder.glob(f"*.{suffix}"))


async def remember(
    ledger: Ledger,
    auction: bytes,
    *bids: tuple[bytes, int, int],
    ssp: int = 1,
    within_s: float = 10.0,
) -> bool | None:
    """Remember an answer without limits; None if the ledger refused at once."""
    done = remembering(ledger, auction, *bids, ssp=ssp, within_s=within_s)
    return None if done is None else bool(await done)


def remembering(
    ledger: Ledger,
    auction: bytes,
    *bids: tuple[bytes, int, int],
    ssp: int = 1,
    within_s: float = 10.0,
) -> "Pending[str] | None":
    """The same; the result is to be awaited for the verdicts."""
    plain = [(imp, campaign, price, None) for imp, campaign, price in bids]
    return ledger.remember(auction, ssp, plain, None, within_s)


async def settle_all(ledger: Ledger, auction: bytes, imp: bytes, reason: int = 0) -> str:
    """Settle a win, a billing and a loss notice; returns their result letters."""
    return "".join([await ledger.settle(kind, auction, imp, reason) for kind in KINDS])


@contextlib.contextmanager
def looking(url: str) -> Iterator[redis.Redis]:
    """A client for looking at the same Redis."""
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        yield client


def keys(client: redis.Redis, pattern: str = "*") -> list[bytes]:
    return sorted(client.scan_iter(pattern, count=1000))


def segment_of(client: redis.Redis, shard: int = 0) -> str:
    """The segment that a shard counts in."""
    name: Any = client.hget(ShardKeys(shard).state, "segment")
    return str(name.decode())


def counts(client: redis.Redis) -> Counts:
    """All counts of the report that are not 0, over all shards."""
    return _counts(client, lambda field: not field.startswith("n:"))


def anomalies(client: redis.Redis) -> Counts:
    """The counts of anomalies."""
    return _counts(client, lambda field: field.startswith("n:"))


def _counts(client: redis.Redis, wanted: Callable[[str], bool]) -> Counts:
    by_day: dict[str, Counter[str]] = {}
    for key in keys(client, "{sb*}:c:*"):
        of_day = by_day.setdefault(key.decode().rpartition(":")[2], Counter())
        values: Any = client.hgetall(key)
        for field, value in values.items():
            if wanted(field.decode()):
                of_day[field.decode()] += int(value)
    cleaned = {day: {f: n for f, n in of_day.items() if n} for day, of_day in by_day.items()}
    return {day: of_day for day, of_day in cleaned.items() if of_day}


def total(client: redis.Redis, fields: Iterable[str]) -> dict[str, int]:
    """The sums of some fields over all days."""
    days = counts(client).values()
    return {field: sum(of_day.get(field, 0) for of_day in days) for field in fields}


def expected(
    *,
    bids: int = 0,
    wins: int = 0,
    imps: int = 0,
    price: int = 0,
    losses: dict[int, int] | None = None,
    ssp: int = 1,
    campaign: int = 1,
) -> dict[str, int]:
    """The counters of an SSP and its only bidding campaign that are not 0."""
    fields = {
        f"b:{ssp}": bids,
        f"B:{campaign}": bids,
        f"w:{ssp}": wins,
        f"W:{campaign}": wins,
        f"p:{ssp}": wins * price,
        f"P:{campaign}": wins * price,
        f"i:{ssp}": imps,
        f"I:{campaign}": imps,
        **{f"l:{ssp}:{reason}": number for reason, number in (losses or {}).items()},
    }
    return {field: value for field, value in fields.items() if value}


def kill(server: Redis) -> None:
    assert server.process
    server.process.kill()
    server.process.wait()


def sum_of(store: redis.Redis) -> dict[str, int]:
    return {field: value for field, value in total(store, FIELDS).items() if value}


async def settled_once(ledger: Ledger, store: redis.Redis, auctions: list[bytes]) -> None:
    """Fail unless all of these, and nothing else, are remembered and counted."""
    number = len(auctions)
    assert sum_of(store).get("b:1", 0) == number
    letters = await asyncio.gather(*(settle_all(ledger, id, b"1", 1) for id in auctions))
    assert set(letters) <= {"ccc"}
    whole = expected(bids=number, wins=number, imps=number, price=7, losses={1: number})
    assert sum_of(store) == {field: value for field, value in whole.items() if field in FIELDS}
