"""What shards say of budgets in escrow: who needs money, who has room again (calls.lua)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from redis.asyncio import Redis

from snapbid.ledger.keys import ShardKeys
from snapbid.ledger.scripts import scripts

KEPT: Final = 100_000  # announcements that a shard keeps (escrow.lua)


class Heard(NamedTuple):
    """Campaigns of a shard: those whose purse calls for money, and those that had room again.

    `is_behind`: others had, too, of which it does not know any longer. `at`: its time (epoch s).
    """

    calls: list[int]
    room: list[int]
    is_behind: bool
    at: float


class PurseCalls:
    """Hears every shard's announcements from now on. `clock` gives epoch seconds."""

    def __init__(
        self, redis: Redis, shards: int, clock: Callable[[], float], *, simulated: bool = False
    ) -> None:
        self._clock = clock
        self._keys = [ShardKeys(number).script_keys for number in range(shards)]
        self._hear = redis.register_script(scripts(simulated, shards)["calls"])
        self._heard: list[tuple[str, int]] = [("", 0)] * shards  # segment, number of the last

    async def hear(self, shard: int) -> Heard:
        """What is new. Raises RedisError or OSError."""
        before, last = self._heard[shard]
        arguments: list[str | int] = [int(self._clock() * 1000), before, last]
        segment, said, calls, room, at_ms = await self._hear(keys=self._keys[shard], args=arguments)
        self._heard[shard] = segment.decode(), int(said)
        is_behind = segment.decode() == before and int(said) - last > KEPT
        return Heard(list(map(int, calls)), list(map(int, room)), is_behind, int(at_ms) / 1000)
