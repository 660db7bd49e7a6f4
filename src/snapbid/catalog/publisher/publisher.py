"""The publisher thread, which reads changes in the warehouse and replaces the catalog files.

If there are many campaigns, most are in a base, which a separate process rebuilds now and then.
Later changes are in a small overlay, which is rewritten after each change. The publisher runs in a
thread of the process that starts the workers, so it never delays a request.

If killed at any moment, it leaves complete files behind: a catalog names a base only once it is
complete, and a base is removed only when no catalog names it. The next publisher continues with
that base.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic, perf_counter, time
from typing import Final

import asyncpg
from msgspec import structs

from snapbid.base.days import utc_day
from snapbid.base.tasks import LoopThread
from snapbid.catalog import catalog
from snapbid.catalog.catalog import Base, Catalog, CatalogError, EventConfig, Head, Stamp, stamp_of
from snapbid.catalog.members import MEMBERS
from snapbid.catalog.publisher.base import make_base, remove_others
from snapbid.catalog.publisher.members import MemberPublisher
from snapbid.catalog.publisher.overlay import Overlay
from snapbid.catalog.publisher.sharing import ObtainedBase, layout
from snapbid.reference import rates
from snapbid.warehouse import (
    bases,
    campaigns,
    conversions,
    fence,
    persons,
    products,
    registry,
    suspensions,
)
from snapbid.warehouse import rates as operator_rates
from snapbid.warehouse.unavailable import UNAVAILABLE, describe

CHANNEL: Final = "snapbid_catalog"
RETRY_S: Final = 0.5
CHECK_EVERY_S: Final = 30.0  # checks that the connection is alive
REJECTED_S: float = 5.0  # between a base that could not be used and the next
FILES_EVERY_S: Final = 1.0  # checks that the published files are intact
PAUSE_S: Final = 0.02  # lets changes accumulate
OLDEST_RATES_DAYS: Final = 90
MOST: Final = 50_000  # changes applied at once, one second of work; more need a new base

logger = logging.getLogger(__name__)


class CatalogPublisher:
    """A thread that publishes the catalog to `path` until stopped."""

    def __init__(self, dsn: str, path: Path) -> None:
        self._dsn = dsn
        self._path = path
        self._members = MemberPublisher(dsn, path.with_name(MEMBERS))
        self._overlay: Overlay | None = None
        self._served: Overlay | None = None  # as last published, or over the base found
        self._warehouse = ""
        self._identity = ""
        self._making: asyncio.Task[ObtainedBase] | None = None
        self._published: tuple[Head, int] | None = None
        self._written: Stamp | None = None  # of the published file
        self._logged: set[str] = set()  # why nothing could be published since the last time
        self._bank = rates.load()
        self.published_at: float | None = None  # epoch s
        self.checked_at: float | None = None  # epoch s: when the catalog was last up to date
        self.bases = Counter({"built": 0, "fetched": 0})  # made here, or by another machine
        self._changed = asyncio.Event()
        self._thread = LoopThread("publisher", self._publish_for_ever)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread without publishing unfinished files."""
        self._thread.stop()

    async def _publish_for_ever(self) -> None:
        self._warn_of_old_rates()
        await asyncio.gather(
            self._keep(self._follow, "the catalog"),
            self._keep(self._members.follow, "the members of audiences"),
        )

    def _warn_of_old_rates(self) -> None:
        if (utc_day(time()) - self._bank.date).days > OLDEST_RATES_DAYS:
            logger.warning(
                "exchange rates are outdated: bids, floors and events are converted with those of"
                " %(date)s; install a newer release, or import rates (snapbid rates import)",
                {"date": self._bank.date},
            )

    async def _keep(self, follow: Callable[[], Awaitable[None]], what: str) -> None:
        while True:
            try:
                await follow()
            except catalog.UnwritableError as error:
                self._log_once(str(error))
            except UNAVAILABLE as error:
                self._log_once(describe(error, self._dsn))
            except Exception:
                logger.exception("failed to publish %(subject)s; retrying", {"subject": what})
            await asyncio.sleep(RETRY_S)

    def _log_once(self, why: str) -> None:
        """Log why the catalog or the members are not updated, but each reason only once."""
        if why not in self._logged:
            self._logged.add(why)
            logger.warning(
                "did not publish the catalog or its members: %(reason)s; keeping the last files",
                {"reason": why},
            )

    async def _follow(self) -> None:
        """Publish after each change until the connection is lost."""
        connection = await bases.connect_following(self._dsn, bases.PUBLISHER)
        try:
            await connection.add_listener(CHANNEL, lambda *_: self._changed.set())
            connection.add_termination_listener(lambda *_: self._changed.set())
            while not connection.is_closed():
                self._changed.clear()
                await self._go_on(connection)
                await self._publish(connection)
                self._logged.clear()
                await self._await_change()
                await asyncio.sleep(PAUSE_S)
        finally:
            connection.terminate()

    async def _await_change(self) -> None:
        """Wait until the warehouse or the catalog's files have changed, or a check is due."""
        until = monotonic() + CHECK_EVERY_S
        while not self._changed.is_set() and monotonic() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FILES_EVERY_S):
                    await self._changed.wait()
            if self._making is None and not self._is_intact():
                return

    def _is_intact(self) -> bool:
        """Return whether the published catalog is unchanged and its base's file still exists."""
        base = self._overlay.base if self._overlay else None
        return self._written == stamp_of(self._path) and (base is None or self._has_file(base))

    def _has_file(self, base: Base) -> bool:
        stamp = stamp_of(self._path.with_name(base.name))
        return stamp is not None and stamp.size == base.size

    async def _go_on(self, connection: asyncpg.Connection) -> None:
        """Continue from this warehouse's overlay or published catalog, or start afresh.

        The campaigns may have been restored, truncated or rewritten since the last time.
        """
        state = await campaigns.fetch_state(connection)
        identity = await fence.identity(connection)
        held = self._overlay
        if held is None:
            base = await asyncio.to_thread(self._published_base, state)
            self._served = Overlay(base) if base else None
            is_current = base is not None and base.layout == await asyncio.to_thread(layout)
            self._overlay = self._served if is_current else Overlay(None)
        elif state.warehouse != self._warehouse or state.revision < held.revision:
            self._overlay, self._published = Overlay(None), None
            if identity != self._identity:
                self._served = None
            elif self._served is not None:
                self._served.rebase(state.revision)
        self._warehouse = state.warehouse
        self._identity = identity

    def _published_base(self, state: campaigns.WarehouseState) -> Base | None:
        try:
            base = Catalog.open(self._path).base
            if base is None or base.warehouse != state.warehouse:
                return None
            if base.revision > state.revision:
                return None
            is_whole = catalog.checksum_of(self._path.with_name(base.name)) == base.checksum
            return base if is_whole else None
        except (OSError, CatalogError):
            return None

    async def _publish(self, connection: asyncpg.Connection) -> None:
        """Read the changes and, if there are any, replace the catalog."""
        overlay = await self._current_overlay(connection)
        if overlay.revision == 0 and await self._is_behind(connection, overlay):
            self._make_base(urgent=self._served is None)
            if self._served is None:
                return
            overlay = self._overlay = self._served  # with later changes, until the base is ready
        if await self._is_behind(connection, overlay):
            self._make_base()
            overlay.skip((await campaigns.fetch_state(connection)).revision)
        head = await self._read_head(connection, overlay)
        changes = await campaigns.fetch_since(connection, overlay.revision)
        state = head, changes.revision
        if state == self._published and self._written == stamp_of(self._path):
            self.checked_at = time()
            return
        started = perf_counter()
        overlay.apply(changes)
        index = overlay.build()
        pieces = catalog.encode(structs.replace(head, revision=overlay.complete), index)
        self._written = catalog.write(self._path, pieces)
        self._published = state
        self.published_at = self.checked_at = time()
        self._served = overlay
        if self._making is None:
            remove_others(self._path.parent, overlay.base)
        self._log(overlay, len(head.ssps), perf_counter() - started)
        if overlay.is_large:
            self._make_base()

    async def _is_behind(self, connection: asyncpg.Connection, overlay: Overlay) -> bool:
        """Return whether more than MOST campaigns have changed since the overlay's revision."""
        return await campaigns.count_since(connection, overlay.revision, MOST + 1) > MOST

    def _log(self, overlay: Overlay, ssps: int, seconds: float) -> None:
        changed = " changed since the base of %(base)d" if overlay.base else ""
        logger.info(
            f"published the catalog: %(campaigns)d campaigns{changed}, %(ssps)d SSPs,"
            " in %(seconds).3f s",
            {
                "campaigns": len(overlay),
                "base": overlay.base.campaigns if overlay.base else 0,
                "ssps": ssps,
                "seconds": seconds,
            },
        )

    async def _read_head(self, connection: asyncpg.Connection, overlay: Overlay) -> Head:
        """Read everything in the catalog except campaigns."""
        keys = await products.fetch_keys(connection)
        own_rates = await operator_rates.fetch_all(connection)
        return Head(
            ssps=await registry.fetch_numbered(connection),
            rates=self._bank.overridden(own_rates),
            events=EventConfig(keys, own_rates),
            base=overlay.base,
            warehouse=self._identity,
            access=await registry.fetch_access(connection),
            suspensions=tuple(await suspensions.fetch_suspended(connection)),
            suppression=await persons.fetch_suppression(connection),
            former=tuple(await registry.fetch_former(connection)),
            former_ids=await registry.fetch_former_ids(connection),
            ledger=tuple(await fence.own_ledger(connection)),
            click_key=await conversions.fetch_signing_key(connection),
        )

    # -- the base ---------------------------------------------------------------------------------

    def _make_base(self, pause_s: float = 0.0, *, urgent: bool = False) -> None:
        """Start building a base after a pause, unless one is being built.

        `urgent`: nothing can be published before it is ready.
        """
        if self._making is None:
            base = self._overlay.base if self._overlay else None
            after = base.revision if base else -1

            async def make() -> ObtainedBase:
                await asyncio.sleep(pause_s)
                return await make_base(self._dsn, self._path.parent, urgent=urgent, after=after)

            self._making = asyncio.create_task(make())
            self._making.add_done_callback(lambda _: self._changed.set())

    async def _current_overlay(self, connection: asyncpg.Connection) -> Overlay:
        """Return the overlay to publish.

        First replaces the base if a new one is ready and not outdated.
        """
        assert self._overlay is not None
        base = self._overlay.base
        if base is not None and not self._has_file(base):
            self._overlay = Overlay(None)
        if self._making is not None and self._making.done():
            obtained = self._making.result()
            self.bases["fetched" if obtained.is_fetched else "built"] += 1
            why = await self._why_outdated(connection, obtained.base)
            self._making = None
            if why is None:
                self._overlay = Overlay(obtained.base)
            else:
                self._reject(obtained.base, why)
        return self._overlay

    async def _why_outdated(self, connection: asyncpg.Connection, made: Base) -> str | None:
        """Return why a new base cannot be used; None if it is usable."""
        if made.warehouse != self._warehouse:
            return "the table of campaigns was rewritten, truncated or restored meanwhile"
        # Later changes are applied again; if there are too many, a newer base is needed.
        since = await campaigns.count_since(connection, made.revision, MOST + 1)
        if since > MOST and self._served is not None:
            return f"more than {MOST} campaigns have changed since"
        return None

    def _reject(self, base: Base, why: str) -> None:
        logger.warning(
            "rejected the base of revision %(revision)d: %(reason)s; building another in"
            " %(pause_s).0f s",
            {"revision": base.revision, "reason": why, "pause_s": REJECTED_S},
        )
        self._path.with_name(base.name).unlink(missing_ok=True)
        self._make_base(REJECTED_S, urgent=self._served is None)
