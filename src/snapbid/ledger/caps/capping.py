"""Remember bids with frequency caps in a ledger of several shards.

A user's impressions, and the holds on them, are in the user's shard (money.lua). A bid first holds
an impression there, and is then remembered in the auction's shard: two round trips. So no cap is
ever exceeded, even after a failure in between; the hold of a bid that was never answered expires.
Notices leave the outcome of a hold in an outbox (outbox.py).
"""

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import Final

from snapbid.ledger.bids.records import (
    KEPT,
    BidVerdict,
    LedgerBid,
    Verdicts,
    bid_digest,
    identity,
    user_digest,
    user_shard,
)
from snapbid.ledger.bids.shard import LedgerShard

SHARE: Final = 0.5  # of a bid's time, for its hold; the rest is for another campaign
END_S: Final = 60.0  # for ending a hold in a shard that is unavailable

_HOLD: Final = Struct("<I16s16sI")  # campaign, user, digest and identity of the bid
_SIZE: Final = Struct("<H")  # of the limits that follow
_STANDING: Final = (KEPT, BidVerdict.OVER_CAP)  # verdicts that leave no hold to end


class Capping:
    """Remembers answers with capped bids in two steps: first the holds, then the bids."""

    def __init__(self, shards: Sequence[LedgerShard]) -> None:
        self._shards = shards

    @staticmethod
    def concerns(bids: Sequence[LedgerBid]) -> bool:
        """Whether any bid has caps."""
        for bid in bids:
            limits = bid[3]
            if limits is not None and limits.longest_s:
                return True
        return False

    def remember(
        self,
        shard: LedgerShard,
        auction_id: bytes,
        ssp: int,
        bids: Sequence[LedgerBid],
        user: str | None,
        within_s: float,
        counted: bool,
    ) -> "asyncio.Future[Verdicts] | None":
        """Remember the bids of an answer; see `Ledger.remember`. `shard`: the auction's shard.

        A capped bid is refused with CAPS_UNAVAILABLE if the user's shard does not answer in time.
        """
        if not shard.connected:
            return None
        assert user is not None  # the matcher requires one for capped campaigns
        loop = asyncio.get_running_loop()
        until, answer, digest = loop.time() + within_s, shard.next_answer(), user_digest(user)
        holds = _Holds(self._shards[user_shard(digest, len(self._shards))])
        for index, (imp_id, marked, _, limits) in enumerate(bids):
            if limits is not None and limits.longest_s:
                own = bid_digest(auction_id, imp_id), identity(marked, answer)
                holds.add(index, _HOLD.pack(limits.campaign, digest, *own), limits.caps_alone)

        async def remember() -> Verdicts:
            verdicts = ""
            try:
                refused = await holds.make(within_s * SHARE)
                rest = [bid for index, bid in enumerate(bids) if index not in refused]
                letters = ""
                if rest:
                    left_s = until - loop.time()
                    done = shard.remember(auction_id, ssp, rest, user, left_s, counted, answer)
                    letters = "" if done is None else await done
                if letters or not rest:
                    of_rest = iter(letters)
                    verdicts = "".join([refused.get(n) or next(of_rest) for n in range(len(bids))])
                return verdicts
            finally:
                holds.end(verdicts)

        return loop.create_task(remember())


class _Holds:
    """Holds on the user's caps for the bids of one answer, in the user's shard."""

    def __init__(self, shard: LedgerShard) -> None:
        self._shard = shard
        self._holds: list[tuple[int, bytes, bytes]] = []

    def add(self, index: int, hold: bytes, caps: bytes) -> None:
        """Add the packed hold of the bid at `index`, and the bid's caps, for `make` to send."""
        self._holds.append((index, hold, caps))

    async def make(self, within_s: float) -> dict[int, str]:
        """Send the holds; return the verdicts on the refused ones, by the index of the bid."""
        waiting = [
            (index, self._shard.hold(b"".join((hold, _SIZE.pack(len(caps)), caps)), within_s))
            for index, hold, caps in self._holds
        ]
        refused = {}
        for index, done in waiting:
            letter = "" if done is None else await done
            if letter != KEPT:
                refused[index] = letter or BidVerdict.CAPS_UNAVAILABLE.value
        return refused

    def end(self, verdicts: Verdicts) -> None:
        """End the holds of bids that the auction's shard did not remember."""
        for index, hold, _ in self._holds:
            if not verdicts or verdicts[index] not in _STANDING:
                self._shard.hold(hold + _SIZE.pack(0), END_S, ends=True)
