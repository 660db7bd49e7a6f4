"""The ledger's clock, which follows the clock of Redis, since machines must agree on the time."""

from collections.abc import Callable
from time import monotonic, time
from typing import Any, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.scripts import script


class OwnClock(NamedTuple):
    """How far this machine's clock is ahead of another (s), to within `doubt_s`."""

    ahead_s: float
    doubt_s: float

    @classmethod
    def compared(cls, asked: float, other: float, answered: float) -> "OwnClock":
        """Compare this machine's clock with another.

        The other clock read `other` at a time between `asked` and `answered` (epoch s).
        """
        return cls((asked + answered) / 2 - other, abs(answered - asked) / 2)


async def compare(redis: Redis, shard: int) -> OwnClock:
    """Compare this machine's clock with that of a shard's Redis. Raises RedisError or OSError."""
    asked = time()
    reply: Any = await redis.eval(script("time"), 1, ShardKeys(shard).epoch)
    return OwnClock.compared(asked, int(reply[0]) + int(reply[1]) / 1_000_000, time())


class LedgerClock:
    """Epoch milliseconds by the clock of Redis, extrapolated with this machine's monotonic clock.

    Until the clock of Redis is first read, this machine's is used. `simulated`, if given, returns
    epoch seconds and replaces both. `run`: when the last known run of Redis began, as epoch seconds
    and the milliseconds beyond them; zeros before the first connection.
    """

    def __init__(self, simulated: Callable[[], float] | None = None) -> None:
        self._simulated = simulated
        self._own_ahead_s = self._ahead_s = time() - monotonic()
        self._known = simulated is not None
        self.run = (0, 0)
        self._last: tuple[float, tuple[int, int]] = (-1.0, (0, 0))

    @property
    def is_known(self) -> bool:
        """Whether the clock of Redis has been read, or the time is simulated."""
        return self._known

    @property
    def behind_ms(self) -> int:
        """How far this machine's clock is behind that of Redis (ms)."""
        return 0 if self._simulated else round((self._ahead_s - self._own_ahead_s) * 1000)

    def now(self, loop_s: float) -> tuple[int, int]:
        """Convert event loop time to epoch time, as whole seconds and remaining milliseconds."""
        if self._last[0] == loop_s and self._simulated is None:  # loop time advances in ms
            return self._last[1]
        now = divmod(self.now_ms(loop_s), 1000)
        self._last = (loop_s, now)
        return now

    def now_ms(self, loop_s: float) -> int:
        """Convert event loop time to epoch ms."""
        if self._simulated is not None:
            return int(self._simulated() * 1000)
        return int((loop_s + self._ahead_s) * 1000)

    def adjust(self, server_ms: int, asked_s: float, answered_s: float) -> None:
        """Adjust to a reading of Redis' clock, made between `asked_s` and `answered_s` (loop time).

        The offset changes only if it lies outside the interval that the reading allows, so a slow
        reading, as on a busy machine, never spoils a faster one. Precision matters: the order of a
        bid and its notice depends on two workers' estimates of the time of Redis.
        """
        least, most = server_ms / 1000 - answered_s, (server_ms + 1) / 1000 - asked_s
        if not self._known or not least <= self._ahead_s <= most:
            self._ahead_s = (least + most) / 2
            self._known = True
            self._last = (-1.0, (0, 0))
