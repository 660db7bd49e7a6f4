"""The reconciliation with the report: equal to the unit, or not."""

from decimal import Decimal

from snapbid.loadtest.accounts import Account, by_canonical
from snapbid.loadtest.reports import SspTotals, compare, summarise

BEFORE = SspTotals(100, 10, 9, Decimal("12345.6"))


def statuses(
    account: Account, after: SspTotals, before: SspTotals = BEFORE
) -> tuple[str, list[str]]:
    outcome = summarise(compare("acme", account, before, after))
    return outcome.status, [row.what for row in outcome.rows if not row.agrees]


def test_equal_figures_are_exact() -> None:
    account = Account(bids=5, wins=2, imps=1, cpm_micros=2_500_000)
    after = SspTotals(105, 12, 10, Decimal("14845.6"))
    assert statuses(account, after) == ("exact", [])


def test_any_other_figure_is_different() -> None:
    account = Account(bids=5, wins=2, imps=1, cpm_micros=2_500_000)
    assert statuses(account, SspTotals(106, 12, 10, Decimal("14845.6"))) == ("different", ["bids"])
    assert statuses(account, SspTotals(105, 11, 10, Decimal("14845.6"))) == ("different", ["wins"])
    assert statuses(account, SspTotals(105, 12, 11, Decimal("14845.6"))) == ("different", ["imps"])
    after = SspTotals(105, 12, 10, Decimal("14847"))
    assert statuses(account, after) == ("different", ["micro-USD"])


def test_money_may_differ_by_the_rounding_of_two_reports() -> None:
    account = Account(wins=3, cpm_micros=1_000_500)  # 1000.5 micro-USD
    nothing = SspTotals()
    for micros, agrees in ((1000, True), (1001, True), (999, False), (1002, False)):
        status, _ = statuses(account, SspTotals(0, 3, 0, Decimal(micros)), nothing)
        assert (status == "exact") is agrees


def test_unanswered_requests_may_count_or_not() -> None:
    account = Account(bids=5, maybe_bids=2, wins=1, maybe_wins=1, cpm_micros=1000,
                      maybe_cpm_micros=9_000_000)  # fmt: skip
    for bids, status in ((4, "different"), (5, "within bounds"), (7, "within bounds"),
                         (8, "different")):  # fmt: skip
        after = SspTotals(bids, 2, 0, Decimal(9001))
        assert statuses(account, after, SspTotals())[0] == status


def test_variants_are_summed() -> None:
    accounts = {
        "acme": Account(bids=1),
        "acme-eu": Account(bids=2, wins=1),
        "nova": Account(imps=4),
    }
    canonical = {"acme": "acme", "acme-eu": "acme", "nova": "nova"}
    assert by_canonical(accounts, canonical) == {
        "acme": Account(bids=3, wins=1),
        "nova": Account(imps=4),
    }
