"""Bonuses and deposits: what came out of order or does not fit, in any order of arrival."""

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest
from support.event_bench import Bench
from support.sending import cashed_out, claimed, completed, event, money, offered

from snapbid.events.outcomes import Product

BONUS = {
    "bonus_offered": offered("b"),
    "bonus_claimed": claimed("b"),
    "bonus_completed": completed("b"),
    "bonus_cashed_out": cashed_out("b", 7.5),
}
BEFORE = {
    "bonus_claimed": ["bonus_offered"],
    "bonus_completed": ["bonus_claimed"],
    "bonus_cashed_out": ["bonus_claimed", "bonus_completed"],
}


def expected(order: Iterable[str]) -> dict[str, list[str]]:
    """Who is flagged, where the events arrive in this order (some perhaps never)."""
    arrived = list(order)
    flags_of = {}
    for place, name in enumerate(arrived):
        references = BEFORE.get(name, [])
        missing = any(each not in arrived for each in references)
        late = any(each in arrived[place:] for each in references)
        flags_of[name] = ["reference_missing"] * missing + ["out_of_order"] * late
    return flags_of


@pytest.mark.parametrize("apart", [False, True], ids=["one batch", "apart"])
async def test_a_bonus_in_any_order(bench: Bench, apart: bool) -> None:
    orders = [order for size in (1, 2, 3, 4) for order in permutations(BONUS, size)]
    for number, order in enumerate(orders):
        product = Product(f"p{number}", frozenset({"igaming"}))
        documents = [BONUS[name] for name in order]
        for some in [[each] for each in documents] if apart else [documents]:
            await bench.accept(*some, product=product)
            if apart and number % 7 == 0:
                await bench.round()
    await bench.round()
    rows = await bench.rows("select product, event, flags from events")
    flags_of: dict[str, dict[str, list[str]]] = {}
    for product_name, name, flags in rows:
        flags_of.setdefault(product_name, {})[name] = flags
    assert flags_of == {f"p{number}": expected(order) for number, order in enumerate(orders)}


async def test_flags_follow_what_comes_later(bench: Bench) -> None:
    await bench.accept(cashed_out("b", 1))
    await bench.round()
    assert (await bench.flags())["bonus_cashed_out"] == ["reference_missing"]
    await bench.accept(claimed("b", currency="USD", bonus_value_granted=200))
    await bench.round()
    assert (await bench.flags())["bonus_cashed_out"] == [
        "reference_missing", "out_of_order", "currency_mismatch", "value_mismatch",
    ]  # fmt: skip
    await bench.accept(completed("b"))
    await bench.accept(cashed_out("b", 2))
    await bench.round()
    assert (await bench.flags())["bonus_completed"] == ["currency_mismatch"]
    rows = await bench.rows(
        "select flags from events where event = 'bonus_cashed_out' order by arrival"
    )
    late, early = ["out_of_order", "currency_mismatch", "value_mismatch"], ["currency_mismatch"]
    assert rows == [(late,), ([*early, "value_mismatch"],)]
    await bench.accept(offered("b"))
    await bench.round()
    assert (await bench.flags())["bonus_claimed"] == [
        "out_of_order", "currency_mismatch", "value_mismatch", "exceeds_max",
    ]  # fmt: skip
    assert (await bench.flags())["bonus_offered"] == []


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else str(value["event"])


@pytest.mark.parametrize(
    ("documents", "flags"),
    [
        ([offered("b"), claimed("b")], []),
        ([offered("b"), claimed("b", currency="USD")], ["currency_mismatch"]),
        ([offered("b"), claimed("b", wagering_requirement=370.2)], []),
        ([offered("b"), claimed("b", wagering_requirement=370.21)], ["value_mismatch"]),
        ([offered("b", bonus_value_max=12.33), claimed("b")], ["exceeds_max"]),
        ([offered("b", bonus_value_max=12.34), claimed("b")], []),
        ([offered("b", wagering_multiplier=0), claimed("b", wagering_requirement=0)], []),
        (
            [
                offered("b", wagering_multiplier=3, currency="JPY"),
                claimed("b", bonus_value_granted=0.1, wagering_requirement=0.1 * 3, currency="JPY"),
            ],
            [],
        ),
        ([claimed("b"), completed("b")], []),
        ([claimed("b"), completed("b", wagering_requirement=370)], ["value_mismatch"]),
        ([claimed("b"), completed("b", currency="USD")], ["currency_mismatch"]),
        ([claimed("b"), completed("b"), cashed_out("b", 5000)], []),
        (
            [claimed("b"), completed("b"), cashed_out("b", 1, original_bonus_value=12)],
            ["value_mismatch"],
        ),
        ([claimed("b"), completed("b"), cashed_out("b", 1, currency="USD")], ["currency_mismatch"]),
        ([event("deposit", transaction_id="t", **money(5))], ["reference_missing"]),
        (
            [
                event("deposit_initiated", transaction_id="t", **money(5)),
                event("deposit", transaction_id="t", **money(5)),
            ],
            [],
        ),
        (
            [
                event("deposit_initiated", transaction_id="other", **money(5)),
                event(
                    "deposit_failed",
                    transaction_id="t",
                    attempted_amount=5,
                    currency="EUR",
                    payment_method="card",
                    failure_reason="unknown",
                ),
            ],
            ["reference_missing"],
        ),
        ([event("withdraw", transaction_id="t", **money(5))], []),
    ],
    ids=lambda value: ", ".join(map(_shown, value)),
)
async def test_mismatches_are_flagged(
    bench: Bench, documents: list[dict[str, Any]], flags: list[str]
) -> None:
    await bench.accept(*documents)
    await bench.round()
    assert (await bench.flags())[documents[-1]["event"]] == flags


async def test_a_late_initiation_flags_the_deposit(bench: Bench) -> None:
    await bench.accept(event("deposit", transaction_id="t", **money(5)))
    await bench.round()
    await bench.accept(event("deposit_initiated", transaction_id="t", **money(5)))
    await bench.round()
    assert await bench.flags() == {"deposit": ["out_of_order"], "deposit_initiated": []}


async def test_views(bench: Bench) -> None:
    documents = [offered("a"), offered("b"), claimed("b"), completed("b"), claimed("c")]
    documents += [cashed_out("b", amount) for amount in (0.1, 0.2, 0.30000000000000004)]
    day, before = 1_717_200_000_000, 1_717_199_999_999
    documents += [
        event("deposit_initiated", at=before, transaction_id="1", **money(5)),
        event("deposit", at=before, transaction_id="1", **money(5)),
        event("deposit", at=day, transaction_id="2", **money(5)),
        event(
            "deposit_failed", at=day, transaction_id="3", attempted_amount=5, currency="EUR",
            payment_method="card", failure_reason="unknown",
        ),
    ]  # fmt: skip
    await bench.accept(*documents)
    await bench.round()
    status = await bench.rows("select bonus_id, state, cashed_out from bonus_status order by 1")
    total = Decimal("0.1") + Decimal("0.2") + Decimal("0.30000000000000004")
    assert status == [
        ("a", "offered", 0), ("b", "cashed_out", total), ("c", "claimed", 0),
    ]  # fmt: skip
    assert isinstance(status[0][2], Decimal)
    attempts = await bench.rows("select * from deposit_attempts order by day")
    assert attempts == [("casino", date(2024, 5, 31), 1), ("casino", date(2024, 6, 1), 2)]


async def test_one_bonus_is_looked_up_by_an_index(bench: Bench) -> None:
    """With the condition that the guide gives; no hash index, which slows down with repeats."""
    await bench.accept(offered("b"), claimed("b"))
    await bench.round()
    await bench.connection.execute("set enable_seqscan = off")
    plan = await bench.rows(
        "explain select * from bonus_status"
        " where bonus_id = 'b' and left(bonus_id, 64) = left('b', 64)"
    )
    assert any("Index Cond" in line and "bonus_id" in line for (line,) in plan), plan
    methods = await bench.rows("select distinct amname from pg_index join pg_class on oid ="
                               " indexrelid join pg_am a on a.oid = relam where indrelid in"
                               " (select inhrelid from pg_inherits)")  # fmt: skip
    assert sorted(methods) == [("brin",), ("btree",)]


async def test_no_table_of_events_is_ever_scanned(bench: Bench) -> None:
    """A plan made for an empty table must not read all of it once it has grown."""
    scanned = "select sum(seq_tup_read)::int from pg_stat_user_tables where relname like 'event%'"
    for number in range(12):
        steps = [claimed(f"b{number}"), completed(f"b{number}"), cashed_out(f"b{number}", 1)]
        await bench.accept(*steps, *(event("login", f"u{number}-{n}") for n in range(100)))
        await bench.round()
    await bench.rows("select pg_stat_force_next_flush()")
    ((read,),) = await bench.rows(scanned)
    assert read == 0
