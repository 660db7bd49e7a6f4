"""What shards have of budgets, and of word for each other, looked at in Redis itself."""

import itertools
import json
from collections.abc import Collection, Iterator
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
        budgeted = {
            name: number
            for name, number in sorted(self._trade.catalog.campaigns.items())
            if (self._trade.campaigns[name].daily, self._trade.campaigns[name].total)
            != (None, None)
        }
        for name, (account, allowances) in zip(
            budgeted, self._read(budgeted.values()), strict=True
        ):
            campaign = self._trade.campaigns[name]
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

    def _read(self, numbers: Collection[int]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        """Campaigns' accounts by period, and what each shard was granted, as hashes."""
        pipe = self._redis.client.pipeline(transaction=False)
        for number in numbers:
            pipe.get(f"{self._keys[number % len(self._keys)].prefix}account:{number}")
            for keys in self._keys:
                pipe.hgetall(keys.grants(number))
        answers = iter(pipe.execute())
        for _ in numbers:
            state, *allowances = itertools.islice(answers, 1 + len(self._keys))
            yield json.loads(state)[1] if state else {}, allowances
