"""Read the shards' refill requests and announcements of headroom (calls.lua)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.scripts import scripts

KEPT: Final = 100_000  # announcements that a shard keeps (room.lua)


class Heard(NamedTuple):
    """A shard's campaigns with refill requests (`calls`), and with headroom again (`room`).

    `is_behind`: any campaign may have headroom: announcements were missed, the shard lost its
    data, or budgets have been restored since. `at`: the shard's time (epoch s).
    """

    calls: list[int]
    room: list[int]
    is_behind: bool
    at: float


class _Last(NamedTuple):
    """The segment and announcement read last, and whether budgets were restored by then."""

    segment: str = ""
    announced: int = 0
    is_confirmed: bool = False


class RefillRequests:
    """Reader of every shard's requests and announcements from now on. `clock`: epoch seconds."""

    def __init__(
        self, redis: Redis, shards: int, clock: Callable[[], float], *, simulated: bool = False
    ) -> None:
        self._clock = clock
        self._keys = [ShardKeys(number).script_keys for number in range(shards)]
        self._read = redis.register_script(scripts(simulated, shards)["calls"])
        self._last = [_Last()] * shards

    async def hear(self, shard: int) -> Heard:
        """Read what is new in a shard. Raises RedisError or OSError."""
        before = self._last[shard]
        arguments: list[str | int] = [int(self._clock() * 1000), before.segment, before.announced]
        segment, announced, calls, room, confirmed, at_ms = await self._read(
            keys=self._keys[shard], args=arguments
        )
        last = self._last[shard] = _Last(segment.decode(), int(announced), bool(confirmed))
        is_behind = (
            last.segment != before.segment
            or last.announced - before.announced > KEPT
            or last.is_confirmed != before.is_confirmed
        )
        return Heard(list(map(int, calls)), list(map(int, room)), is_behind, int(at_ms) / 1000)
