"""Have replicas confirm writes within the same round trip (contract 10).

The commands of a round trip are followed by a dummy write and WAIT. WAIT waits until enough
replicas have the connection's writes; the dummy write extends that to all earlier writes of other
clients. If too few replicas confirm in time, the commands count as unanswered: they may have been
applied, and may or may not survive.

With SNAPBID_REDIS_REPLICAS=auto, a shard that has had no replica for GRACE_S continues without one:
its writes are acknowledged immediately, and a key in the shard records this for processes that
start later. Every second, each process checks whether a replica has caught up with the writes made
up to a second ago; once one has, writes wait for replicas again. A replica that was cut off for
longer than GRACE_S must never be promoted automatically, or these writes would be lost;
`arrangement.py` checks that the nodes' settings prevent it.
"""

import logging
from collections.abc import Sequence
from math import inf
from typing import Any, Final, NamedTuple

from redis.exceptions import RedisError, ResponseError

from snapbid.base.redis_keys import ShardKeys

WAIT_MS: Final = 400
GRACE_S: Final = 15.0  # longer than a cluster takes to notice that a node has failed
LOOK_S: Final = 1.0  # between checks for a replica
LOOK_MS: Final = 50  # timeout of WAIT in such a check
UNREPLICATED_MS: Final = 3_000  # lifetime of the key that marks a shard unreplicated

Command = tuple[Any, ...]

logger = logging.getLogger(__name__)


class TooFewReplicasError(RedisError):
    """A write has reached fewer replicas than required."""

    def __init__(self, reached: int, needed: int) -> None:
        super().__init__(
            f"only {reached} of {needed} replicas (SNAPBID_REDIS_REPLICAS) confirmed the write"
        )


class ReplicaDemand(NamedTuple):
    """The number of replicas that must confirm a write, until a shard lacks them for `grace_s`."""

    replicas: int
    grace_s: float = inf


class Replication:
    """The state by which one client decides whether writes to a shard wait for replicas.

    Times are event loop times.
    """

    def __init__(self) -> None:
        self.is_unreplicated = False
        self._demand = ReplicaDemand(0)
        self._has_confirmed = False
        self._missing_since = self._missed_at = -inf  # when the first and the last write failed
        self._looked_at = 0.0
        self._offset: float = inf  # of the primary at the last look
        self._demanded: tuple[Command, ...] = ()
        self._asked: tuple[Command, ...] = ()  # with the batch under way

    def first(self, keys: ShardKeys, demand: ReplicaDemand, now: float) -> tuple[Command, ...]:
        """Return the first commands for a new connection; pass the replies to `decide`.

        The replies show whether writes have to wait for replicas.
        """
        self._keys, self._demand = keys, demand
        self._looked_at, self._offset = now, inf
        if not demand.replicas:
            self.is_unreplicated, self._demanded = False, ()
            return ()
        mark = ("SET", keys.mark, "")
        self._demanded = (mark, ("WAIT", demand.replicas, WAIT_MS))
        wait_ms = LOOK_MS if self.is_unreplicated else WAIT_MS
        return (mark, ("EXISTS", keys.unreplicated), ("WAIT", demand.replicas, wait_ms))

    def decide(self, replies: Sequence[Any], now: float) -> None:
        """Decide from the replies to `first` whether writes wait for replicas.

        Raises RedisError if too few replicas confirm and writing without them is not yet allowed.
        """
        if not replies:
            return
        _check(replies)
        _, is_known, reached = replies
        if reached >= self._demand.replicas:
            self._confirm()
        elif self._may_go_on(self._miss(now), bool(is_known)):
            self._go_on()
        else:
            raise TooFewReplicasError(reached, self._demand.replicas)

    def _may_go_on(self, missing_s: float, is_known: bool) -> bool:
        """Return whether writes may continue without replicas: too few confirmed for `grace_s`.

        `is_known`: whether the shard has the key `unreplicated`; if so, they may continue at once,
        unless this process has seen enough replicas before.
        """
        grace_s = self._demand.grace_s
        return missing_s >= grace_s or (not self._has_confirmed and is_known and grace_s < inf)

    def _miss(self, now: float) -> float:
        """Note that too few replicas confirmed a write; return how long writes have failed (s).

        The count restarts if the last failure was over `grace_s` ago, since no write has tested the
        replicas in between.
        """
        if now - self._missed_at >= self._demand.grace_s:
            self._missing_since = now
        self._missed_at = now
        return now - self._missing_since

    def is_due(self, now: float) -> bool:
        """Whether to look for a replica now."""
        return self.is_unreplicated and now - self._looked_at >= LOOK_S

    def ask(self, now: float) -> tuple[Command, ...]:
        """Return the commands to append to a batch; pass the batch's replies to `take`."""
        if not self.is_unreplicated:
            self._asked = self._demanded
        elif self.is_due(now):
            self._looked_at = now
            named = ("SET", self._keys.unreplicated, "", "PX", UNREPLICATED_MS)
            self._asked = (named, ("ROLE",))
        else:
            self._asked = ()
        return self._asked

    def take(self, replies: list[Any], now: float) -> list[Any]:
        """Check the replies to the commands from `ask`; return the replies to all other commands.

        Raises RedisError if too few replicas confirm.
        """
        if not self._asked:
            return replies
        index = len(replies) - len(self._asked)
        own = replies[index:]
        _check(own)
        if self.is_unreplicated:
            self._look(own[-1])
        elif own[-1] < self._demand.replicas:
            self._miss(now)
            raise TooFewReplicasError(own[-1], self._demand.replicas)
        return replies[:index]

    def _look(self, role: Sequence[Any]) -> None:
        """Require replicas again if enough of them have all writes up to the previous check."""
        _, offset, replicas = role
        if sum(int(acked) >= self._offset for *_, acked in replicas) >= self._demand.replicas:
            self._confirm()
        self._offset = offset

    def _confirm(self) -> None:
        self._missed_at, self._has_confirmed = -inf, True
        if self.is_unreplicated:
            self.is_unreplicated = False
            logger.info(
                "shard %(shard)d has a replica again: writes wait for it from now on",
                {"shard": self._keys.number},
            )

    def _go_on(self) -> None:
        if not self.is_unreplicated:
            self.is_unreplicated, self._looked_at = True, -inf
            logger.warning(
                "shard %(shard)d has had no replica for %(grace_s).0f s and continues without one:"
                " if its primary fails, writes acknowledged from now on will be lost;"
                " add a replica",
                {"shard": self._keys.number, "grace_s": self._demand.grace_s},
            )


def _check(replies: Sequence[Any]) -> None:
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise reply
