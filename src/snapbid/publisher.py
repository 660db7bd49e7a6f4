"""Keeps the catalog's file equal to the warehouse: listens, reads what changed, builds, swaps.

It runs in a thread of the process that starts the workers, and so never delays a request.
"""

import asyncio
import contextlib
import logging
import threading
from pathlib import Path
from time import perf_counter, time
from typing import Final

import asyncpg

from snapbid.events import keys
from snapbid.match import catalog, stored
from snapbid.match.compile import Builder, put
from snapbid.reference import rates
from snapbid.warehouse import campaigns, products, registry
from snapbid.warehouse import rates as operator_rates
from snapbid.warehouse.away import AWAY

CHANNEL: Final = "snapbid_catalog"
RETRY_S: Final = 0.5
CHECK_EVERY_S: Final = 30.0  # that the connection still lives

logger = logging.getLogger("snapbid")


class Publisher:
    """Publishes the catalog to `path` until stopped."""

    def __init__(self, dsn: str, path: Path) -> None:
        self._dsn = dsn
        self._path = path
        self._builder = Builder()
        self._revision = 0
        self._ssps: dict[str, tuple[str, int]] | None = None
        self._events = b""
        self._rates = rates.load()
        self.campaigns = 0  # in the catalog
        self.published_at: float | None = None  # epoch s
        self.checked_at: float | None = None  # when the warehouse was last asked
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; what is being built is not published."""
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._task = self._loop.create_task(self._publish_for_ever())
            self._loop.run_until_complete(self._task)
        self._loop.close()

    async def _publish_for_ever(self) -> None:
        while True:
            try:
                await self._follow()
            except AWAY as error:
                logger.warning("the warehouse is away, the catalog stays as it is: %s", error)
            except Exception:
                logger.exception("the catalog could not be published")
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        """Publishes after each change, until the connection is lost."""
        changed = asyncio.Event()
        connection = await asyncpg.connect(self._dsn, timeout=10)
        try:
            await connection.add_listener(CHANNEL, lambda *_: changed.set())
            connection.add_termination_listener(lambda *_: changed.set())
            while not connection.is_closed():
                changed.clear()
                await self._publish(connection)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), CHECK_EVERY_S)
        finally:
            connection.terminate()

    async def _publish(self, connection: asyncpg.Connection) -> None:
        """Reads what changed and, if anything did, puts a new file in place."""
        ssps = await registry.fetch_numbered(connection)
        changes = await campaigns.fetch_since(connection, self._revision)
        events = await self._read_events(connection)
        self.checked_at = time()
        same = (ssps, events, changes.revision) == (self._ssps, self._events, self._revision)
        if same and self._path.exists():
            return
        started = perf_counter()
        for id in changes.deleted:
            self._builder.discard(id)
        for row in changes.changed:
            self._put(row)
        index = self._builder.build()
        catalog.write(self._path, catalog.encode(ssps, self._rates, index, events))
        self._ssps, self._events, self._revision = ssps, events, changes.revision
        self.published_at, self.campaigns = time(), len(self._builder)
        logger.info(
            "published %d campaigns, %d SSPs in %.3f s",
            len(self._builder),
            len(ssps),
            perf_counter() - started,
        )

    async def _read_events(self, connection: asyncpg.Connection) -> bytes:
        """What server events need of the warehouse, as the catalog carries it."""
        issued = await products.fetch_keys(connection)
        return keys.encode(issued, await operator_rates.fetch_all(connection))

    def _put(self, row: campaigns.Stored) -> None:
        try:
            campaign = stored.read(row.document)
            put(self._builder, campaign, row.number, row.created_at_ms)
        except ValueError as error:  # written past the import, by hand
            self._builder.discard(row.id)
            logger.error("campaign %a does not bid: %s", row.id[:60], str(error)[:500])
