"""The overlay: the campaigns that changed after a base was built."""

import logging

from snapbid.campaigns.normalised import RULES, load
from snapbid.catalog.catalog import Base
from snapbid.catalog.payload import Builder, put
from snapbid.warehouse.campaigns import CampaignRow, Changes

LEAST: int = 4096  # changed campaigns allowed over any base, however small
LEAST_BYTES: int = 16 << 20  # of their index; some campaigns list a million domains
SHARE: int = 64  # or 1/64 of the base, if that is more
MOST_UNUSED: int = 1 << 19  # values that the builder keeps though no campaign names them any more

logger = logging.getLogger(__name__)


class Overlay:
    """The campaigns that changed after the base was built; without a base, all campaigns.

    All changes up to the revision `complete` are included; later ones, up to `revision`, may have
    been skipped.
    """

    def __init__(self, base: Base | None) -> None:
        self.base = base
        self.revision = self.complete = base.revision if base else 0
        self._builder = Builder()
        self._touched: set[str] = set()
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many campaigns the overlay adds, replaces or hides."""
        return len(self._touched)

    @property
    def is_large(self) -> bool:
        """Return whether the overlay has become so large that a new base is due."""
        campaigns, size = (self.base.campaigns, self.base.size) if self.base else (0, 0)
        return (
            len(self) > max(LEAST, campaigns // SHARE)
            or self._bytes > max(LEAST_BYTES, size // SHARE)
            or self._builder.n_unused > MOST_UNUSED
        )

    def apply(self, changes: Changes) -> None:
        """Apply the changes after `revision`."""
        for id in changes.deleted:
            self._builder.hide(id)
        for row in changes.changed:
            if not insert(self._builder, row.row(RULES)):
                self._builder.hide(row.id)
        self._touched.update(changes.deleted, (row.id for row in changes.changed))
        if self.complete == self.revision:
            self.complete = changes.revision
        self.revision = changes.revision

    def skip(self, revision: int) -> None:
        """Skip the changes up to a revision, since a new base will include them."""
        self.revision = revision

    def rebase(self, revision: int) -> None:
        """Lower the overlay's revision to `revision` after the warehouse's campaigns were restored.

        `complete` is reset, since earlier changes may have been undone.
        """
        self.revision, self.complete = min(self.revision, revision), 0

    def build(self) -> bytearray:
        index = self._builder.build()
        self._bytes = len(index)
        return index


def insert(builder: Builder, row: CampaignRow) -> bool:
    """Put a campaign into an index; log it and return False if it breaks a rule."""
    try:
        campaign = load(row.content, is_normalised=row.is_normalised, is_active=row.is_active)
        put(builder, campaign, row.number, row.created_at_ms)
    except ValueError as error:  # written by plain SQL
        logger.error(
            "campaign %(campaign)a does not bid: %(reason)s",
            {"campaign": row.id.decode()[:60], "reason": str(error)[:500]},
        )
        return False
    return True
