"""Counts as the ledger leaves them in Redis, and the rows they must become in the warehouse."""

import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import asyncpg
from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.bids.segment import ShardState
from snapbid.ledger.scripts import script

Tables = dict[str, dict[tuple[Any, ...], tuple[int, ...]]]

SSPS = {"acme": "acme", "acme-eu": "acme", "acme-video": "acme", "nova": "nova"}  # numbers 1 to 4
CAMPAIGNS = ("c-1", "c-2", "c-3")  # numbers 1 to 3
_COLUMN = {"b": 0, "w": 1, "p": 2, "B": 0, "W": 1, "I": 2, "P": 3}


async def register(connection: asyncpg.Connection) -> None:
    """Add SSPS and CAMPAIGNS to an empty warehouse, numbered from 1."""
    for number, (descriptor, canonical) in enumerate(SSPS.items(), start=1):
        await connection.execute(
            "insert into ssp_number values ($1, $2, $3)", number, descriptor, canonical
        )
        await connection.execute("insert into ssp values ($1, $2)", descriptor, canonical)
    for number, campaign in enumerate(CAMPAIGNS, start=1):
        await connection.execute("insert into campaign_number values ($1, $2)", number, campaign)
        await connection.execute(
            "insert into campaign (id, document) values ($1, jsonb_build_object('id', $1::text))",
            campaign,
        )


class Ledger:
    """Counts, and remembers the counts."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self._begin = redis.register_script(script("begin"))
        self._sums: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._shards = {0}

    async def count(self, day: str, fields: Mapping[str, int], shard: int = 0) -> None:
        """Add to the counters of a day atomically, as the ledger's scripts do."""
        await self.change(day, fields, shard)
        for field, more in fields.items():
            self._sums[day, field] += more

    async def change(self, day: str, fields: Mapping[str, int], shard: int = 0) -> None:
        """As `count`, for counters that the warehouse must not have."""
        key = await self.key(day, shard)
        async with self.redis.pipeline() as pipe:
            for field, more in fields.items():
                pipe.hincrby(key, field, more)
            await pipe.execute()
        await self.name(day, *fields, shard=shard)

    async def name(self, day: str, *fields: str, shard: int = 0) -> None:
        """Mark counters as changed."""
        self._shards.add(shard)
        segment = await self.segment(shard)
        names = [f"{segment} {day} {field}" for field in fields]
        await self.redis.sadd(ShardKeys(shard).changed, *names)

    async def segment(self, shard: int = 0) -> str:
        """The current segment."""
        return ShardState.parse(await self._begin(keys=[ShardKeys(shard).epoch])).segment

    async def key(self, day: str, shard: int = 0) -> str:
        """The key of a day's counters."""
        return ShardKeys(shard).counters(await self.segment(shard), day)

    async def lose(self) -> None:
        """Lose the data set; what was counted and drained stays counted."""
        await self.redis.flushall()

    async def undrained(self) -> bool:
        keys = [key for n in self._shards for key in (ShardKeys(n).changed, ShardKeys(n).taken)]
        return bool(await self.redis.exists(*keys))

    def tables(self) -> Tables:
        """The rows that the warehouse must have."""
        names = list(SSPS)
        rows: dict[str, defaultdict[tuple[Any, ...], list[int]]] = {
            "bid_daily": defaultdict(lambda: [0] * 3),
            "impression_daily": defaultdict(lambda: [0]),
            "loss_daily": defaultdict(lambda: [0]),
            "campaign_daily": defaultdict(lambda: [0] * 4),
        }
        for (day, field), value in self._sums.items():
            kind, number, *reason = field.split(":")
            of = int(number) - 1
            if kind == "i":
                rows["impression_daily"][day, SSPS[names[of]]][0] += value
            elif kind == "l":
                rows["loss_daily"][day, names[of], int(reason[0])][0] += value
            elif kind in "bwp":
                rows["bid_daily"][day, names[of]][_COLUMN[kind]] += value
            else:
                rows["campaign_daily"][day, CAMPAIGNS[of]][_COLUMN[kind]] += value
        return {
            table: {key: tuple(values) for key, values in counts.items()}
            for table, counts in rows.items()
        }


async def counted(connection: asyncpg.Connection) -> Tables:
    """The rows that the warehouse has."""
    columns = {
        "bid_daily": ("descriptor", ["bids", "wins", "win_cpm_micros"]),
        "impression_daily": ("ssp", ["imps"]),
        "loss_daily": ("descriptor, reason", ["losses"]),
        "campaign_daily": ("campaign", ["bids", "wins", "imps", "win_cpm_micros"]),
    }
    tables: Tables = {}
    for table, (key, values) in columns.items():
        rows = await connection.fetch(
            f"select day::text, {key}, {', '.join(values)} from {table} where counted"
        )
        tables[table] = {tuple(row)[: -len(values)]: tuple(row)[-len(values) :] for row in rows}
    return tables


def some_counts(choose: random.Random) -> dict[str, int]:
    """Random counts of a few requests and notices."""
    ssp, campaign = choose.randint(1, len(SSPS)), choose.randint(1, len(CAMPAIGNS))
    price = choose.randint(1, 50_000_000)
    return choose.choice(
        [
            {f"b:{ssp}": choose.randint(1, 9), f"B:{campaign}": choose.randint(1, 9)},
            {f"w:{ssp}": 1, f"p:{ssp}": price, f"W:{campaign}": 1, f"P:{campaign}": price},
            {f"i:{ssp}": 1, f"I:{campaign}": 1},
            {f"l:{ssp}:{choose.choice((-1, 0, 1, 102))}": 1},
        ]
    )
