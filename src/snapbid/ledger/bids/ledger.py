"""The ledger: remember bids and settle each notice once (contract 5)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from snapbid.base.beat import BEAT_S, beat
from snapbid.base.redis_keys import ShardKeys, shard_of
from snapbid.base.tasks import end
from snapbid.ledger.bids.clock import LedgerClock
from snapbid.ledger.bids.records import (
    ALTERED,
    OTHERWISE,
    SPOOLED,
    LedgerBid,
    NoticeVerdict,
    Verdicts,
    bid_digest,
    moved_to,
    pack_notice,
)
from snapbid.ledger.bids.shard import GroupCommit, LedgerShard, Observe, PendingNotice, unobserved
from snapbid.ledger.bids.spool import Spool, SpoolFile, SpoolFullError
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.ledger.caps.capping import Capping
from snapbid.ledger.scripts import script
from snapbid.redisclient.connection import Connections
from snapbid.redisclient.trips import Pending

LOOK_S: Final = 4 * BEAT_S  # between scans for other processes' files
REPLAY_BATCH: Final = 500
STOP_S: Final = 3.0  # for rolling back unconfirmed batches on close
HOLD_S: Final = 60
_UNKNOWN: Final = NoticeVerdict.UNKNOWN.value

__all__ = ["Ledger", "LedgerBid", "SpoolFullError"]

logger = logging.getLogger(__name__)


class Ledger:
    """A worker's interface to the ledger.

    `ttl_s`: how long a bid is remembered; `hold_s`: how long its cost is held; `spool`: the spool's
    directory; `replicas`: see Connections. `replayed` is called with each notice settled from the
    spool and its verdict. `clock`, if given, returns epoch seconds and replaces all clocks,
    including that of Redis.
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
        replicas: int | None = None,
        clock: Callable[[], float] | None = None,
        observe: Observe = unobserved,
        replayed: Callable[[bytes, str], None] | None = None,
    ) -> None:
        connections, simulated = Connections(url, replicas), clock is not None
        self._spool = Spool(spool, spool_max_bytes)
        self._replayed = replayed
        self._clocks = [LedgerClock(clock) for _ in range(shards)]
        self._cores = [
            GroupCommit(
                ttl_s, hold_s, own, self._to_spool(number), lambda: self._spool.is_empty, observe
            )
            for number, own in enumerate(self._clocks)
        ]
        self._uncertain: list[tuple[list[int], Callable[[], object]]] = []
        self._shards = [
            LedgerShard(
                number,
                connections.connector(ShardKeys(number).epoch),
                *own,
                simulated,
                shards=shards,
            )
            for number, own in enumerate(zip(self._cores, self._clocks, strict=True))
        ]
        self._capping = Capping(self._shards) if shards > 1 else None
        self._connections = connections
        self._looking = connections.client()
        self._signing_off = self._looking.register_script(script("sign_off", simulated))
        self._rejecting = self._looking.register_script(script("reject", simulated))
        self.budgets = Budgets(self._looking, shards, self._now_s, simulated=simulated)
        self._tasks: list[asyncio.Task[None]] = []

    def _to_spool(self, number: int) -> Callable[[PendingNotice], None]:
        return lambda notice: self._append(number, notice.packed, notice.done, notice.otherwise)

    def _append(
        self,
        number: int,
        packed: bytes,
        done: "Pending[str | None]",
        otherwise: tuple[int, bytes] | None,
    ) -> None:
        """Spool a notice and, if given, the same notice with the alternative ids from its URL."""
        own_time = not self._clocks[number].is_known
        notices = [(number, _spooled(packed))]
        if otherwise is not None:
            notices.append((otherwise[0], _spooled(otherwise[1])))
        self._spool.append(notices, done, own_time=own_time)

    def _now_s(self) -> float:
        return self._clocks[0].now_ms(self._loop.time()) / 1000

    async def open(self) -> None:
        """Start connecting, without waiting for the connections."""
        self._loop = asyncio.get_running_loop()
        try:
            self._spool.join()
        except OSError as error:
            logger.error(
                "cannot use the spool directory: %(reason)s; notices are lost while Redis is"
                " unavailable",
                {"reason": error.strerror},
            )
        else:
            for core in self._cores:
                core.token = self._spool.token
        for shard in self._shards:
            shard.open()
        self._tasks = [
            asyncio.create_task(self._watch_certain()),
            asyncio.create_task(self._replay()),
        ]

    async def close(self) -> None:
        """Send queued requests, roll back unconfirmed batches, and disconnect."""
        watch, replay = self._tasks
        await end(replay)
        until = self._loop.time() + STOP_S
        await asyncio.gather(*(shard.close(until) for shard in self._shards))
        await end(watch)
        self._run_certain()
        self._leave_unconfirmed()
        await self._spool.set_aside()
        if self._spool.is_empty and await self._sign_off(self._spool.token):
            self._spool.leave()
        await self._spool.close()
        await self._looking.aclose()

    def _leave_unconfirmed(self) -> None:
        batches = [
            (number, batch)
            for number, shard in enumerate(self._shards)
            for batch in shard.unconfirmed
        ]
        if batches:
            try:
                self._spool.leave_unconfirmed(batches)
            except OSError as error:
                logger.error(
                    "lost %(batches)d unconfirmed batches: failed to write the spool: %(reason)s",
                    {"batches": len(batches), "reason": error.strerror},
                )

    @property
    def connected(self) -> bool:
        """Whether every shard is connected."""
        return all(shard.connected for shard in self._shards)

    @property
    def unavailable(self) -> list[int]:
        """The shards that are not connected."""
        return [number for number, shard in enumerate(self._shards) if not shard.connected]

    @property
    def unreplicated(self) -> list[int]:
        """The shards that acknowledge writes without their required replica."""
        return [number for number, shard in enumerate(self._shards) if shard.is_unreplicated]

    @property
    def is_foreign(self) -> bool:
        """Whether any shard refuses all bids because it is not part of the warehouse's ledger."""
        return any(shard.is_foreign for shard in self._shards)

    def belong_to(self, warehouse: str, epochs: Sequence[str] = ()) -> None:
        """Accept only the ledger of the warehouse with this id; any ledger if the id is "".

        `epochs`: the epoch of each shard of the warehouse's ledger, "" for a shard without one;
        empty if the warehouse has no ledger yet.
        """
        for shard in self._shards:
            shard.belong_to(warehouse, epochs)

    def use_families(self, families: Mapping[int, int]) -> None:
        """Group SSPs into families; `families` maps an SSP's number to its family's number.

        Any other SSP is a family by itself. An SSP never replaces the bids of another family.
        """
        packed = " ".join(f"{variant}={family}" for variant, family in sorted(families.items()))
        for core in self._cores:
            core.families = packed

    def remember(
        self,
        auction_id: bytes,
        ssp: int,
        bids: Sequence[LedgerBid],
        user: str | None,
        within_s: float,
        counted: bool = False,
    ) -> "Pending[Verdicts] | None":
        """Remember the bids of one answer; each is kept, or refused by its limits.

        The future resolves to a BidVerdict for each bid once Redis has decided. If that takes
        longer than `within_s`, or the connection is lost, the future resolves to "", and the bids
        are rolled back. Returns None if Redis is unavailable or nearly full, or too many answers
        are waiting. `user` is required if limits have caps. `counted`: whether an earlier bid of
        this answer was kept.
        """
        shard = self._shards[shard_of(auction_id, len(self._shards))]
        if self._capping is not None and self._capping.concerns(bids):
            return self._capping.remember(shard, auction_id, ssp, bids, user, within_s, counted)
        return shard.remember(auction_id, ssp, bids, user, within_s, counted)

    async def look(
        self, auction_id: bytes, bids: Sequence[LedgerBid], user: str | None, within_s: float
    ) -> Verdicts:
        """Return the verdicts that bids would get now; "" if Redis does not answer in time."""
        return await self._loop.create_task(self._look(auction_id, bids, user, within_s))

    async def _look(
        self, auction_id: bytes, bids: Sequence[LedgerBid], user: str | None, within_s: float
    ) -> Verdicts:
        try:
            async with asyncio.timeout(within_s):  # needs a task
                return await self.budgets.verdicts(auction_id, bids, user)
        except TimeoutError:
            return ""

    def shard_of(self, auction_id: bytes) -> int:
        """Return the number of the shard that remembers an auction's bids and pays for them."""
        return shard_of(auction_id, len(self._shards))

    async def settle(
        self,
        kind: int,
        auction_id: bytes,
        imp_id: bytes,
        reason: int = 0,
        otherwise: tuple[bytes, bytes] | None = None,
        family: bytes = b"",
    ) -> str:
        """Settle a notice, or spool it if Redis is unavailable or slow; return a NoticeVerdict.

        `reason`: the loss reason. `kind` includes ALTERED if the URL was altered in transit.
        `otherwise`: auction and impression id to try if a spooled notice's bid turns out to be
        unknown. `family`: the prefix that keeps apart the signed bids of SSP families
        (records.family_of), or empty. Raises SpoolFullError if the notice can be neither settled
        nor spooled.
        """
        if family:
            auction_id = family + auction_id
        number = shard_of(auction_id, len(self._shards))
        clock = self._clocks[number]
        came = clock.now(self._loop.time())
        packed = pack_notice(kind, reason, auction_id, imp_id, came, clock.run)
        other: tuple[int, bytes] | None = None
        if otherwise is not None:
            other = (
                shard_of(otherwise[0], len(self._shards)),
                pack_notice(kind | ALTERED | OTHERWISE, reason, *otherwise, came, clock.run),
            )
        others: Iterator[int] | None = None
        while True:
            done: Pending[str | None] | None
            done = self._shards[number].settle(packed, otherwise=other)
            if done is None:
                done = self._loop.create_future()
                self._append(number, packed, done, other)
            verdict = await done
            assert verdict is not None
            if verdict != _UNKNOWN:
                return verdict
            if others is None:
                others = self._moved_to(auction_id, number)
            moved = next(others, None)
            if moved is None:
                return verdict
            number = moved

    async def reject(
        self, auction_id: bytes, imp_id: bytes, reason: int, excluded: Iterable[int] = ()
    ) -> bool:
        """Count a settled loss as a rejection of the bid's creative; return whether it counts.

        `excluded`: numbers of SSPs whose bids the sender may not reject. Raises RedisError.
        """
        number = shard_of(auction_id, len(self._shards))
        return bool(
            await self._rejecting(
                keys=ShardKeys(number).script_keys,
                args=[
                    self._clocks[number].now_ms(self._loop.time()),
                    bid_digest(auction_id, imp_id),
                    reason,
                    f" {'  '.join(map(str, excluded))} ",
                ],
            )
        )

    def _moved_to(self, auction_id: bytes, own: int) -> Iterator[int]:
        """Yield the other shards where an auction's bids may be after moves of the ledger."""
        now = self._now_s()
        former = [of.shards for of in self._shards[own].former if of.until > now]
        return (n for n in moved_to(auction_id, former, len(self._shards)) if n != own)

    def when_certain(self, then: Callable[[], object]) -> None:
        """Call `then` once all bids sent so far are either acknowledged or rolled back."""
        self._uncertain.append(([core.last_batch for core in self._cores], then))

    async def _watch_certain(self) -> None:
        while True:
            await beat()
            self._run_certain()

    def _run_certain(self) -> None:
        left = []
        for sent, then in self._uncertain:
            if all(map(GroupCommit.is_certain, self._cores, sent)):
                then()
            else:
                left.append((sent, then))
        self._uncertain = left

    # -- files in the spool directory -------------------------------------------------------------

    async def _replay(self) -> None:
        while True:
            if self.connected:
                try:
                    await self._replay_all()
                except OSError:
                    logger.exception("failed to read the spool; retrying")
            await beat(LOOK_S if self._spool.is_empty else BEAT_S)

    async def _replay_all(self) -> None:
        if self._spool.holds_own:
            await self._spool.set_aside()
        names = self._spool.look()
        for spooled in self._spool.abandoned(names):
            await _finish(spooled, self._settle_all)
        for unconfirmed in self._spool.abandoned_batches(names):
            await _finish(unconfirmed, self._roll_back_all)
        for process in self._spool.gone(names):
            await _finish(process, self._sign_off_gone)

    async def _settle_all(self, spooled: SpoolFile) -> bool:
        notices = spooled.notices(self._clocks[0].behind_ms)
        if notices is None:
            return False
        verdict: str | None = None  # of the previous notice
        for start in range(0, len(notices), REPLAY_BATCH):
            batch = notices[start : start + REPLAY_BATCH]
            waiting = [
                None if packed[0] & OTHERWISE else self._settle_spooled(shard, packed)
                for shard, packed in batch
            ]
            for done, (shard, packed) in zip(waiting, batch, strict=True):
                if packed[0] & OTHERWISE:
                    if verdict != _UNKNOWN:
                        continue
                    done = self._settle_spooled(shard, packed)
                if done is None or (verdict := await done) is None:
                    return False
                if verdict == _UNKNOWN:
                    verdict = await self._settle_moved(packed, shard % len(self._shards))
                    if verdict is None:
                        return False
                if self._replayed is not None:
                    self._replayed(packed, verdict)
        logger.info("settled %(notices)d notices from the spool", {"notices": len(notices)})
        return True

    def _settle_spooled(self, shard: int, packed: bytes) -> "Pending[str | None] | None":
        return self._shards[shard % len(self._shards)].settle(packed, from_spool=True)

    async def _settle_moved(self, packed: bytes, own: int) -> str | None:
        """Settle a spooled notice in another shard, if the ledger has been moved.

        The spool does not record the auction, so every shard is tried. Returns None if a shard is
        unavailable.
        """
        if self._shards[own].former:
            for shard in self._shards:
                done = shard.settle(packed, from_spool=True)
                verdict = None if done is None else await done
                if verdict != _UNKNOWN:
                    return verdict
        return _UNKNOWN

    async def _roll_back_all(self, unconfirmed: SpoolFile) -> bool:
        for number, batch in unconfirmed.batches():
            own = self._shards[number % len(self._shards)]
            shards = self._shards if own.former else [own]  # moves may have taken it to any
            rolled_back = [shard.roll_back(batch) for shard in shards]
            if not all([done is not None and await done for done in rolled_back]):
                return False
        return True

    async def _sign_off_gone(self, process: SpoolFile) -> bool:
        token = process.token
        return not self._spool.has_notices_of(token) and await self._sign_off(token)

    async def _sign_off(self, token: str) -> bool:
        """Deregister a process in all shards, so that holds no longer wait for its notices.

        Return whether this succeeded in all shards and their replicas. If not, it must be repeated,
        since a failover could restore the registration.
        """
        try:
            for number, clock in enumerate(self._clocks):
                now_ms, keys = clock.now_ms(self._loop.time()), ShardKeys(number)
                await self._signing_off(keys=keys.script_keys, args=[now_ms, token])
                await self._connections.replicate(self._looking, keys)
        except (RedisError, OSError):
            return False
        return True


def _spooled(packed: bytes) -> bytes:
    """Mark a notice as coming from the spool."""
    return bytes((packed[0] | SPOOLED,)) + packed[1:]


async def _finish(file: SpoolFile, work: Callable[[SpoolFile], Awaitable[bool]]) -> None:
    """Remove the file if the work succeeds; otherwise leave it for the next attempt."""
    finished = False
    try:
        finished = await work(file)
    finally:
        if finished:
            file.done()
        else:
            file.keep()
