"""Budgets on a ledger without a drain."""

from contextlib import closing
from typing import Any

import redis

from snapbid.ledger.keys import ShardKeys
from snapbid.ledger.segment import segment_script


def confirm_budgets(redis_url: str, shards: int = 1) -> None:
    """Let budgeted campaigns bid, as the drain does once it knows that nothing was lost."""
    with closing(redis.Redis.from_url(redis_url)) as client:
        for number in range(shards):
            keys = ShardKeys(number)
            reply: Any = client.eval(segment_script("begin"), 1, keys.epoch)
            client.hset(keys.state, mapping={"confirmed": reply[1], "carried": 1})
