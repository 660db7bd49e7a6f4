"""Loss notices that reject a creative for its content (contract 11).

For an SSP restricted to networks, losses from other addresses do not count as rejections, since
others may know its notification URLs. Nor do losses replayed from a spool: their sender is unknown.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from redis.exceptions import RedisError

from snapbid.base.access import Network, SspAccess, contains, parse_networks
from snapbid.base.http import Scope
from snapbid.base.tasks import end
from snapbid.bidding.guard import source_of

REASONS: Final = range(200, 214)  # OpenRTB 2.5, 5.25: creative filtered
MOST_PENDING: Final = 10_000

logger = logging.getLogger(__name__)


class RejectsCreatives(Protocol):
    """The part of the ledger that `Rejections` uses; see `Ledger.reject`."""

    async def reject(
        self, auction_id: bytes, imp_id: bytes, reason: int, excluded: Sequence[int]
    ) -> bool: ...


class _Rejection(NamedTuple):
    auction_id: bytes
    imp_id: bytes
    reason: int
    excluded: Sequence[int]


class Rejections:
    """A queue of rejections, each counted after its notice has been answered."""

    def __init__(self, ledger: RejectsCreatives, proxies: Sequence[Network] = ()) -> None:
        self._ledger = ledger
        self._proxies = proxies
        self._narrowed: list[tuple[int, tuple[Network, ...]]] = []
        self._pending: deque[_Rejection] = deque(maxlen=MOST_PENDING)
        self._counting: asyncio.Task[None] | None = None

    def use(self, access: Mapping[str, SspAccess], numbers: Mapping[str, int]) -> None:
        """Switch to the SSPs of a new catalog: their networks and numbers."""
        self._narrowed = [
            (numbers[ssp], parse_networks(of.allow))
            for ssp, of in access.items()
            if of.allow and ssp in numbers
        ]

    def note(self, scope: Scope, auction_id: bytes, imp_id: bytes, reason: int) -> None:
        """Queue a settled loss for counting if its reason is a rejection of the creative."""
        if reason in REASONS:
            self._pending.append(_Rejection(auction_id, imp_id, reason, self._excluded(scope)))
            if self._counting is None:
                self._counting = asyncio.create_task(self._count())

    async def stop(self) -> None:
        if self._counting is not None:
            await end(self._counting)

    def _excluded(self, scope: Scope) -> Sequence[int]:
        """Return the numbers of the SSPs whose networks do not contain the request's sender."""
        if not self._narrowed:
            return ()
        address = source_of(scope, self._proxies)
        return [
            number
            for number, networks in self._narrowed
            if address is None or not contains(networks, address)
        ]

    async def _count(self) -> None:
        try:
            while self._pending:
                await self._ledger.reject(*self._pending.popleft())
        except RedisError as error:
            logger.info(
                "dropped %(rejections)d creative rejections without counting them: %(reason)s",
                {"rejections": len(self._pending) + 1, "reason": error},
            )
            self._pending.clear()
        finally:
            self._counting = None
