"""Suspend creatives that an SSP keeps rejecting for their content (contract 11).

The ledger counts rejections, and the drain absorbs these counts into rows of creative_rejection,
exactly once. A round sums these rows by creative, and removes them in the same transaction.
"""

import logging
from collections import Counter

import asyncpg

from snapbid.campaigns.suspensions import marks_of
from snapbid.warehouse import suspensions
from snapbid.warehouse.suspensions import RejectedCreative, Rejection, SuspensionRule

logger = logging.getLogger(__name__)


class SuspensionRounds:
    """Rounds that suspend each creative that `rule` selects, for `suspend_s` seconds."""

    def __init__(self, rule: SuspensionRule, suspend_s: int) -> None:
        self._rule = rule
        self._suspend_s = suspend_s

    async def begin(self) -> None:
        """Do nothing: no state is kept between rounds."""

    async def round(self, connection: asyncpg.Connection) -> int:
        """Count new rejections; return how many creatives were suspended.

        While campaigns are being written, which may take a minute, rejections are left to a later
        round, since the rejected creatives may be about to change.
        """
        if not await suspensions.is_due(connection, self._suspend_s):
            return 0
        async with connection.transaction():
            if not await suspensions.lock_campaigns(connection):
                return 0
            rejections = await suspensions.take_rejections(connection)
            campaigns = {rejection.campaign for rejection in rejections}
            creatives = await suspensions.fetch_creatives(connection, campaigns)
            rejected = _by_creative(rejections, creatives)
            begun = await suspensions.count(connection, rejected, self._rule, self._suspend_s)
        if begun:
            logger.warning(
                "suspended %(creatives)d creatives: rejected by an SSP; see snapbid creative list",
                {"creatives": begun},
            )
        return begun


def _by_creative(
    rejections: list[Rejection], creatives: dict[str, list[str]]
) -> list[RejectedCreative]:
    """Sum losses and bids by creative, with the reason of the last rejection.

    Leaves out creatives that no longer exist.
    """
    named = {
        campaign: {mark: creative for creative, mark in marks_of(ids).items()}
        for campaign, ids in creatives.items()
    }
    losses: Counter[tuple[str, str, str]] = Counter()
    bids: Counter[tuple[str, str, str]] = Counter()
    reasons: dict[tuple[str, str, str], int] = {}
    for rejection in rejections:
        creative = named.get(rejection.campaign, {}).get(rejection.mark)
        if creative is not None:
            key = (rejection.ssp, rejection.campaign, creative)
            losses[key] += rejection.losses
            bids[key] += rejection.bids
            if rejection.reason is not None:
                reasons[key] = rejection.reason
    return [
        RejectedCreative(*key, reasons.get(key), losses[key], bids[key])
        for key in losses
        if losses[key] or bids[key]
    ]
