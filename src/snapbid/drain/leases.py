"""Which shards this drain carries: its share of those that it can read (contract 10).

A drain that can read all shards is able. Each may have as many shards as there are for an able
one; who has more gives some up, and who has fewer takes what is free. So drains come and go
without a leader, and one alone has all shards. A shard that this drain cannot read for GIVEN_UP_S
is given up, and not taken again before it was read: meanwhile this drain is not able, and the
others take its part over.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import asyncpg
from redis.exceptions import RedisError

from snapbid.warehouse import leases

GIVEN_UP_S: Final = 5.0  # without Redis, or a part of it, the place is left to another drain

logger = logging.getLogger("snapbid")


class IdleError(Exception):
    """Other drains carry all that there is."""


class Leased(Protocol):
    """A part of the ledger that one drain at a time carries, by the number of its shard."""

    number: int

    async def probe(self) -> None:
        """Raise RedisError where it cannot be read."""


class Leases:
    """The leases of one drain, of a kind. Every shard is to be read once before it is taken."""

    def __init__(self, shards: Sequence[Leased], kind: int = leases.COUNTERS) -> None:
        self._shards = shards
        self._kind = kind
        unread = RedisError("not read yet")
        self._unread: dict[int, tuple[float, RedisError]] = {
            shard.number: (float("-inf"), unread) for shard in shards
        }
        self._told: frozenset[int] | None = None
        self.lost: dict[int, RedisError] = {}
        """Shards that this drain gave up, or never had, and that no other has; and why."""

    def note(self, read: Iterable[int], errors: Mapping[int, RedisError]) -> None:
        """Take note of which shards were read, and which could not be."""
        now = asyncio.get_running_loop().time()
        for number in read:
            self._unread.pop(number, None)
        for number, error in errors.items():
            since, _ = self._unread.get(number, (now, error))
            self._unread[number] = since, error

    async def share(self, connection: asyncpg.Connection) -> frozenset[int]:
        """Take and give up leases; give those that this drain has.

        Raises RedisError where it can read nothing, IdleError where others have everything.
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
        self._tell(mine)
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
        """Look whether shards can be read again."""
        shards = [shard for shard in self._shards if shard.number in numbers]
        answers = await asyncio.gather(*(shard.probe() for shard in shards), return_exceptions=True)
        errors = {}
        for shard, answer in zip(shards, answers, strict=True):
            if isinstance(answer, RedisError):
                errors[shard.number] = answer
            elif isinstance(answer, BaseException):
                raise answer
        self.note(numbers - errors.keys(), errors)

    def _tell(self, mine: frozenset[int]) -> None:
        if mine != self._told and len(self._shards) > 1:
            numbers = ", ".join(map(str, sorted(mine)))
            carried = f"shards {numbers}" if mine else "no shard"
            of = "events of " if self._kind == leases.EVENTS else ""
            logger.info("the drain carries %s%s", of, carried)
        self._told = mine
