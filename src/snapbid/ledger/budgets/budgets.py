"""Read budgets and caps without holding or counting anything, off the bid path."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.redis_keys import ShardKeys, shard_of
from snapbid.ledger.admin.parts import all_of, of_each
from snapbid.ledger.bids.records import BidVerdict, LedgerBid, Verdicts, user_digest, user_shard
from snapbid.ledger.scripts import script

_LENGTH: Final = Struct("<H")
BATCH: Final = 200  # campaigns in one script call, which takes Redis some 2 ms


class CampaignSpend(NamedTuple):
    """A campaign's spend and holds, in nano-USD; `used` and `used_today` include holds."""

    used: int
    used_today: int
    held: int
    held_today: int


NOTHING: Final = CampaignSpend(0, 0, 0, 0)


class Budgets:
    """A reader of budgets in all shards.

    `clock` returns epoch seconds; if `simulated`, it replaces the clock of Redis.
    """

    def __init__(
        self, redis: Redis, shards: int, clock: Callable[[], float], *, simulated: bool = False
    ) -> None:
        self._redis = redis
        self._keys = [ShardKeys(number).script_keys for number in range(shards)]
        self._clock = clock
        self._look = redis.register_script(script("look", simulated, shards))
        self._state = redis.register_script(script("state", simulated, shards))

    async def look(self, shard: int, bids: Iterable[LedgerBid], user: str | None) -> Verdicts:
        """Return the verdicts that bids would get from a shard now.

        The result is empty if Redis is unavailable.
        """
        now = int(self._clock())
        return await self._ask(shard, [_packed(bid, user, now) for bid in bids])

    async def verdicts(
        self, auction_id: bytes, bids: Sequence[LedgerBid], user: str | None
    ) -> Verdicts:
        """Return the verdicts that an auction's bids would get now; "" if Redis is unavailable.

        With several shards, caps are checked in the user's shard.
        """
        shards = len(self._keys)
        shard = shard_of(auction_id, shards)
        if shards == 1 or user is None:
            return await self.look(shard, bids, user)
        letters = await self.look(shard, bids, None)
        limited = [(at, of) for at, (*_, of) in enumerate(bids) if of is not None and of.longest_s]
        if not letters or not limited:
            return letters
        digest = user_digest(user)
        packed = [_entry(b"", digest, of.caps_alone) for _, of in limited]
        caps = await self._ask(user_shard(digest, shards), packed)
        merged = list(letters)
        for number, (at, _) in enumerate(limited):
            cap = caps[number] if caps else BidVerdict.CAPS_UNAVAILABLE
            if cap != BidVerdict.KEPT:
                merged[at] = cap
        return "".join(merged)

    async def _ask(self, shard: int, packed: Sequence[bytes]) -> Verdicts:
        now_ms = int(self._clock() * 1000)
        try:
            letters: Any = await self._look(keys=self._keys[shard], args=[now_ms, b"".join(packed)])
        except (RedisError, OSError):
            return ""
        return str(letters.decode())

    async def states(self, campaigns: Sequence[int]) -> dict[int, CampaignSpend]:
        """Fetch the spend and holds of campaigns over all shards, by campaign number.

        Raises RedisError or OSError.
        """
        return summed(campaigns, all_of(await self.states_of_each(campaigns)))

    async def states_of_each(
        self, campaigns: Sequence[int], batch_size: int = BATCH
    ) -> list[Mapping[int, CampaignSpend] | None]:
        """Fetch the spend and holds of campaigns in each shard; None for an unavailable shard.

        `batch_size`: campaigns per script call. Raises RedisError or OSError if no shard answers.
        """

        async def ask(shard: int) -> Mapping[int, CampaignSpend]:
            states: dict[int, CampaignSpend] = {}
            for start in range(0, len(campaigns), batch_size):
                states |= await self._states(shard, campaigns[start : start + batch_size])
            return states

        return await of_each(len(self._keys), ask)

    async def grants(
        self, shard: int, campaigns: Iterable[int], day: int
    ) -> dict[int, tuple[int, int]]:
        """Map each campaign to the nano-USD granted to a shard: (in total, on `day`).

        `day` counts from 1970-01-01. Raises RedisError or OSError.
        """
        wanted = list(campaigns)
        async with self._redis.pipeline(transaction=False) as pipe:
            for campaign in wanted:
                pipe.hmget(ShardKeys(shard).grants(campaign), ["lt", f"l{day}"])
            rows: Any = await pipe.execute()
        return {
            campaign: (int(total or 0), int(today or 0))
            for campaign, (total, today) in zip(wanted, rows, strict=True)
        }

    async def _states(self, shard: int, campaigns: Sequence[int]) -> dict[int, CampaignSpend]:
        now_ms = int(self._clock() * 1000)
        rows: Any = await self._state(keys=self._keys[shard], args=[now_ms, *campaigns])
        states = {}
        for campaign, (used, today, holds) in zip(campaigns, rows, strict=True):
            amounts = [int(amount) for amount in holds[1::2]]
            of_today = (n for is_today, n in zip(holds[::2], amounts, strict=True) if is_today)
            states[campaign] = CampaignSpend(int(used), int(today), sum(amounts), sum(of_today))
        return states


def summed(
    campaigns: Iterable[int], shards: Sequence[Mapping[int, CampaignSpend]]
) -> dict[int, CampaignSpend]:
    """Sum up the spend and holds of campaigns over all shards."""
    sums = {}
    for campaign in campaigns:
        states = [shard.get(campaign, NOTHING) for shard in shards]
        sums[campaign] = CampaignSpend(*map(sum, zip(*states, strict=True))) if states else NOTHING
    return sums


def _packed(bid: LedgerBid, user: str | None, now: int) -> bytes:
    _, _, price, limits = bid
    packed, digest = b"", b""
    if limits is not None:
        packed = limits.at(now)
        if limits.longest_s and user is not None:
            digest = user_digest(user)
    return _entry(b"%d" % price, digest, packed)


def _entry(digits: bytes, digest: bytes, packed: bytes) -> bytes:
    parts = (bytes((len(digits),)), digits, bytes((len(digest),)), digest)
    return b"".join((*parts, _LENGTH.pack(len(packed)), packed))
