"""The ledger's time: that of Redis, so that machines whose clocks differ agree."""

from collections.abc import Callable
from time import monotonic, time
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys

_TIME: Final = "return redis.call('TIME')"


class OwnClock(NamedTuple):
    """By how much this machine's clock is ahead of another one, give or take `doubt_s`."""

    ahead_s: float
    doubt_s: float

    @classmethod
    def compared(cls, asked: float, other: float, answered: float) -> "OwnClock":
        """Compare with a time that was told between two own times (epoch s)."""
        return cls((asked + answered) / 2 - other, abs(answered - asked) / 2)


async def compare(redis: Redis, shard: int) -> OwnClock:
    """Compare this machine's clock with that of a shard's Redis. Raises RedisError or OSError."""
    asked = time()
    reply: Any = await redis.eval(_TIME, 1, ShardKeys(shard).epoch)
    return OwnClock.compared(asked, int(reply[0]) + int(reply[1]) / 1_000_000, time())


class LedgerClock:
    """Epoch milliseconds by the clock of Redis, carried on by the monotonic clock of this machine.

    Until Redis was asked for the first time it is this machine's time. `simulated` gives epoch
    seconds, and is the time then. `run`: when the run of Redis began that was reached last (epoch
    s, ms), zeros before one was.
    """

    def __init__(self, simulated: Callable[[], float] | None = None) -> None:
        self._simulated = simulated
        self._own_ahead_s = self._ahead_s = time() - monotonic()
        self._known = simulated is not None
        self.run = (0, 0)
        self._last: tuple[float, tuple[int, int]] = (-1.0, (0, 0))

    @property
    def is_known(self) -> bool:
        """Whether the time is that of Redis."""
        return self._known

    @property
    def behind_ms(self) -> int:
        """By how much the clock of this machine is behind that of Redis."""
        return 0 if self._simulated else round((self._ahead_s - self._own_ahead_s) * 1000)

    def now(self, loop_s: float) -> tuple[int, int]:
        """The time at a time of the event loop, in epoch s and ms."""
        if self._last[0] == loop_s and self._simulated is None:  # which stands for a millisecond
            return self._last[1]
        now = divmod(self.now_ms(loop_s), 1000)
        self._last = (loop_s, now)
        return now

    def now_ms(self, loop_s: float) -> int:
        """The time at a time of the event loop."""
        if self._simulated is not None:
            return int(self._simulated() * 1000)
        return int((loop_s + self._ahead_s) * 1000)

    def adjust(self, server_ms: int, asked_s: float, answered_s: float) -> None:
        """Redis told its time between two times of the event loop.

        That corrects what it contradicts, so that readings which took long, on a busy machine say,
        spoil none that took less: what two workers take for the time of Redis tells which of a bid
        and a notice came first.
        """
        least, most = server_ms / 1000 - answered_s, (server_ms + 1) / 1000 - asked_s
        if not self._known or not least <= self._ahead_s <= most:
            self._ahead_s = (least + most) / 2
            self._known = True
            self._last = (-1.0, (0, 0))
