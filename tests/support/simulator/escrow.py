"""What shards have of budgets, and of word for each other, looked at in Redis itself."""

import json
from typing import Any

from snapbid.base.redis_keys import ShardKeys
from support.simulator.allocators import Trade
from support.simulator.servers import RedisServer


class Escrow:
    """The books of escrow, for several shards."""

    def __init__(self, redis: RedisServer, trade: Trade) -> None:
        self._redis = redis
        self._trade = trade
        self._keys = [ShardKeys(number) for number in range(trade.shards)]

    def exceeded(self) -> list[str]:
        """Budgets of which shards were granted more than there is, or may use more than that."""
        found = []
        for name, number in sorted(self._trade.catalog.campaigns.items()):
            campaign = self._trade.campaigns[name]
            if (campaign.daily, campaign.total) == (None, None):
                continue
            account, allowances = self._read(number)
            for period, entries in account.items():
                limit = campaign.total if period == "t" else campaign.daily
                granted = sum(granted - returned for granted, returned, _ in entries)
                allowed = sum(
                    int(allowance.get(b"g" + period.encode(), 0))
                    - int(allowance.get(b"r" + period.encode(), 0))
                    for allowance in allowances
                )
                if limit is None or max(granted, allowed) > limit * 1000:
                    found.append(
                        f"escrow of {name}, period {period}: its account says that {granted}"
                        f" nano-USD are granted, and {allowed} by allowances, of {limit} micro-USD"
                    )
        return found

    def undelivered(self) -> int:
        """Entries in outboxes."""
        pipe = self._redis.client.pipeline(transaction=False)
        for keys in self._keys:
            for shard in range(len(self._keys)):
                pipe.scard(f"{keys.prefix}o:{shard}")
        return sum(pipe.execute())

    def _read(self, number: int) -> tuple[dict[str, Any], list[dict[bytes, bytes]]]:
        """A campaign's accounts by period, and what each shard was granted."""
        pipe = self._redis.client.pipeline(transaction=False)
        pipe.get(f"{self._keys[number % len(self._keys)].prefix}account:{number}")
        for keys in self._keys:
            pipe.hgetall(keys.grants(number))
        state, *allowances = pipe.execute()
        return json.loads(state)[1] if state else {}, allowances
