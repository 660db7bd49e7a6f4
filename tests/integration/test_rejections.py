"""Which losses reject a creative, and when that suspends it (contract 11)."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest
from support.remembered import Clock, remember, remembering, segment_of, until
from support.stack import connected

from snapbid.campaigns.suspensions import marks_of
from snapbid.drain.suspensions import SuspensionRounds
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import BILLING, LOSS, WIN, marked
from snapbid.warehouse import campaigns, registry, suspensions
from snapbid.warehouse.suspensions import SuspensionRule

BAD, GOOD, NONE = (marked(7, mark) for mark in (168, 12, 0))
DAY = "2030-06-15"


class Traffic:
    """Bids of an SSP, each of an auction of its own, and what the ledger counts of rejections."""

    def __init__(self, ledger: Ledger, store: Any, clock: Clock) -> None:
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._auctions = 0

    async def bid(self, marked: int = BAD, ssp: int = 3) -> bytes:
        self._auctions += 1
        self._clock.now += 0.01
        auction = b"%d" % self._auctions
        assert await remember(self._ledger, auction, (b"1", marked, 100), ssp=ssp)
        return auction

    async def rejected(self, auction: bytes, reason: int = 203, *unheard: int) -> bool:
        assert await self._ledger.settle(LOSS, auction, b"1", reason) == "c"
        return await self._ledger.reject(auction, b"1", reason, unheard)

    def counts(self) -> dict[str, int]:
        of_day = self._store.hgetall(f"{{sb0}}:c:{segment_of(self._store)}:{DAY}")
        named = {field.decode(): int(value) for field, value in of_day.items()}
        return {field: value for field, value in named.items() if value and field[0] in "rq"}


@pytest.fixture
def traffic(ledger: Ledger, store: Any, clock: Clock) -> Traffic:
    return Traffic(ledger, store, clock)


async def test_from_the_first_rejection_on_bids_and_rejections_count(traffic: Traffic) -> None:
    before = [await traffic.bid(), await traffic.bid()]
    assert not await traffic.rejected(before[0]), "it only begins the count"
    assert not await traffic.rejected(before[1]), "its bid is from before"
    after = [await traffic.bid() for _ in range(5)]
    await traffic.bid(GOOD)
    await traffic.bid(ssp=4)
    assert await traffic.rejected(after[0], 202)
    assert await traffic.rejected(after[1], 203)
    assert traffic.counts() == {"q168:7:3": 5, "r168.202:7:3": 1, "r168.203:7:3": 1}


@pytest.mark.parametrize("kind", [WIN, BILLING])
async def test_a_loss_beside_a_win_or_billing_rejects_nothing(
    ledger: Ledger, traffic: Traffic, kind: int
) -> None:
    await traffic.rejected(await traffic.bid())
    earlier, later = await traffic.bid(), await traffic.bid()
    assert await ledger.settle(kind, earlier, b"1") == "c"
    assert not await traffic.rejected(earlier)
    assert await traffic.rejected(later)
    assert await ledger.settle(kind, later, b"1") == "c"
    assert traffic.counts() == {"q168:7:3": 2}


async def test_notices_from_others_than_the_ssp_reject_nothing(traffic: Traffic) -> None:
    assert not await traffic.rejected(await traffic.bid(), 203, 1, 3, 33)
    assert not await traffic.rejected(await traffic.bid())
    assert not await traffic.rejected(await traffic.bid(), 203, 3)
    assert await traffic.rejected(await traffic.bid(), 203, 1, 33)
    assert traffic.counts() == {"q168:7:3": 2, "r168.203:7:3": 1}


async def test_losses_that_reject_nothing(ledger: Ledger, traffic: Traffic) -> None:
    """No loss, another reason than was settled, a repeat, no mark, an unknown auction."""
    await traffic.rejected(await traffic.bid())
    assert not await ledger.reject(await traffic.bid(), b"1", 203)
    assert not await traffic.rejected(await traffic.bid(NONE))
    assert not await ledger.reject(b"unknown", b"1", 203)
    auction = await traffic.bid()
    assert await traffic.rejected(auction, 205)
    assert not await ledger.reject(auction, b"1", 205)
    assert not await ledger.reject(auction, b"1", 206)
    assert traffic.counts() == {"q168:7:3": 2, "r168.205:7:3": 1}


async def test_rolled_back_bids_reject_nothing(ledger: Ledger, traffic: Traffic) -> None:
    """The loss was meant for the bid that a late one had replaced."""
    await traffic.rejected(await traffic.bid())
    auction = await traffic.bid()
    (core,), (shard,) = ledger._cores, ledger._shards
    done = remembering(ledger, auction, (b"1", BAD, 999), ssp=3)
    assert done is not None
    while not core._answers.sent:
        await asyncio.sleep(0)
    done.cancel()
    await until(lambda: not shard.trips.is_busy and not core.unconfirmed)
    assert await traffic.rejected(auction)
    assert traffic.counts()["r168.203:7:3"] == 1


KEEPER = SuspensionRounds(SuspensionRule(3, 0.2), 3600)
CREATIVE = {"id": "bad", "media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}
SPRING = {"id": "spring", "advertiser": "b.example", "cpm": 2, "creatives": [CREATIVE]}


@pytest.mark.parametrize(
    ("losses", "bids", "suspends"),
    [(3, 15, False), (3, 19, False), (4, 20, True), (3, 20, False), (19, 19, False), (3, 16, False),
     (20, 100, True), (19, 100, False), (60, 60, True), (2, 20, False), (0, 1000, False)],
)  # fmt: skip
async def test_a_share_of_enough_bids_suspends(
    database: str, losses: int, bids: int, suspends: bool
) -> None:
    async with connected(database) as connection:
        await register(connection)
        await reject(connection, losses, bids)
        assert await KEEPER.round(connection) == suspends


async def test_rejections_and_bids_add_up_over_rounds(database: str) -> None:
    """Bids that come without a rejection change no reason, and nothing becomes negative."""
    async with connected(database) as connection:
        await register(connection)
        for losses, bids in ((2, 10), (0, 5), (1, 5), (-1, 0), (1, 0), (1, 0)):
            reason = 203 if losses else None
            await connection.execute(
                "insert into creative_rejection (ssp, campaign, mark, reason, losses, bids)"
                " values ('acme', 'spring', $1, $2, $3, $4)",
                mark_of("bad"), reason, losses, bids,
            )  # fmt: skip
            begun = await KEEPER.round(connection)
        assert begun == 1
        row = await connection.fetchrow("select reason, losses, bids from creative_suspension")
        assert tuple(row) == (203, 4, 20)


@pytest.mark.parametrize(
    ("changed", "remains"),
    [
        ({}, True),
        ({"cpm": 3, "name": "n", "budget": {"daily": 5}, "status": "paused", "seat": "s"}, True),
        ({"creatives": [{**CREATIVE, "id": "new"}, CREATIVE]}, True),
        ({"creatives": [{**CREATIVE, "adm": "<b></b>"}]}, False),
        ({"creatives": [{**CREATIVE, "attributes": [6]}]}, False),
        ({"creatives": [{**CREATIVE, "id": "new"}]}, False),
        ({"creatives": None}, False),
        ({"advertiser": "c.example"}, False),
        ({"categories": ["IAB1"]}, False),
    ],
)
async def test_a_suspension_is_of_the_creative_that_was_rejected(
    database: str, changed: dict[str, Any], remains: bool
) -> None:
    """A change of the creative, or of what its bids say about it, ends the suspension."""
    async with connected(database) as connection:
        await register(connection)
        await suspend(connection)
        document = json.dumps({**SPRING, **changed})
        await campaigns.replace_many(connection, [("spring", document)])
        listed = await suspensions.fetch_suspended(connection)
        assert [each.creative for each in listed] == ["bad"] * remains
        trail = await connection.fetch("select action from audit where kind = 'creative'")
        assert len(trail) == 1 + (not remains), "it is recorded"


@pytest.mark.parametrize(
    "statement",
    [
        "update campaign set document = jsonb_set(document, '{creatives,0,id}', '\"new\"')",
        "update campaign set id = 'x', document = document || '{\"id\": \"x\"}'",
        "delete from campaign",
        "truncate campaign",
    ],
)
async def test_no_creative_is_suspended_that_does_not_exist(database: str, statement: str) -> None:
    async with connected(database) as connection:
        await register(connection)
        await suspend(connection)
        await connection.execute(statement)
        assert not await connection.fetch("select * from creative_suspension")


async def test_losses_of_the_former_creative_do_not_count_for_the_changed_one(
    database: str,
) -> None:
    """Neither counted ones nor those that are counted in the next minute."""
    async with connected(database) as connection:
        await register(connection)
        await reject(connection, 10, 19)
        assert await KEEPER.round(connection) == 0
        await reject(connection, 10, 40)
        change = json.dumps({**SPRING, "creatives": [{**CREATIVE, "adm": "<b></b>"}]})
        await campaigns.replace_many(connection, [("spring", change)])
        for _ in range(2):
            assert await KEEPER.round(connection) == 0
            await reject(connection, 10, 40)
        await connection.execute("update creative_suspension set counts_from = now()")
        assert await KEEPER.round(connection) == 1
        row = await connection.fetchrow("select losses, bids from creative_suspension")
        assert tuple(row) == (10, 40)


async def test_rejections_are_counted_after_an_import_not_during_it(database: str) -> None:
    """They count for the creatives that it leaves, and neither waits for the other's rows."""
    async with connected(database) as connection, connected(database) as importing:
        await register(connection)
        await reject(connection, 10, 60)
        async with importing.transaction():
            await importing.execute("delete from campaign")
            assert await KEEPER.round(connection) == 0
            assert await connection.fetchval("select count(*) from creative_rejection") == 2
        assert await KEEPER.round(connection) == 0
        assert not await suspensions.fetch_suspended(connection)
        assert await connection.fetchval("select count(*) from creative_rejection") == 0


async def reject(connection: asyncpg.Connection, losses: int, bids: int) -> None:
    await connection.executemany(
        "insert into creative_rejection (ssp, campaign, mark, reason, losses, bids)"
        " values ('acme', 'spring', $1, $2, $3, $4)",
        [(mark_of("bad"), 203, losses, 0), (mark_of("bad"), None, 0, bids)],
    )


async def suspend(connection: asyncpg.Connection) -> None:
    await reject(connection, 10, 20)
    assert await KEEPER.round(connection) == 1


def mark_of(creative: str) -> int:
    return marks_of([creative])[creative]


async def register(connection: asyncpg.Connection) -> None:
    await registry.add(connection, "acme")
    await campaigns.replace_many(connection, [("spring", json.dumps(SPRING))])
