"""Looks at budgets and caps that hold and count nothing, beside the way of the bids."""

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.ledger.keys import ShardKeys
from snapbid.ledger.limits import Limits
from snapbid.ledger.records import Reserved
from snapbid.ledger.shard import scripts

_LENGTH: Final = Struct("<H")
BATCH: Final = 1000  # campaigns in one script call


class State(NamedTuple):
    """What a campaign has used, in nano-USD: `used` and `used_today` are spend and holds."""

    used: int
    used_today: int
    held: int
    held_today: int


class Budgets:
    """Asks every shard. `clock` gives epoch seconds, `hold_s` is how long money is held."""

    def __init__(self, redis: Redis, shards: int, hold_s: int, clock: Callable[[], float]) -> None:
        self._keys = [ShardKeys(number).epoch for number in range(shards)]
        self._hold_s = hold_s
        self._clock = clock
        texts = scripts()
        self._look = redis.register_script(texts["look"])
        self._state = redis.register_script(texts["state"])

    async def look(self, shard: int, bids: Iterable[Reserved]) -> str:
        """remember.lua's letters if the bids came now; "" where Redis is away."""
        now_ms = int(self._clock() * 1000)
        packed = b"".join([_packed(bid, now_ms // 1000) for bid in bids])
        try:
            letters: Any = await self._look(
                keys=[self._keys[shard]], args=[now_ms, self._hold_s, packed]
            )
        except (RedisError, OSError):
            return ""
        return str(letters.decode())

    async def room(self, wanted: Sequence[tuple[int, Limits]]) -> list[bool]:
        """Whether any shard has money for one bid of (price, limits); nothing where one is away."""
        bids = [Reserved(b"", limits.campaign, price, limits, b"") for price, limits in wanted]
        found = [False] * len(bids)
        for shard in range(len(self._keys)):
            letters = ""
            for start in range(0, len(bids), BATCH):
                letters += await self.look(shard, bids[start : start + BATCH])
            if len(letters) != len(bids):
                return []
            found = [known or letter == "k" for known, letter in zip(found, letters, strict=True)]
        return found

    async def states(self, campaigns: Sequence[int]) -> dict[int, State]:
        """What campaigns, by number, have used over all shards. Raises RedisError."""
        now = int(self._clock())
        sums = {campaign: [0, 0, 0, 0] for campaign in campaigns}
        for key in self._keys:
            for start in range(0, len(campaigns), BATCH):
                some = campaigns[start : start + BATCH]
                rows: Any = await self._state(keys=[key], args=[now, self._hold_s, *some])
                for campaign, (used, today, held) in zip(some, rows, strict=True):
                    of = sums[campaign]
                    of[0] += int(used)
                    of[1] += int(today)
                    of[2] += sum(map(int, held[1::2]))
                    of[3] += sum(map(int, (amount for flag, amount in _pairs(held) if flag)))
        return {campaign: State(*of) for campaign, of in sums.items()}


def _pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _packed(bid: Reserved, now: int) -> bytes:
    price, limits, user = b"%d" % bid.price_micros, bid.limits, bid.user
    packed = limits.at(now) if limits is not None else b""
    parts = (bytes((len(price),)), price, bytes((len(user),)), user)
    return b"".join((*parts, _LENGTH.pack(len(packed)), packed))
