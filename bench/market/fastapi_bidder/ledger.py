"""Bids and wins in Redis: one pipeline for each bid, one script call for each win."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from redis.asyncio import Redis

from bench.market.fastapi_bidder.decide import Choice

TTL_S = 7200

# A bid is "SSP CAMPAIGN PRICE DAY", and " won" once it is: mark it, and count it on its day.
_WIN = """
local bid = redis.call('GET', KEYS[1])
if not bid then return 'unknown' end
local ssp, campaign, price, day, won = bid:match('(%S+) (%S+) (%S+) (%S+)(.*)')
if won ~= '' then return 'duplicate' end
redis.call('SET', KEYS[1], bid .. ' won', 'KEEPTTL')
local counters = 'peer:counters:' .. day
redis.call('HINCRBY', counters, 'wins:' .. ssp, 1)
redis.call('HINCRBY', counters, 'win_cpm:' .. ssp, price)
redis.call('HINCRBY', counters, 'campaign_wins:' .. campaign, 1)
redis.call('HINCRBY', counters, 'campaign_spend:' .. campaign, price)
return 'counted'
"""


class Ledger:
    """The bids and wins that are remembered."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._win = redis.register_script(_WIN)

    async def remember(self, auction: str, ssp: str, choices: Sequence[Choice]) -> None:
        """Remember bids; return once Redis has them. Later bids on the auction replace them."""
        day = datetime.fromtimestamp(time.time(), UTC).date().isoformat()
        counters = f"peer:counters:{day}"
        async with self._redis.pipeline(transaction=False) as pipe:
            for one in choices:
                bid = f"{ssp} {one.campaign.id} {one.campaign.cpm_micros} {day}"
                pipe.set(f"peer:bid:{auction}:{one.imp.id}", bid, ex=TTL_S)
                pipe.hincrby(counters, f"campaign_bids:{one.campaign.id}", 1)
            pipe.hincrby(counters, f"bids:{ssp}", 1)
            await pipe.execute()

    async def win(self, auction: str, imp: str) -> str:
        """Count a win, but only once."""
        return await self._win(keys=[f"peer:bid:{auction}:{imp}"])
