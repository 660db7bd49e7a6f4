"""What has changed since a base was made, held as an index that can be written at any time."""

import logging

from snapbid.match import stored
from snapbid.match.catalog import Base
from snapbid.match.compile import Builder
from snapbid.warehouse.campaigns import Changes, Copied

LEAST: int = 4096  # changed campaigns that every base may have above it
LEAST_BYTES: int = 16 * 1024 * 1024  # that they may take; some list a million domains
SHARE: int = 64  # or one part in so many of the base

logger = logging.getLogger("snapbid")


class Overlay:
    """The campaigns of a warehouse that changed after its base; without one, all of them.

    `revision` is where it stands, `complete` until where it holds all changes.
    """

    def __init__(self, base: Base | None) -> None:
        self.base = base
        self.revision = self.complete = base.revision if base else 0
        self._builder = stored.new_builder()
        self._touched: set[str] = set()
        self._bytes = 0

    def __len__(self) -> int:
        """How many campaigns it adds, replaces or hides."""
        return len(self._touched)

    @property
    def is_large(self) -> bool:
        """Whether a new base would be better, since each change costs the building of all of it."""
        campaigns, size = (self.base.campaigns, self.base.size) if self.base else (0, 0)
        return len(self) > max(LEAST, campaigns // SHARE) or self._bytes > max(
            LEAST_BYTES, size // SHARE
        )

    def apply(self, changes: Changes) -> None:
        """Takes up what changed after `revision`."""
        for id in changes.deleted:
            self._builder.hide(id)
        for row in changes.changed:
            if not insert(self._builder, row.copied()):
                self._builder.hide(row.id)
        self._touched.update(changes.deleted, (row.id for row in changes.changed))
        if self.complete == self.revision:
            self.complete = changes.revision
        self.revision = changes.revision

    def skip(self, revision: int) -> None:
        """Leaves changes out until that revision; a new base will have them."""
        self.revision = revision

    def build(self) -> bytearray:
        """The index."""
        index = self._builder.build()
        self._bytes = len(index)
        return index


def insert(builder: Builder, row: Copied) -> bool:
    """Puts a campaign into an index; False, with a line in the log, where it is none."""
    try:
        stored.insert(builder, row.document, row.number, row.created_at_ms)
    except ValueError as error:  # written past the import, by hand
        logger.error("campaign %a does not bid: %s", row.id.decode()[:60], str(error)[:500])
        return False
    return True
