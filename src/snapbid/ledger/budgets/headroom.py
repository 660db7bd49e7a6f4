"""Read the shards' refill requests, and releases of refused campaigns (releases.lua)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.scripts import script

KEPT: Final = 100_000  # releases that a shard keeps (headroom.lua)


class Headroom(NamedTuple):
    """A shard's campaigns that request a refill (`refills`), or have headroom again (`released`).

    `is_behind`: whether any campaign at all may have headroom again, because releases were missed,
    the shard lost its data, or budgets were restored. `at`: the shard's time (epoch s).
    """

    refills: list[int]
    released: list[int]
    is_behind: bool
    at: float


class _Last(NamedTuple):
    """The run and number of the last release read, and whether budgets were restored by then."""

    segment: str = ""
    release: int = 0
    is_confirmed: bool = False


class HeadroomReader:
    """A reader of every shard's refill requests and new releases. `clock` returns epoch seconds."""

    def __init__(
        self, redis: Redis, shards: int, clock: Callable[[], float], *, simulated: bool = False
    ) -> None:
        self._clock = clock
        self._keys = [ShardKeys(number).script_keys for number in range(shards)]
        self._script = redis.register_script(script("releases", simulated, shards))
        self._last = [_Last()] * shards

    async def read(self, shard: int) -> Headroom:
        """Read a shard's refill requests and new releases. Raises RedisError or OSError."""
        before = self._last[shard]
        arguments: list[str | int] = [int(self._clock() * 1000), before.segment, before.release]
        segment, release, refills, released, confirmed, at_ms = await self._script(
            keys=self._keys[shard], args=arguments
        )
        last = self._last[shard] = _Last(segment.decode(), int(release), bool(confirmed))
        is_behind = (
            last.segment != before.segment
            or last.release - before.release > KEPT
            or last.is_confirmed != before.is_confirmed
        )
        return Headroom(
            list(map(int, refills)), list(map(int, released)), is_behind, int(at_ms) / 1000
        )
