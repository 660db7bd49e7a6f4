"""What shards say of budgets: who needs money, who has room again (calls.lua)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.scripts import scripts

KEPT: Final = 100_000  # announcements that a shard keeps (room.lua)


class Heard(NamedTuple):
    """Campaigns of a shard: those whose allowance calls for money, and those that had room again.

    `is_behind`: any may have room: it is not known which had, the shard has lost what it knew, or
    budgets have been confirmed since. `at`: its time (epoch s).
    """

    calls: list[int]
    room: list[int]
    is_behind: bool
    at: float


class _Last(NamedTuple):
    """The segment and the announcement that were heard last; whether budgets were confirmed."""

    segment: str = ""
    said: int = 0
    is_confirmed: bool = False


class RefillRequests:
    """Hears every shard's announcements from now on. `clock` gives epoch seconds."""

    def __init__(
        self, redis: Redis, shards: int, clock: Callable[[], float], *, simulated: bool = False
    ) -> None:
        self._clock = clock
        self._keys = [ShardKeys(number).script_keys for number in range(shards)]
        self._hear = redis.register_script(scripts(simulated, shards)["calls"])
        self._last = [_Last()] * shards

    async def hear(self, shard: int) -> Heard:
        """What is new. Raises RedisError or OSError."""
        before = self._last[shard]
        arguments: list[str | int] = [int(self._clock() * 1000), before.segment, before.said]
        segment, said, calls, room, confirmed, at_ms = await self._hear(
            keys=self._keys[shard], args=arguments
        )
        last = self._last[shard] = _Last(segment.decode(), int(said), bool(confirmed))
        is_behind = (
            last.segment != before.segment
            or last.said - before.said > KEPT
            or last.is_confirmed != before.is_confirmed
        )
        return Heard(list(map(int, calls)), list(map(int, room)), is_behind, int(at_ms) / 1000)
