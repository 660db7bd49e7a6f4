"""Share the shards between drains by leases (contract 10).

A drain that can read all shards counts as able. Able drains have equal shares: a drain with more
than its share releases shards, one with less takes free ones. So drains come and go without a
leader, and a single drain has all shards. A drain releases a shard that it could not read for
GIVEN_UP_S, and takes the shard again only once it can read it. Until then this drain does not count
as able, and others take over its share.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import asyncpg
from redis.exceptions import RedisError

from snapbid.warehouse import leases

GIVEN_UP_S: Final = 5.0  # without Redis, or a part of it, before the lease goes to another drain

logger = logging.getLogger(__name__)


class IdleError(Exception):
    """Other drains hold all leases."""


class Leased(Protocol):
    """A shard's counters or event stream, on which only one drain works at a time."""

    number: int

    async def probe(self) -> None:
        """Raise RedisError if the counters or the event stream cannot be read."""


class Leases:
    """One drain's leases of shards, for one kind of work: `kind` is COUNTERS or EVENTS.

    A shard must be read once before its lease is taken.
    """

    def __init__(self, shards: Sequence[Leased], kind: int = leases.COUNTERS) -> None:
        self._shards = shards
        self._kind = kind
        unread = RedisError("not read yet")
        self._unread: dict[int, tuple[float, RedisError]] = {
            shard.number: (float("-inf"), unread) for shard in shards
        }
        self._logged: frozenset[int] | None = None
        self.lost: dict[int, RedisError] = {}
        """Shards that this drain could not read and no other drain holds, each with its error."""

    def note(self, read: Iterable[int], errors: Mapping[int, RedisError]) -> None:
        """Record which shards were read, and which could not be."""
        now = asyncio.get_running_loop().time()
        for number in read:
            self._unread.pop(number, None)
        for number, error in errors.items():
            since, _ = self._unread.get(number, (now, error))
            self._unread[number] = since, error

    async def share(self, connection: asyncpg.Connection) -> frozenset[int]:
        """Take and release leases; return the shards of which this drain has the lease.

        Raises RedisError if no shard can be read, and IdleError if other drains have all leases.
        """
        look = await leases.look(connection, self._kind)
        await self._probe(self._given_up())
        given_up = self._given_up()
        if look.is_able is not (not given_up):
            await leases.declare(connection, self._kind, is_able=not given_up)
        share = -(-len(self._shards) // max(look.able + (not given_up), 1))
        kept = sorted(look.mine - given_up)[:share]
        if surplus := look.mine.difference(kept):
            await leases.release(connection, surplus, self._kind)
        mine = frozenset(kept)
        free = {shard.number for shard in self._shards} - look.mine - look.others - given_up
        if free and len(mine) < share:
            wanted = sorted(free)[: share - len(mine)]
            mine |= await leases.take(connection, wanted, self._kind)
        self._log(mine)
        self.lost = {number: self._unread[number][1] for number in given_up - look.others}
        if len(given_up) == len(self._shards):
            raise self._unread[min(given_up)][1]
        if not mine and not self.lost:
            raise IdleError
        return mine

    def _given_up(self) -> set[int]:
        now = asyncio.get_running_loop().time()
        return {n for n, (since, _) in self._unread.items() if now - since >= GIVEN_UP_S}

    async def _probe(self, numbers: set[int]) -> None:
        """Check whether shards that could not be read can be read now."""
        shards = [shard for shard in self._shards if shard.number in numbers]
        answers = await asyncio.gather(*(shard.probe() for shard in shards), return_exceptions=True)
        errors = {}
        for shard, answer in zip(shards, answers, strict=True):
            if isinstance(answer, RedisError):
                errors[shard.number] = answer
            elif isinstance(answer, BaseException):
                raise answer
        self.note(numbers - errors.keys(), errors)

    def _log(self, mine: frozenset[int]) -> None:
        if mine != self._logged and len(self._shards) > 1:
            kind = "events" if self._kind == leases.EVENTS else "counters"
            numbers = ", ".join(map(str, sorted(mine)))
            of = "shards %(shards)s" if mine else "no shards"
            logger.info(f"draining %(kind)s of {of}", {"kind": kind, "shards": numbers or "none"})
        self._logged = mine
