"""The ledger: bids are remembered, notices settled once (contract 5)."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Final

from snapbid.ledger.budgets import Budgets
from snapbid.ledger.commits import Observe, unobserved
from snapbid.ledger.connection import connect, connector
from snapbid.ledger.limits import Limits
from snapbid.ledger.records import NOTICE, Remembered, Reserved, place, shard_of, user_digest
from snapbid.ledger.shard import Shard
from snapbid.ledger.spool import Spool, Spooled, SpoolFullError
from snapbid.tasks import end

TICK_S: Final = 0.005
NOTICE_S: Final = 0.25  # then the notice goes to the spool
REPLAY_S: Final = 0.25  # between looks at the spool
REPLAY_BATCH: Final = 500
HOLD_S: Final = 60

__all__ = ["Ledger", "SpoolFullError"]

Limited = tuple[bytes, int, int, Limits | None]  # impression id, campaign's number, price, limits

logger = logging.getLogger("snapbid")


class Ledger:
    """One worker's way to the ledger.

    `ttl_s`: how long a bid is remembered; `hold_s`: how long its cost is held; `clock` gives epoch
    seconds; `spool` is a directory.
    """

    def __init__(
        self,
        url: str,
        spool: Path,
        *,
        shards: int,
        ttl_s: int,
        spool_max_bytes: int,
        hold_s: int = HOLD_S,
        clock: Callable[[], float] = time,
        observe: Observe = unobserved,
    ) -> None:
        new = connector(url)
        self._shards = [
            Shard(number, new, ttl_s, hold_s, clock, observe) for number in range(shards)
        ]
        self._looking = connect(url)
        self.budgets = Budgets(self._looking, shards, hold_s, clock)
        self._spool = Spool(spool, spool_max_bytes)
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Starts to connect; does not wait for it."""
        self._loop = asyncio.get_running_loop()
        for shard in self._shards:
            shard.start()
        self._tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._replay())]

    async def close(self) -> None:
        """Sends what waits, and closes."""
        tick, replay = self._tasks
        await end(replay)
        await asyncio.gather(*(shard.stop() for shard in self._shards))  # a stall ends by the tick
        await end(tick)
        await self._spool.close()
        await self._looking.aclose()

    @property
    def connected(self) -> bool:
        """Whether every shard is there."""
        return all(shard.connected for shard in self._shards)

    @property
    def is_foreign(self) -> bool:
        """Whether the ledger belongs to another warehouse; nothing is remembered then."""
        return any(shard.is_foreign for shard in self._shards)

    def belong_to(self, warehouse: str) -> None:
        """Use the ledger of this warehouse (its id) alone; any while none is known."""
        for shard in self._shards:
            shard.belong_to(warehouse)

    def remember(
        self, auction_id: bytes, ssp: int, bids: list[tuple[bytes, int, int]], within_s: float
    ) -> "asyncio.Future[bool] | None":
        """Remembers the bids of one answer: (impression id, campaign's number, price) each.

        Gives what becomes True once Redis has them and False where that takes longer than
        `within_s`; they are forgotten then. None where Redis is away.
        """
        remembered = [
            Remembered(place(auction_id, imp_id), campaign, price)
            for imp_id, campaign, price in bids
        ]
        shard = self._shards[shard_of(auction_id, len(self._shards))]
        return shard.remember(ssp, remembered, self._loop.time() + within_s)

    def reserve(
        self,
        auction_id: bytes,
        ssp: int,
        bids: list[Limited],
        user: str | None,
        within_s: float,
        counted: bool,
    ) -> "asyncio.Future[str] | None":
        """As `remember`, of bids that may have limits; each is kept or refused by itself.

        Gives what becomes a letter for each bid: k kept, b beyond the budget, c beyond a cap; or ""
        where it takes longer. `user` is needed where limits have caps. `counted`: some bid of this
        answer was kept before.
        """
        shard = self._shards[shard_of(auction_id, len(self._shards))]
        deadline = self._loop.time() + within_s
        return shard.reserve(ssp, reserved(auction_id, bids, user), counted, deadline)

    async def look(
        self, auction_id: bytes, bids: list[Limited], user: str | None, within_s: float
    ) -> str:
        """The letters that `reserve` would give now; "" where Redis is away or too slow."""
        shard = shard_of(auction_id, len(self._shards))
        try:
            async with asyncio.timeout(within_s):
                return await self.budgets.look(shard, reserved(auction_id, bids, user))
        except TimeoutError:
            return ""

    def shard_of(self, auction_id: bytes) -> int:
        """The shard that has this auction's share of the budgets."""
        return shard_of(auction_id, len(self._shards))

    async def settle(self, kind: int, auction_id: bytes, imp_id: bytes, reason: int = 0) -> str:
        """Settles a notice; gives the letter of settle.lua, or "s" where it was spooled.

        `reason` is a loss's. Raises SpoolFullError where it can be kept nowhere.
        """
        packed = NOTICE.pack(kind, reason, place(auction_id, imp_id))
        shard = shard_of(auction_id, len(self._shards))
        done = self._shards[shard].settle(packed, self._loop.time() + NOTICE_S)
        letter = await done if done is not None else None
        if letter is not None:
            return letter
        await self._spool.write(shard, packed)
        return "s"

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self._loop.time()
            for shard in self._shards:
                shard.tick(now)

    # -- the spool ---------------------------------------------------------------------------

    async def _replay(self) -> None:
        while True:
            if self.connected:
                try:
                    await self._replay_all()
                except OSError:
                    logger.exception("the spool cannot be read")
            await asyncio.sleep(REPLAY_S)

    async def _replay_all(self) -> None:
        if self._spool.holds_own:
            await self._spool.set_aside()
        for spooled in self._spool.abandoned():
            settled = False
            with contextlib.ExitStack() as stack:
                stack.callback(lambda: spooled.done() if settled else spooled.keep())  # noqa: B023
                settled = await self._settle_all(spooled)

    async def _settle_all(self, spooled: Spooled) -> bool:
        notices = spooled.notices()
        for start in range(0, len(notices), REPLAY_BATCH):
            waiting = [
                self._shards[shard % len(self._shards)].settle(packed, self._loop.time() + 60)
                for shard, packed in notices[start : start + REPLAY_BATCH]
            ]
            for done in waiting:
                if done is None or await done is None:
                    return False
        logger.info("settled %d notices from the spool", len(notices))
        return True


def reserved(auction_id: bytes, bids: list[Limited], user: str | None) -> list[Reserved]:
    """The bids as a shard takes them."""
    found, digest = [], b""
    for imp_id, campaign, price, limits in bids:
        capped = limits is not None and limits.longest_s
        if capped and not digest and user is not None:
            digest = user_digest(user)
        at = place(auction_id, imp_id)
        found.append(Reserved(at, campaign, price, limits, digest if capped else b""))
    return found
