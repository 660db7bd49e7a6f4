"""Store the self-audit's report in the ledger, and look up bids for the audit (contract 11)."""

from collections.abc import Sequence
from time import time
from typing import Any, Final, NamedTuple

import msgspec
from redis.asyncio import Redis

from snapbid.base.redis_keys import AUDIT, ShardKeys
from snapbid.ledger.bids.records import bid_digest, family_of
from snapbid.ledger.scripts import script

SHOWN: Final = 20  # differences reported with their figures
STALE_S: Final = 300.0  # without a complete audit
NO_RECORD: Final = -1
COMPARISONS: Final = {  # by name, the sources of the first and the second figure
    "counters": ("the ledger", "the warehouse"),
    "reports": ("the absorbed counters", "the report tables"),
    "campaigns": ("the sum over SSPs", "the sum over campaigns"),
    "budgets": ("the ledger", "the warehouse"),
    "holds": ("open bids", "the budget"),
    "grants": ("the allowances", "the account"),
    "outboxes": ("the count of undelivered entries", "the outbox"),
    "heartbeats": ("a process", "the promoted replica"),
    "events": ("the ledger's count", "the warehouse"),
    "conversions": ("conversion_daily", "the stored events"),
    "auctions": ("the auction log", "the reports"),
}


class Difference(msgspec.Struct, frozen=True):
    """Two figures that should match, but differ.

    `comparison`: a key of COMPARISONS; `what`: the compared figure, as named for operators.
    """

    comparison: str
    what: str
    first: int
    second: int

    @property
    def sides(self) -> tuple[str, str]:
        """The sources of the first and the second figure, as named in log lines."""
        return COMPARISONS.get(self.comparison, ("one", "the other"))  # of a newer program


class AuditReport(msgspec.Struct, frozen=True):
    """A completed audit; `at` is its time by the clock of Redis (epoch s).

    `counts` maps each comparison to its number of differences; `shown`: the first SHOWN
    differences.
    """

    at: float
    counts: dict[str, int]
    shown: list[Difference]


async def write_audit(redis: Redis, report: AuditReport) -> None:
    """Replace the stored report of the last audit. Raises RedisError."""
    await redis.set(AUDIT, msgspec.json.encode(report))


async def fetch_audit(redis: Redis) -> AuditReport | None:
    """Fetch the last report; None if there is none yet. Raises RedisError."""
    text: Any = await redis.get(AUDIT)
    return None if text is None else msgspec.json.decode(text, type=AuditReport)


class LoggedBid(NamedTuple):
    """A bid in the auction log; `ssp`: the canonical id of its SSP, None if unknown."""

    ssp: str | None
    auction_id: str
    imp_id: str

    def digests(self) -> bytes:
        """Return the bid's digests as an unsigned and as a signed bid, concatenated."""
        auction, imp = self.auction_id.encode(), self.imp_id.encode()
        family = b"" if self.ssp is None else family_of(self.ssp)
        return bid_digest(auction, imp) + bid_digest(family + auction, imp)


class RecordedBids:
    """Looks up bids in every shard of a ledger, since a move may put a bid into any of them."""

    def __init__(self, redis: Redis, shards: int) -> None:
        self._keys = [ShardKeys(number).script_keys for number in range(shards)]
        self._kinds = redis.register_script(script("kinds", shards=shards))

    async def fetch_kinds(self, bids: Sequence[LoggedBid]) -> list[int]:
        """Fetch the kinds of notices counted for each bid, as a sum of WIN, BILLING and LOSS.

        NO_RECORD stands for a bid that is not in the ledger. Raises RedisError or OSError.
        """
        digests = b"".join([bid.digests() for bid in bids])
        args: list[int | bytes] = [int(time() * 1000), digests]
        found: Any = [await self._kinds(keys=keys, args=args) for keys in self._keys]
        kinds = [max(of_shards) for of_shards in zip(*found, strict=True)]
        return [max(pair) for pair in zip(kinds[::2], kinds[1::2], strict=True)]
