"""The catalog follower: each new catalog file becomes the snapshot that a worker bids from."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from snapbid.base.beat import BEAT_S, beat
from snapbid.base.tasks import end
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog.catalog import Catalog, CatalogError
from snapbid.metrics import Counters, Metrics

LOOK_EVERY_S: Final = BEAT_S / 2  # so that a change bids within 250 ms

FileVersion: TypeAlias = tuple[int, int]  # inode, modification time (ns)

logger = logging.getLogger("snapbid")


class CatalogFollower:
    """Maps the catalog at `path` whenever the file has been replaced.

    `build` makes a snapshot of it, given the one that it replaces; `use` puts it into service
    atomically. An invalid file is logged once, and the current snapshot stays in service.
    """

    def __init__(
        self,
        path: Path,
        metrics: Metrics,
        build: Callable[[Catalog, CatalogSnapshot | None], CatalogSnapshot],
        use: Callable[[CatalogSnapshot, CatalogSnapshot | None], None],
    ) -> None:
        self.snapshot: CatalogSnapshot | None = None
        self._path = path
        self._build = build
        self._use = use
        self._swaps = Counters(metrics, "snapbid_catalog_swaps_total", "result")
        self._current: FileVersion | None = None
        self._refused: FileVersion | None = None
        self._retired: list[CatalogSnapshot] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Check the file every LOOK_EVERY_S."""
        self._task = asyncio.create_task(self._keep_looking())

    async def stop(self) -> None:
        if self._task is not None:
            await end(self._task)

    async def look(self) -> None:
        """Put the file's catalog into service unless it already is."""
        try:
            status = self._path.stat()
            version = (status.st_ino, status.st_mtime_ns)
            if version == self._current:
                if self._retired:
                    await asyncio.to_thread(self._retired.clear)
                return
            if version == self._refused:
                return
            catalog = await asyncio.to_thread(self._map)
        except FileNotFoundError:  # or its base is gone: a newer catalog has replaced it
            return
        except CatalogError as error:
            logger.error("refused catalog %s: %s; bidding from the one before", self._path, error)
            self._swaps.inc("refused")
            self._refused = version
            return
        await self._swap(catalog)
        self._swaps.inc("taken_up")
        self._current = version

    def _map(self) -> Catalog:
        """Map the file and unmap retired ones; slow, so run in a thread."""
        self._retired.clear()
        return Catalog.open(self._path, self.snapshot.catalog if self.snapshot else None)

    async def _swap(self, catalog: Catalog) -> None:
        before = self.snapshot
        snapshot = self._build(catalog, before)
        if before is not None:
            await snapshot.carry_over(before)
            self._retired.append(before)
        self.snapshot = snapshot
        self._use(snapshot, before)

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:
                logger.exception("failed to put the catalog %s into service; retrying", self._path)
            await beat(LOOK_EVERY_S)
