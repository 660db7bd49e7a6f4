"""The self-audit (contract 11): nothing is found without a defect, and each defect is."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import invoke
from support.machine import Machine, temporary_home
from support.ops import bid, prepare, samples
from support.processes import children_of, eventually
from support.remembered import NOON
from support.restoring import PRICE, Stores
from support.spending import limits, reserve
from support.stack import connected, execute

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.audit import Auditor, report_of
from snapbid.ledger.admin.audits import (
    COMPARISONS,
    AuditReport,
    Difference,
    fetch_audit,
    write_audit,
)
from snapbid.ledger.bids.records import BILLING, LOSS, WIN

BUDGET = 1_000_000  # micro-USD
DAY_S = 86_400
TODAY = f"d{int(NOON // DAY_S)}"
MIDNIGHT = NOON + DAY_S / 2


@pytest.fixture
async def stores(stores: Stores) -> Stores:
    """Some wins of two campaigns, drained."""
    await stores.drain()
    async with stores.ledger() as ledger:
        assert await stores.sell(ledger, 5, limits(1, total=BUDGET)) == 5
        assert await stores.sell(ledger, 3, campaign=2) == 3
    await stores.drain()
    return stores


class Audits:
    def __init__(self, stores: Stores, auditor: Auditor, connection: Any) -> None:
        self._stores = stores
        self._auditor = auditor
        self._connection = connection

    async def __call__(self, times: int = 1) -> list[Difference]:
        found: list[Difference] = []
        for _ in range(times):
            found = await self._auditor.audit(self._connection)
        return found


@pytest.fixture
async def audit(stores: Stores) -> AsyncIterator[Audits]:
    client = stores.client()
    async with connected(stores.dsn) as connection:
        yield Audits(stores, Auditor(client, stores.shards, stores.clock), connection)
    await client.aclose()


async def test_nothing_differs_without_a_defect(stores: Stores, audit: Audits) -> None:
    assert await audit(3) == []
    async with stores.ledger() as ledger:
        await stores.sell(ledger, 4, limits(1, total=BUDGET))
        assert await audit() == []  # it is under way
        await stores.drain()
        assert await audit(2) == []


async def test_counts_in_flight_too_long_are_a_difference(stores: Stores, audit: Audits) -> None:
    """Counters that no drain carries."""
    async with stores.ledger() as ledger:
        await stores.sell(ledger, 1, campaign=2)
    assert await audit() == []
    found = await audit()
    assert {each.comparison for each in found} == {"counters", "budgets"}
    assert ("W:2", 4, 3) in {(_field(each), each.first, each.second) for each in found}
    await stores.drain()
    assert await audit() == []


@pytest.mark.parametrize(
    ("defect", "comparison", "what", "first", "second"),
    [
        ("update bid_daily set wins = wins + 1", "reports", "w of acme", 8, 9),
        (
            "update campaign_daily set win_cpm_micros = win_cpm_micros - 1 where campaign = 'c-1'",
            "reports", "P of c-1", 100_000_000, 99_999_999,
        ),
        ("delete from campaign_daily where campaign = 'c-2'", "reports", "W of c-2", 3, 0),
        ("delete from bid_daily", "campaigns", "wins", 0, 8),
        ("update drain_absorbed set value = value - 1 where kind = 'W' and number = 1",
         "counters", "W:1", 5, 4),
        ("delete from drain_absorbed where kind = 'P' and number = 2",
         "counters", "P:2", 60_000_000, 0),
        ("update campaign_daily set win_cpm_micros = 0 where campaign = 'c-2'",
         "campaigns", "CPM", 160_000_000, 100_000_000),
        ("update campaign_daily set spend_micros = spend_micros + 1 where campaign = 'c-1'",
         "reports", "spend of c-1", 100_000, 100_001),
        ("insert into anomaly_daily select min(day), 'acme', 'win_duplicate', 5, true"
         " from bid_daily", "reports", "win_duplicate of acme", 0, 5),
    ],
)  # fmt: skip
async def test_a_defect_of_the_warehouse_is_found(
    stores: Stores, audit: Audits, defect: str, comparison: str, what: str, first: int, second: int
) -> None:
    assert await audit() == []
    async with connected(stores.dsn) as connection:
        await connection.execute(defect)
    assert await audit() == []
    figures = {(each.comparison, _field(each), each.first, each.second) for each in await audit()}
    assert (comparison, what, first, second) in figures


@pytest.mark.parametrize(
    ("key", "field", "by", "comparison", "what", "first", "second"),
    [
        ("counters", "W:1", 1, "counters", "W:1", 6, 5),
        ("counters", "b:1", -2, "counters", "b:1", 6, 8),
        ("money:1", "t", -20_000_000, "budgets", "spent by c-1 in all", 80_000_000, 100_000_000),
        ("money:1", TODAY, -1, "budgets", "spent by c-1", 99_999_999, 100_000_000),
        ("money:3", "t", 1, "budgets", "spent by c-3 in all", 1, 0),
        ("accepted", f"{int(NOON // 60)} casino", 2, "events",
         "events of casino at 2030-06-15 12:00", 2, 0),
    ],
)  # fmt: skip
async def test_a_defect_of_the_ledger_is_found(
    stores: Stores, audit: Audits, key: str, field: str, by: int, comparison: str, what: str,
    first: int, second: int,
) -> None:  # fmt: skip
    assert await audit() == []
    client, keys = stores.client(), ShardKeys(0)
    names = {f"money:{number}": f"{keys.prefix}m:{number}" for number in (1, 3)}
    names["accepted"] = keys.accepted
    async for name in client.scan_iter(f"{keys.prefix}c:*"):
        names["counters"] = name
    await client.hincrby(names[key], field, by)
    await client.aclose()
    assert await audit() == []
    figures = {(each.comparison, _field(each), each.first, each.second) for each in await audit()}
    assert (comparison, what, first, second) in figures


@pytest.mark.parametrize(
    ("defects", "found"),
    [
        (dict.fromkeys(("hold", "t", TODAY), -2 * PRICE),
         ("holds", "holds of c-1 that ended early", 2 * PRICE, 0)),
        ({"hold": 1}, ("budgets", "spent by c-1 in all", 5 * PRICE - 1, 5 * PRICE)),
        ({"queue": 0}, ("budgets", "spent by c-1 in all", 7 * PRICE, 5 * PRICE)),
    ],
)  # fmt: skip
async def test_a_defect_of_holds_is_found(
    stores: Stores, audit: Audits, defects: dict[str, int], found: tuple[str, str, int, int]
) -> None:
    async with stores.ledger() as ledger:
        bids = [(imp, PRICE, limits(1, total=BUDGET)) for imp in (b"1", b"2")]
        assert await reserve(ledger, b"open", *bids) == "kk"
    await stores.drain()
    assert await audit(2) == []
    key = f"{ShardKeys(0).prefix}m:1"
    async with contextlib.aclosing(stores.client()) as client:
        fields: Any = await client.hkeys(key)
        (hold,) = [field.decode() for field in fields if field.startswith(b"e")]
        for field, by in defects.items():
            if field == "queue":
                await client.delete(f"{ShardKeys(0).prefix}x:1")
            else:
                await client.hincrby(key, hold if field == "hold" else field, by)
    figures = {(each.comparison, _field(each), each.first, each.second) for each in await audit(2)}
    assert found in figures


@pytest.mark.parametrize(
    ("store", "defect", "comparison", "what"),
    [
        ("warehouse", "update bid_daily set bids = bids + 1", "reports", "b of acme"),
        ("ledger", -1, "budgets", "spent by c-1 in all"),
        ("ledger", 3 * PRICE, "budgets", "spent by c-1 in all"),
    ],
)
async def test_a_defect_is_found_while_bids_are_won(
    stores: Stores, audit: Audits, store: str, defect: Any, comparison: str, what: str
) -> None:
    """Between two audits the figures move."""
    assert await audit() == []
    if store == "warehouse":
        async with connected(stores.dsn) as connection:
            await connection.execute(defect)
    else:
        async with contextlib.aclosing(stores.client()) as client:
            await client.hincrby(f"{ShardKeys(0).prefix}m:1", "t", defect)
    async with stores.ledger() as ledger:
        for _ in range(2):
            await stores.sell(ledger, 1, limits(1, total=BUDGET))
            await stores.drain()
            found = await audit()
    assert {(each.comparison, _field(each)) for each in found} == {(comparison, what)}


async def test_counts_in_flight_are_no_difference(stores: Stores, audit: Audits) -> None:
    """In each audit some counts wait, others than the last time."""
    async with stores.ledger() as ledger:
        for _ in range(3):
            await stores.sell(ledger, 2, limits(1, total=BUDGET))
            assert await audit() == []
            await stores.drain()


async def test_each_campaign_gets_its_turn(
    stores: Stores, audit: Audits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapbid.drain.audit.CAMPAIGNS", 1)
    async with contextlib.aclosing(stores.client()) as client:
        await client.hincrby(f"{ShardKeys(0).prefix}m:2", "t", 1)
    found = [{_field(each) for each in await audit()} for _ in range(6)]
    assert found[3:] == [{"spent by c-2 in all"}] * 3


HISTORIES = {
    "a restart of Redis": ("restart", "c"),
    "an older ledger": ("ledger", "u"),
    "an empty ledger": ("nothing", "u"),
    "an older warehouse": ("warehouse", "c"),
    "an older ledger, then an older warehouse": ("ledger warehouse", "u"),
    "an older warehouse, then an older ledger": ("warehouse ledger", "u"),
    "SSPs added, moved and removed": ("ssps", "c"),
    "a deleted campaign": ("campaign", "c"),
    "midnight": ("midnight", "c"),
    "a win after 02:00": ("late", "l"),
    "a restart, and a win after 02:00": ("midnight restart late", "l"),
}
"""What happens, and what becomes of a win afterwards."""
CHANGES = {
    "ssps": "insert into ssp values ('acme-new', 'acme');"
    " update ssp set canonical = 'nova' where descriptor = 'acme-video';"
    " select ssp_regroup('acme-video'); delete from ssp where descriptor = 'acme-eu'",
    "campaign": "delete from campaign where id = 'c-1'",
}


@pytest.mark.parametrize(("history", "won"), HISTORIES.values(), ids=HISTORIES)
async def test_nothing_differs_whatever_happens(stores: Stores, history: str, won: str) -> None:
    daily = limits(1, total=BUDGET, daily=BUDGET)
    steps = history.split()
    ledger_copy = stores.copy_ledger() if "ledger" in steps else None
    await stores.drain()
    warehouse_copy = stores.copy_warehouse() if "warehouse" in steps else ""
    if steps[0] in ("midnight", "late"):
        stores.clock.now = MIDNIGHT - 10
    async with stores.ledger(ttl_s=DAY_S) as ledger:
        assert await stores.sell(ledger, 4, daily) == 4
        assert await reserve(ledger, b"open", (b"1", PRICE, daily)) == "k"
    await stores.drain()
    for step in steps:
        if step == "restart":
            stores.restart_ledger()
        elif step in ("ledger", "nothing"):
            stores.restore_ledger(ledger_copy)
        elif step == "warehouse":
            stores.restore_warehouse(warehouse_copy)
        elif step in ("midnight", "late"):
            stores.clock.now = MIDNIGHT + (10 if step == "midnight" else 3 * 3600)
        elif step in CHANGES:
            async with connected(stores.dsn) as connection:
                await connection.execute(CHANGES[step])
    await stores.drain(2)
    async with stores.ledger(ttl_s=DAY_S) as ledger:
        assert await ledger.settle(WIN, b"open", b"1") == won
        for kind in (LOSS, WIN, BILLING, BILLING, LOSS):
            await ledger.settle(kind, b"auction 1", b"1", 1)
        assert await stores.sell(ledger, 2, daily) == 2
    await stores.drain(2)
    async with contextlib.aclosing(stores.client()) as client, connected(stores.dsn) as connection:
        auditor = Auditor(client, stores.shards, stores.clock)
        assert await auditor.audit(connection) == []
        assert await auditor.audit(connection) == []


async def test_a_report_is_kept_in_the_ledger(stores: Stores) -> None:
    client = stores.client()
    assert await fetch_audit(client) is None
    found = [Difference("budgets", f"campaign number {n}", n, 0) for n in range(1, 31)]
    await write_audit(client, report_of(found, 1.5))
    report = await fetch_audit(client)
    await client.aclose()
    counts = dict.fromkeys(COMPARISONS, 0) | {"budgets": 30}
    assert report == AuditReport(1.5, counts, found[:20])


@pytest.mark.long  # an audit a minute, and the first after ten seconds
def test_a_process_beside_the_drain_audits_and_the_status_names_what_differs() -> None:
    with temporary_home() as home, contextlib.closing(Machine(home)) as machine:
        prepare(machine.postgres.dsn)
        machine.start()
        environ = {
            name: text
            for name, text in machine.served.environ.items()
            if name.startswith("SNAPBID_")
        }

        def audited() -> dict[str, float]:
            found = samples(machine.served).get("snapbid_audit_difference", {})
            return {dict(labels)["comparison"]: value for labels, value in found.items()}

        assert bid(machine.served, "a")[0] == 200
        eventually(lambda: bool(audited()), "the first audit")
        assert set(audited().values()) == {0}
        assert machine.drain.process
        pid = machine.drain.process.pid
        (auditor,) = children_of(pid)
        os.kill(auditor, signal.SIGKILL)
        eventually(lambda: set(children_of(pid)) not in ({auditor}, set()), "another auditor")
        (auditor,) = children_of(pid)
        asyncio.run(execute(machine.postgres.dsn, "update bid_daily set bids = bids + 1"))
        for _ in range(3):  # minutes
            with contextlib.suppress(AssertionError):
                eventually(lambda: audited()["reports"] == 1, "the difference")
        assert audited() == dict.fromkeys(COMPARISONS, 0) | {"reports": 1}
        eventually(
            lambda: "reports: b of acme on" in invoke(environ, "status").stdout, "the status"
        )
        assert "audit found a difference: reports: b of acme on" in machine.drain.output
        machine.drain.process.kill()
        eventually(lambda: not Path(f"/proc/{auditor}").exists(), "it to end with the drain")


def _field(of: Difference) -> str:
    """What differs, without the shard and the day."""
    return of.what.partition(" on ")[0].removeprefix("shard 0, ")
