"""When writes wait for replicas, and when a shard goes on without one (contract 10)."""

from typing import Any

import pytest

from snapbid.base.redis_keys import ShardKeys
from snapbid.redisclient.replicas import (
    GRACE_S,
    LOOK_S,
    ReplicaDemand,
    Replication,
    TooFewReplicasError,
)

KEYS = ShardKeys(3)
AUTO = ReplicaDemand(1, GRACE_S)
SOON = GRACE_S - 0.001


class Shard:
    """A connection to a shard, and what its primary would answer."""

    def __init__(self, demand: ReplicaDemand = AUTO) -> None:
        self.of = Replication()
        self.replicas = 1  # that confirm
        self.is_known = False  # as unreplicated, to others
        self.offset = self.acked = 100
        self.demand = demand

    def connect(self, now: float) -> bool:
        """Whether writes are taken on a new connection."""
        commands = self.of.first(KEYS, self.demand, now)
        try:
            self.of.decide([self._reply(command) for command in commands], now)
        except TooFewReplicasError:
            return False
        return True

    def write(self, now: float) -> bool:
        """Whether a batch is acknowledged."""
        replies = ["reply", *(self._reply(command) for command in self.of.ask(now))]
        try:
            assert self.of.take(replies, now) == ["reply"]
        except TooFewReplicasError:
            return False
        return True

    def _reply(self, command: tuple[Any, ...]) -> Any:
        match command[0]:
            case "SET":
                self.is_known |= command[1] == KEYS.unreplicated
                self.offset += 10
                self.acked = self.offset if self.replicas else self.acked
                return "OK"
            case "WAIT":
                return self.replicas
            case "EXISTS":
                return int(self.is_known)
            case "ROLE":
                return [b"master", self.offset, [[b"host", b"1", b"%d" % self.acked]]]
        raise AssertionError(command)


def test_replicas_are_not_queried_without_a_demand() -> None:
    shard = Shard(ReplicaDemand(0, GRACE_S))
    assert shard.connect(0.0)
    assert shard.of.ask(1.0) == ()
    assert not shard.of.is_due(99.0)


def test_a_demanded_number_is_required_for_ever() -> None:
    shard = Shard(ReplicaDemand(1))
    assert shard.connect(0.0)
    assert shard.write(1.0)
    shard.replicas, shard.is_known = 0, True
    assert not shard.write(2.0)
    assert not any(shard.connect(at) for at in (3.0, 1e3, 1e9))


def test_nothing_is_acknowledged_within_the_grace_and_everything_after_it() -> None:
    shard = Shard()
    assert shard.connect(0.0)
    assert shard.write(50.0)
    shard.replicas = 0
    assert not shard.write(50.1)
    assert not any(shard.connect(50.1 + s) for s in (0.5, LOOK_S, SOON))
    assert shard.connect(50.2 + GRACE_S)
    assert shard.of.is_unreplicated
    assert all(shard.write(70.0 + n / 10) for n in range(100))


def test_a_returning_replica_counts_once_it_is_in_sync() -> None:
    shard = Shard()
    shard.replicas = 0
    assert not any(shard.connect(at) for at in (0.0, 10.0))
    assert shard.connect(GRACE_S)
    assert shard.write(20.0)
    assert shard.is_known
    assert shard.write(20.5)
    shard.offset += 1_000  # of which a frozen replica has nothing
    for at in (21.0, 22.0, 23.0):
        assert shard.of.is_due(at)
        assert shard.write(at)
        assert shard.of.is_unreplicated
    shard.replicas = 1
    assert all(shard.write(at) for at in (24.0, 25.0))
    assert not shard.of.is_unreplicated
    assert shard.write(25.1)
    shard.replicas = 0
    assert not shard.write(25.2)
    assert not shard.connect(25.2 + SOON), "though the shard is still known as unreplicated"
    assert shard.connect(25.3 + GRACE_S)


def test_a_client_that_seldom_writes_does_not_take_its_rest_for_a_missing_replica() -> None:
    shard = Shard()
    assert shard.connect(0.0)
    shard.replicas = 0
    for at in (60.0, 90.0, 120.0):
        assert not shard.write(at), "the first failure for long"
    assert not shard.connect(130.0)
    assert not shard.connect(120.0 + SOON)
    assert shard.connect(120.0 + GRACE_S)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_starting_process_follows_others_that_went_on_without(is_known: bool) -> None:
    shard = Shard()
    shard.replicas, shard.is_known = 0, is_known
    assert shard.connect(7.0) == is_known
    assert shard.connect(7.0 + SOON) == is_known
    assert shard.connect(7.0 + GRACE_S)


def test_the_next_connection_with_a_replica_waits_for_it_again() -> None:
    shard = Shard()
    shard.replicas, shard.is_known = 0, True
    assert shard.connect(0.0)
    shard.replicas = 1
    assert shard.connect(9.0)
    assert not shard.of.is_unreplicated
