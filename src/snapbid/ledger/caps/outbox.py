"""Deliver the outcome of capped bids from the auctions' shards to the users' shards.

A notice that settles a bid leaves an entry in an outbox of the auction's shard, in the same step
(outbox.lua). Sweepers, one per machine, deliver entries in rounds: they read the outboxes, apply
the entries in the users' shards, and delete them once replicas have the result. Applying an entry
again, or after a later one, gives the same result. A win turns the hold into an impression; a loss
ends the hold.

A hold must not expire before all wins that came before its end are delivered, or a cap could be
exceeded. So a round also reports to the user's shard the time, by that shard's hold clock, up to
which an outbox is delivered. If the round leaves no entry in the outbox, this is the time up to
which all notices had been settled at the previous round (clock.lua): the outbox was read after
that, so entries of these notices were among those delivered. Once there has been no such report for
15 minutes of the hold clock, because the outbox's shard is unavailable, holds no longer wait for
the outbox.
"""

import secrets
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.admin.parts import of_each
from snapbid.ledger.bids.records import DIGEST_SIZE
from snapbid.ledger.scripts import script
from snapbid.redisclient.connection import Connections

MOST: Final = 1000  # entries of one outbox in one round
LEASE_MS: Final = 1000  # of a sweeper on a shard's outboxes
ENTRY_SIZE: Final = 51  # outbox.lua has the layout
_USER_AT: Final = 5


class _Outbox(NamedTuple):
    """Entries of a shard's outbox for another shard; `is_whole`: whether all of them were read."""

    entries: bytes
    is_whole: bool


_EMPTY: Final = _Outbox(b"", is_whole=True)


class _Outboxes(NamedTuple):
    """A shard's outboxes, as read by a sweeper."""

    mark: str  # time up to which its notices are settled (hold clock)
    is_ours: bool  # whether this sweeper has the lease
    of_shards: dict[int, _Outbox]  # by the shard they are for


class OutboxSweeper:
    """A sweeper, which delivers outbox entries; any number of sweepers may run.

    `clock` returns epoch seconds; if `simulated`, it replaces the clock of Redis.
    """

    def __init__(
        self,
        connections: Connections,
        shards: int,
        clock: Callable[[], float],
        *,
        simulated: bool = False,
    ) -> None:
        self._connections = connections
        self._redis: Redis = connections.client()
        self._keys = [ShardKeys(number) for number in range(shards)]
        self._clock = clock
        self._token = secrets.token_hex(8)
        self._read = self._redis.register_script(script("sweep", simulated, shards))
        self._apply = self._redis.register_script(script("deliver", simulated, shards))
        self._marks: list[str | None] = [None] * shards  # of the previous round
        self._delivered: dict[int, list[Any]] = defaultdict(list)  # by outbox: shard, entries

    async def close(self) -> None:
        await self._redis.aclose()

    async def sweep(self) -> bool:
        """Run one round; return whether entries are left.

        Entries for an unavailable shard stay in their outbox. Raises RedisError or OSError if no
        shard answers.
        """
        shards = len(self._keys)
        outboxes = await of_each(shards, self._sweep)

        async def deliver(shard: int) -> bool:
            own = {
                number: outbox.of_shards.get(shard, _EMPTY)
                for number, outbox in enumerate(outboxes)
                if outbox is not None and outbox.is_ours
            }
            if own:
                await self._deliver(shard, own)
            return not all(outbox.is_whole for outbox in own.values())

        more = await of_each(shards, deliver)
        self._marks = [None if outbox is None else outbox.mark for outbox in outboxes]
        return any(more)

    async def _sweep(self, shard: int) -> _Outboxes:
        delivered = self._delivered.pop(shard, [])
        arguments = [int(self._clock() * 1000), self._token, LEASE_MS, MOST, *delivered]
        mark, is_ours, *found = await self._read(keys=self._keys[shard].script_keys, args=arguments)
        of_shards = {
            number: _Outbox(entries, is_whole == 1)
            for number, is_whole, entries in zip(*[iter(found)] * 3, strict=True)
        }
        return _Outboxes(mark.decode(), is_ours == 1, of_shards)

    async def _deliver(self, shard: int, outboxes: dict[int, _Outbox]) -> None:
        mark, marks = self._marks[shard], list[Any]()
        for number, outbox in outboxes.items():
            if outbox.is_whole and mark is not None:
                marks += (number, mark)
        entries = b"".join(
            sorted(entry for outbox in outboxes.values() for entry in _split(outbox.entries))
        )
        if not entries and not marks:
            return
        arguments = [int(self._clock() * 1000), entries, *marks]
        await self._apply(keys=self._keys[shard].script_keys, args=arguments)
        if entries:
            await self._connections.replicate(self._redis, self._keys[shard])
            for number, outbox in outboxes.items():
                if outbox.entries:
                    self._delivered[number] += (shard, outbox.entries)


def user_of(entry: bytes) -> bytes:
    """Return the user's digest in an entry."""
    return entry[_USER_AT : _USER_AT + DIGEST_SIZE]


def _split(entries: bytes) -> list[bytes]:
    """Split concatenated outbox entries.

    An entry begins with its kind, so sorting the entries puts those of rolled-back bids last.
    """
    return [entries[at : at + ENTRY_SIZE] for at in range(0, len(entries), ENTRY_SIZE)]
