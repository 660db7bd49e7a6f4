"""Compares the matcher with the plain bidder of the tests over a changing warehouse."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import asyncpg

from bench import pools, requests
from bench.about import ROOT
from bench.market import NOW_MS, SSP, lookups
from snapbid.exchange import privacy
from snapbid.exchange.market import Market
from snapbid.match.catalog import Base, Catalog, encode, write
from snapbid.publisher.overlay import Overlay
from snapbid.reference import agents, countries, rates
from snapbid.reference.geo import DEFAULT_PATH, GeoDatabase
from snapbid.warehouse import campaigns as table

sys.path.append(str(ROOT / "tests"))

from support.crowd import Changes, Crowd, compare
from support.oracle_reading import World

ROUNDS: Final = 4
REQUESTS: Final = 60  # a round; those of the previous round are asked again
NO_BIDS: Final = 3  # besides; for each the oracle examines every candidate
CHANGES: Final = 150  # a round, and as many new campaigns


class _Warehouse:
    """Stores changes and publishes them as the publisher does."""

    def __init__(self, dsn: str, base: Base, folder: Path) -> None:
        self._dsn = dsn
        self._path = folder / "agreement"
        self._overlay = Overlay(base)

    def publish(self, changes: Changes) -> Market:
        ssps = {name: (of, number) for number, (name, of) in enumerate(pools.REGISTRY.items(), 1)}
        self._overlay.apply(asyncio.run(self._changed(changes)))
        index, base = self._overlay.build(), self._overlay.base
        write(self._path, encode(ssps, rates.load(), index, base=base))
        catalog = Catalog.open(self._path)
        return Market(catalog, lookups(catalog))

    async def _changed(self, changes: Changes) -> table.Changes:
        connection = await asyncpg.connect(self._dsn)
        try:
            kept = [(id, json.dumps(new)) for id, new in changes.items() if new is not None]
            await table.replace_many(connection, kept)
            gone = [id for id, new in changes.items() if new is None]
            await connection.execute("delete from campaign where id = any($1)", gone)
            return await table.fetch_since(connection, self._overlay.revision)
        finally:
            await connection.close()


async def _documents(dsn: str) -> list[bytes]:
    """All campaign documents of a warehouse."""
    documents: list[bytes] = []
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction(readonly=True):
            await table.copy_all(
                connection, None, lambda rows: documents.extend(row[1] for row in rows)
            )
    finally:
        await connection.close()
    return documents


def agreement(dsn: str, base: Base, folder: Path) -> dict[str, Any]:
    """How many requests were compared and how many differ. Changes the warehouse."""
    plain = world()
    crowd = Crowd(plain, asyncio.run(_documents(dsn)))
    tally = compare(crowd, plain, SSP, _rounds(), _Warehouse(dsn, base, folder).publish, CHANGES)
    for difference in tally.differences[:5]:
        print("differs:", difference, file=sys.stderr)
    return asdict(tally) | {"differences": len(tally.differences)}


def _rounds() -> Sequence[Sequence[Any]]:
    drawn = requests.make(ROUNDS * REQUESTS, seed=3)
    drawn += requests.no_bids(requests.make(ROUNDS * NO_BIDS, seed=4))
    return [drawn[number::ROUNDS] for number in range(ROUNDS)]


def world() -> World:
    """The world of the oracle, with the product's reference tables."""
    return World(
        campaigns=[],
        registry=dict(pools.REGISTRY),
        now=datetime.fromtimestamp(NOW_MS / 1000, UTC),
        country_of_ip=GeoDatabase(DEFAULT_PATH).country,
        agent=agents.parse,
        fold_os=agents.fold_os,
        brand=agents.brand,
        alpha3=countries.alpha3,
        usd=rates.load().usd,
        may_use_user_data=lambda gvl_id, **given: privacy.may_use_user_data(
            privacy.PrivacySignals(**given), gvl_id
        ),
    )
