"""Looks at budgets and caps that hold and count nothing, beside the way of the bids."""

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.ledger.batch import LedgerBid, Verdicts
from snapbid.ledger.keys import ShardKeys
from snapbid.ledger.limits import Limits
from snapbid.ledger.records import BidVerdict, user_digest
from snapbid.ledger.scripts import scripts

_LENGTH: Final = Struct("<H")
BATCH: Final = 1000  # campaigns in one script call


class CampaignSpend(NamedTuple):
    """What a campaign has used, in nano-USD: `used` and `used_today` are spend and holds."""

    used: int
    used_today: int
    held: int
    held_today: int


class Budgets:
    """Asks every shard. `clock` gives epoch seconds; see `scripts` for `simulated`."""

    def __init__(
        self, redis: Redis, shards: int, clock: Callable[[], float], *, simulated: bool = False
    ) -> None:
        self._keys = [ShardKeys(number).script_keys for number in range(shards)]
        self._clock = clock
        texts = scripts(simulated)
        self._look = redis.register_script(texts["look"])
        self._state = redis.register_script(texts["state"])

    async def look(self, shard: int, bids: Iterable[LedgerBid], user: str | None) -> Verdicts:
        """The verdicts on bids if they came now; "" where Redis is away."""
        now_ms = int(self._clock() * 1000)
        packed = b"".join([_packed(bid, user, now_ms // 1000) for bid in bids])
        try:
            letters: Any = await self._look(keys=self._keys[shard], args=[now_ms, packed])
        except (RedisError, OSError):
            return ""
        return str(letters.decode())

    async def has_money(self, bids: Sequence[tuple[int, Limits]]) -> list[bool]:
        """Whether any shard has money for one bid of (price, limits); [] where one is away."""
        wanted = [(b"", limits.campaign, price, limits) for price, limits in bids]
        result = [False] * len(wanted)
        for shard in range(len(self._keys)):
            letters = ""
            for start in range(0, len(wanted), BATCH):
                letters += await self.look(shard, wanted[start : start + BATCH], None)
            if len(letters) != len(wanted):
                return []
            for place, letter in enumerate(letters):
                result[place] |= letter == BidVerdict.KEPT
        return result

    async def states(self, campaigns: Sequence[int]) -> dict[int, CampaignSpend]:
        """What campaigns, by number, have used over all shards. Raises RedisError."""
        now_ms = int(self._clock() * 1000)
        sums = {campaign: [0, 0, 0, 0] for campaign in campaigns}
        for keys in self._keys:
            for start in range(0, len(campaigns), BATCH):
                asked = campaigns[start : start + BATCH]
                rows: Any = await self._state(keys=keys, args=[now_ms, *asked])
                for campaign, (used, today, holds) in zip(asked, rows, strict=True):
                    amounts = [int(amount) for amount in holds[1::2]]
                    is_today = holds[::2]
                    total = sums[campaign]
                    total[0] += int(used)
                    total[1] += int(today)
                    total[2] += sum(amounts)
                    total[3] += sum(
                        amount for flag, amount in zip(is_today, amounts, strict=True) if flag
                    )
        return {campaign: CampaignSpend(*total) for campaign, total in sums.items()}


def _packed(bid: LedgerBid, user: str | None, now: int) -> bytes:
    _, _, price, limits = bid
    digits, packed, digest = b"%d" % price, b"", b""
    if limits is not None:
        packed = limits.at(now)
        if limits.longest_s and user is not None:
            digest = user_digest(user)
    parts = (bytes((len(digits),)), digits, bytes((len(digest),)), digest)
    return b"".join((*parts, _LENGTH.pack(len(packed)), packed))
