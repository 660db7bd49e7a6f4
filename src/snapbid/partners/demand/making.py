"""Builds the clauses of all SSPs from the warehouse's campaigns, and stores them as rules.

`python -m snapbid.partners.demand.making` is run by the drain, with the warehouse's address on
stdin. It exits when stdin is closed, so it never outlives the drain.
"""

import asyncio
import hashlib
import os
import sys
from collections.abc import Mapping
from time import time

import asyncpg
import msgspec

from snapbid.base.child import exit_with_parent
from snapbid.campaigns import normalised
from snapbid.partners.demand.clauses import Clauses, admits, clauses_of, reduced
from snapbid.partners.demand.rules import rules_of
from snapbid.reference import rates
from snapbid.warehouse import campaigns, demand, registry
from snapbid.warehouse import rates as operator_rates
from snapbid.warehouse.campaigns import CampaignRow
from snapbid.warehouse.demand import DemandSignal
from snapbid.warehouse.unavailable import UNAVAILABLE, session


async def make(dsn: str) -> None:
    """Build and store the demand rules of every canonical id.

    Raises asyncpg's errors, or OSError if the warehouse is unreachable.
    """
    async with session(dsn) as connection:
        ssps = await registry.fetch_all(connection)
        families: dict[str, dict[str, str]] = {}
        for descriptor, canonical in ssps.items():
            families.setdefault(canonical, {})[descriptor] = canonical
        bid_rates = rates.load().overridden(await operator_rates.fetch_all(connection))
        signals = {}
        for ssp, clauses in (await _read(connection, families)).items():
            body = msgspec.json.encode(rules_of(ssp, clauses, bid_rates.usd))
            signals[ssp] = DemandSignal(hashlib.sha256(body).hexdigest()[:32], body)
        await demand.store(connection, signals)


async def _read(
    connection: asyncpg.Connection, families: Mapping[str, Mapping[str, str]]
) -> dict[str, Clauses]:
    """Return the clauses of each family of descriptors, by canonical id."""
    now_ms = int(time() * 1000)
    of_all: Clauses = {}
    own: dict[str, Clauses] = {name: {} for name in families}

    def take(rows: list[CampaignRow]) -> None:
        for row in rows:
            if row.is_active:
                _take(row)

    def _take(row: CampaignRow) -> None:
        try:
            campaign = normalised.load(
                row.content, is_normalised=row.is_normalised, is_active=row.is_active
            )
        except ValueError:
            return  # it does not bid either
        if "ssp" in campaign.targeting:
            targets = [own[name] for name, family in families.items() if admits(campaign, family)]
        else:
            targets = [of_all]
        for clause, micros in clauses_of(campaign, now_ms):
            for clauses in targets:
                clauses[clause] = max(clauses.get(clause, 0), micros)

    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await campaigns.copy_all(connection, normalised.RULES, take)
    return {name: reduced([*of_all.items(), *clauses.items()]) for name, clauses in own.items()}


def main() -> None:
    """Build the demand rules once; exit with status 1 if the warehouse is unavailable."""
    dsn = sys.stdin.buffer.readline().decode().strip()
    exit_with_parent()
    os.nice(10)
    try:
        asyncio.run(make(dsn))
    except UNAVAILABLE:
        sys.exit(1)  # the drain logs it


if __name__ == "__main__":
    main()
