"""Follow replacements of the files that a worker bids from: catalog and audience members."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from snapbid.base.beat import BEAT_S, beat
from snapbid.base.tasks import end
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog._members import MemberBook
from snapbid.catalog.catalog import Catalog, CatalogError, Stamp, stamp_of
from snapbid.catalog.members import MEMBERS, OpenMembers, open_members
from snapbid.metrics import Metrics

LOOK_EVERY_S: Final = BEAT_S / 2  # for changes to take effect within 250 ms

logger = logging.getLogger(__name__)


class MemberFollower:
    """Maps the file of audience members whenever it is replaced, and puts the members into `book`.

    An invalid file is logged once; the current members stay in use.
    """

    def __init__(self, path: Path, book: MemberBook) -> None:
        self._path = path
        self._book = book
        self._open: OpenMembers | None = None
        self._seen: Stamp | None = None

    async def look(self) -> None:
        """Switch to the members in the file if the file has changed."""
        try:
            version = stamp_of(self._path)
            if version in (None, self._seen):
                return
            opened = await asyncio.to_thread(open_members, self._path, self._open)
        except FileNotFoundError:  # also if its base is gone: then a newer file has replaced it
            return
        except CatalogError as error:
            logger.error(
                "refused the members file %(path)s: %(reason)s; keeping the previous one",
                {"path": self._path, "reason": error},
            )
        else:
            self._open = opened
            self._book.use(opened.members)
        self._seen = version


class CatalogFollower:
    """Maps the catalog at `path` whenever the file is replaced.

    `build` makes a snapshot of the catalog, given the previous snapshot; `use` puts it into service
    atomically. An invalid file is logged once, and the current snapshot stays in service. A catalog
    that depends on persons (audiences, self-exclusions) is not used until `members` are published;
    otherwise, persons who have opted out might get advertisements.
    """

    def __init__(
        self,
        path: Path,
        metrics: Metrics,
        build: Callable[[Catalog, CatalogSnapshot | None], CatalogSnapshot],
        use: Callable[[CatalogSnapshot, CatalogSnapshot | None], None],
        members: MemberBook,
    ) -> None:
        self.snapshot: CatalogSnapshot | None = None
        self._path = path
        self._members = members
        self._member_follower = MemberFollower(path.with_name(MEMBERS), members)
        self._build = build
        self._use = use
        # Both exist from the start: Prometheus' `increase` misses the count a series begins with.
        self._swaps = {
            result: metrics.counter("snapbid_catalog_swaps_total", result=result)
            for result in ("taken_up", "refused")
        }
        self._current: Stamp | None = None
        self._refused: Stamp | None = None
        self._retired: list[CatalogSnapshot] = []
        self._waits = False  # for the members
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start checking the file every LOOK_EVERY_S."""
        self._task = asyncio.create_task(self._keep_looking())

    async def stop(self) -> None:
        if self._task is not None:
            await end(self._task)

    async def look(self) -> None:
        """Put the catalog in the file into service, unless it is in service already."""
        await self._member_follower.look()
        try:
            version = stamp_of(self._path)
            if version is None:
                return
            if version == self._current:
                if self._retired:
                    await asyncio.to_thread(self._retired.clear)
                return
            if version == self._refused:
                return
            catalog = await asyncio.to_thread(self._map)
        except FileNotFoundError:  # also if its base is gone: then a newer catalog has replaced it
            return
        except CatalogError as error:
            has_other = self.snapshot is not None
            follows = (
                "bidding from the previous one" if has_other else "no bids until it is replaced"
            )
            logger.error(
                "refused catalog %(path)s: %(reason)s; %(follows)s",
                {"path": self._path, "reason": error, "follows": follows},
            )
            self._swaps["refused"].inc()
            self._refused = version
            return
        if self._members.current is None and catalog.depends_on_persons:
            if not self._waits:
                logger.info(
                    "not using catalog %(path)s yet: campaigns depend on audiences, but their"
                    " members are not published",
                    {"path": self._path},
                )
            self._waits = True
            return
        await self._swap(catalog)
        self._swaps["taken_up"].inc()
        self._current = version

    def _map(self) -> Catalog:
        """Map the file, and unmap retired files. This is slow: run it in a thread."""
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
                logger.exception(
                    "failed to switch to the catalog %(path)s; retrying",
                    {"path": self._path},
                )
            await beat(LOOK_EVERY_S)
